package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A snapshot of this door is one of the broker's that was asked for here. Clients use its ID
// as that of a template.
func (d *Door) registerSnapshots() {
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/snapshots", Resumes: true}, d.createSnapshot)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/sandboxes/{id}/fork", Resumes: true}, d.fork)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/snapshots", AnyQuery: true}, d.listSnapshots)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: "/templates/{id}"}, d.deleteSnapshot)
}

// snapshotAnswer is a snapshot as clients are told of it.
type snapshotAnswer struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"` // which the SDKs read, and none has
}

// isSnapshot reports whether the ID of a template has the form of one of a snapshot.
func isSnapshot(template string) bool { return strings.HasPrefix(template, snapshot.IDPrefix) }

// ownSnapshot is one that the tenant has asked for here.
func (d *Door) ownSnapshot(who tenant.Tenant, id string) (snapshot.Info, error) {
	info, err := d.snapshots.Get(who, id)
	if err == nil && info.FrontDoor != Name || isNotFound(err) {
		return snapshot.Info{}, sdk.Errorf(sdk.CodeNotFound, "The snapshot %s was not found. It may have been deleted, or have expired.", frontdoor.Clipped(id))
	}
	return info, err
}

func (d *Door) createSnapshot(ctx context.Context, c rest.Call[rest.Raw]) (int, snapshotAnswer, error) {
	fields, err := objectOf(c.Body)
	if err != nil {
		return 0, snapshotAnswer{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case isNothing(fields[name]):
		case name == "name":
			return 0, snapshotAnswer{}, refused(name, "is not served here: a snapshot is found by its ID; leave it out")
		default:
			return 0, snapshotAnswer{}, refused(frontdoor.Clipped(name), "is not served here, and would change what you get; leave it out")
		}
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, snapshotAnswer{}, err
	}
	made, _, err := d.snapshots.Make(ctx, c.Tenant, info.ID.String(), snapshot.MakeRequest{Key: c.Key, FrontDoor: Name})
	return http.StatusCreated, snapshotAnswer{SnapshotID: made.ID, Names: []string{}}, err
}

// listSnapshots shows the tenant's snapshots in pages, the newest first.
func (d *Door) listSnapshots(ctx context.Context, c rest.Call[rest.None]) (int, []snapshotAnswer, error) {
	query, err := url.ParseQuery(c.RawQuery)
	if err != nil {
		return 0, nil, refused("query", "is malformed")
	}
	limit := maxPage
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return 0, nil, refused("limit", "must be a number from 1 to %d", maxPage)
		}
	}
	last, err := snapshotPlace(query.Get("nextToken"))
	if err != nil {
		return 0, nil, err
	}
	found, err := d.snapshots.ListEverywhere(ctx, c.Tenant, snapshot.ListRequest{FrontDoor: Name, Limit: math.MaxInt})
	if err != nil {
		return 0, nil, err
	}
	sandbox, _, _ := strings.Cut(query.Get("sandboxID"), "-")
	all := slices.DeleteFunc(found.Snapshots, func(s snapshot.Info) bool {
		// The instance may be no more: its own ID is the last part of the broker's.
		of := s.Instance[strings.LastIndexByte(s.Instance, ':')+1:]
		behind := last.ID == "" || newestSnapshot(s, last) > 0
		return !behind || sandbox != "" && of != sandbox || query.Get("name") != "" && query.Get("name") != s.ID
	})
	slices.SortFunc(all, newestSnapshot)
	page := []snapshotAnswer{}
	for _, s := range all[:min(limit, len(all))] {
		page = append(page, snapshotAnswer{SnapshotID: s.ID, Names: []string{}})
	}
	if limit < len(all) {
		at := all[limit-1]
		c.SetHeader("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(at.CreatedAt.UTC().Format(time.RFC3339Nano)+placeSeparator+at.ID)))
	}
	return http.StatusOK, page, nil
}

func newestSnapshot(a, b snapshot.Info) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// snapshotPlace reads a token of a page; of none it is nothing.
func snapshotPlace(token string) (snapshot.Info, error) {
	if token == "" {
		return snapshot.Info{}, nil
	}
	at, err := placeOf(token)
	return snapshot.Info{CreatedAt: at.StartedAt, ID: at.SandboxID}, err
}

// deleteSnapshot deletes a snapshot. Its route is that of templates, of which clients have none.
func (d *Door) deleteSnapshot(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	info, err := d.ownSnapshot(c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusNoContent, rest.None{}, d.snapshots.Delete(ctx, c.Tenant, info.ID)
}

// goOn has a creation go on from a snapshot, if the ID of its template is that of one.
func (d *Door) goOn(who tenant.Tenant, req *instance.CreateRequest) error {
	var n note
	if err := json.Unmarshal([]byte(req.Note), &n); err != nil {
		return err
	}
	if _, operators := d.settings.Load().Templates[n.Template]; operators || !isSnapshot(n.Template) {
		return nil
	}
	info, err := d.ownSnapshot(who, n.Template)
	if err != nil {
		return err
	}
	return d.snapshots.Source(who, info.ID, req)
}
