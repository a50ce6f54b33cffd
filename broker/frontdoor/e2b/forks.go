package e2b

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
)

// forkResult is one of the sandboxes that a fork was to make. With E2B each may have failed by
// itself; here all are made or none, and a fork that fails is refused as a whole.
type forkResult struct {
	Sandbox sandboxAnswer `json:"sandbox"`
}

// fork makes sandboxes that go on where one stands.
func (d *Door) fork(ctx context.Context, c rest.Call[rest.Raw]) (int, []forkResult, error) {
	req, err := readFork(c.Body)
	if err != nil {
		return 0, nil, err
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, nil, err
	}
	// What its owner has said of the original holds of its copies.
	req.Note, req.Labels, req.Fixed, req.PauseAtEnd = info.Note, info.Labels, true, info.PauseAtEnd
	req.Key, req.FrontDoor, req.Wait = c.Key, Name, d.settings.Load().Wait
	made, err := d.snapshots.Fork(ctx, c.Tenant, info.ID.String(), req)
	var all []forkResult
	for _, one := range made {
		all = append(all, forkResult{d.sandboxOf(one)})
	}
	return http.StatusCreated, all, err
}

// readFork reads how many sandboxes are to be made, and how long each is to live.
func readFork(body []byte) (req snapshot.ForkRequest, err error) {
	req.Count, req.TTL = 1, oldTimeout
	if len(body) == 0 {
		return req, nil
	}
	fields, err := objectOf(body)
	if err != nil {
		return req, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		most := int64(snapshot.MaxForks)
		switch name {
		case "timeout":
			most = maxTimeout
		case "count":
		default:
			if isNothing(fields[name]) {
				continue
			}
			return req, refused(frontdoor.Clipped(name), "is not served here, and would change what you get; leave it out")
		}
		var n *int64
		if err := json.Unmarshal(fields[name], &n); err != nil || n != nil && (*n < 1 || *n > most) {
			return req, refused(name, "must be a whole number, from 1 to %d", most)
		}
		switch {
		case n == nil:
		case name == "count":
			req.Count = int(*n)
		default:
			req.TTL = time.Duration(*n) * time.Second
		}
	}
	return req, nil
}
