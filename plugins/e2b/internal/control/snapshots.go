package control

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// snapshotTimeout is for the call that keeps a sandbox: it is answered when all of its
// memory was written.
const snapshotTimeout = 5 * time.Minute

// Snapshot is a template that was made of a sandbox while it ran.
type Snapshot struct {
	// SnapshotID is what the API wants to be asked for it by: "team/name:tag".
	SnapshotID string `json:"snapshotID"`
	// Names that it has, each "team/name".
	Names []string `json:"names"`
}

// ShortNames are its names without team and tag, and what stands in their place in the
// SnapshotID.
func (s Snapshot) ShortNames() []string {
	var all []string
	for _, full := range append(slices.Clone(s.Names), s.SnapshotID) {
		all = append(all, nameOf(full))
	}
	return all
}

func nameOf(full string) string {
	_, name, found := strings.Cut(full, "/")
	if !found {
		name = full
	}
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Snapshot keeps a sandbox as it is, under a name. If there is a snapshot of that name
// already, what is kept now takes its place. 409 means that the sandbox is paused or between
// states.
func (c *Client) Snapshot(ctx context.Context, id, name string) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	var made Snapshot
	_, err := c.endpoint.Call(ctx, http.MethodPost, "/sandboxes/"+id+"/snapshots", map[string]string{"name": name}, &made)
	return made, err
}

// Snapshots returns those of the team: all, or the one of a name.
func (c *Client) Snapshots(ctx context.Context, name string) ([]Snapshot, error) {
	query := url.Values{"limit": {"100"}}
	if name != "" {
		query.Set("name", name)
	}
	var all []Snapshot
	for range maxPages {
		var page []Snapshot
		header, err := c.timed(ctx, http.MethodGet, "/snapshots?"+query.Encode(), nil, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next := header.Get("X-Next-Token")
		if next == "" {
			return all, nil
		}
		query.Set("nextToken", next)
	}
	return nil, errors.New("the list of snapshots has no end")
}

// DeleteSnapshot deletes one by its SnapshotID. 404 means that there is none, and 400 that
// sandboxes run or are paused that were made of it.
func (c *Client) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return c.call(ctx, http.MethodDelete, "/templates/"+url.PathEscape(snapshotID), nil, nil)
}
