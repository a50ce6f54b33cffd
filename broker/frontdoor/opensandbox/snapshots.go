package opensandbox

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Snapshots keeps sandboxes as they are; snapshot.Service is it.
type Snapshots interface {
	Make(ctx context.Context, who tenant.Tenant, instanceID string, req snapshot.MakeRequest) (snapshot.Info, bool, error)
	Get(who tenant.Tenant, id string) (snapshot.Info, error)
	ListEverywhere(ctx context.Context, who tenant.Tenant, req snapshot.ListRequest) (snapshot.Page, error)
	Delete(ctx context.Context, who tenant.Tenant, id string) error
	Source(who tenant.Tenant, id string, req *instance.CreateRequest) error
}

// A snapshot of this door is one of the broker's that was asked for here.
func (d *Door) registerSnapshots() {
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: "/v1/sandboxes/{id}/snapshots", Resumes: true}, d.createSnapshot)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/snapshots", AnyQuery: true}, d.listSnapshots)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: "/v1/snapshots/{snapshot}"}, d.getSnapshot)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: "/v1/snapshots/{snapshot}"}, d.deleteSnapshot)
}

// snapshotAnswer is a snapshot as clients are told of it.
type snapshotAnswer struct {
	ID        string         `json:"id"`
	SandboxID string         `json:"sandboxId"`
	Name      string         `json:"name,omitempty"`
	Status    snapshotStatus `json:"status"`
	CreatedAt time.Time      `json:"createdAt"`
}

type snapshotStatus struct {
	State            string    `json:"state"`
	Reason           string    `json:"reason"`
	Message          string    `json:"message"`
	LastTransitionAt time.Time `json:"lastTransitionAt"`
}

// stateReady is the one state that a snapshot of ours can be seen in: a request for one is
// answered when it is made.
const stateReady = "Ready"

func answerOf(info snapshot.Info) snapshotAnswer {
	created := info.CreatedAt.UTC()
	return snapshotAnswer{
		ID: info.ID, SandboxID: sourceOf(info), Name: info.Name, CreatedAt: created,
		Status: snapshotStatus{State: stateReady, Reason: "snapshot_ready", Message: "The snapshot can be gone on from.", LastTransitionAt: created},
	}
}

// sourceOf is the sandbox of a snapshot, which may be no more: its ID is the last part of the
// instance's.
func sourceOf(info snapshot.Info) string {
	return info.Instance[strings.LastIndexByte(info.Instance, ':')+1:]
}

// ownSnapshot is one that the tenant has asked for here.
func (d *Door) ownSnapshot(who tenant.Tenant, id string) (snapshot.Info, error) {
	info, err := d.snapshots.Get(who, id)
	if err == nil && info.FrontDoor != Name || sdk.CodeOf(err) == sdk.CodeNotFound {
		return snapshot.Info{}, sdk.Errorf(sdk.CodeNotFound, "There is no such snapshot. It may have been deleted, or have expired.")
	}
	return info, err
}

func (d *Door) createSnapshot(ctx context.Context, c rest.Call[rest.Raw]) (int, snapshotAnswer, error) {
	var body struct {
		Name *string `json:"name"`
	}
	if len(c.Body) > 0 {
		if err := readObject(c.Body, &body); err != nil {
			return 0, snapshotAnswer{}, err
		}
	}
	req := snapshot.MakeRequest{Key: c.Key, FrontDoor: Name}
	if body.Name != nil {
		if req.Name = *body.Name; req.Name == "" {
			return 0, snapshotAnswer{}, refused("name", "must not be empty; leave it out for none")
		}
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, snapshotAnswer{}, err
	}
	made, _, err := d.snapshots.Make(ctx, c.Tenant, info.ID.String(), req)
	if err != nil {
		return 0, snapshotAnswer{}, err
	}
	c.SetHeader("Location", c.Mounted()+"/v1/snapshots/"+made.ID)
	return http.StatusAccepted, answerOf(made), nil
}

func (d *Door) getSnapshot(_ context.Context, c rest.Call[rest.None]) (int, snapshotAnswer, error) {
	info, err := d.ownSnapshot(c.Tenant, c.Path["snapshot"])
	if err != nil {
		return 0, snapshotAnswer{}, err
	}
	return http.StatusOK, answerOf(info), nil
}

func (d *Door) deleteSnapshot(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	info, err := d.ownSnapshot(c.Tenant, c.Path["snapshot"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusNoContent, rest.None{}, d.snapshots.Delete(ctx, c.Tenant, info.ID)
}

// snapshotList is a page of them.
type snapshotList struct {
	Items      []snapshotAnswer `json:"items"`
	Pagination pagination       `json:"pagination"`
}

// listSnapshots shows the tenant's snapshots, the newest first.
func (d *Door) listSnapshots(ctx context.Context, c rest.Call[rest.None]) (int, snapshotList, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return 0, snapshotList{}, refused("query", "is malformed")
	}
	found, err := d.snapshots.ListEverywhere(ctx, c.Tenant, snapshot.ListRequest{FrontDoor: Name, Limit: math.MaxInt})
	if err != nil {
		return 0, snapshotList{}, err
	}
	all := found.Snapshots
	states := query["state"]
	if len(states) > 0 && !slices.ContainsFunc(states, func(state string) bool { return strings.EqualFold(state, stateReady) }) {
		all = nil
	}
	all = slices.DeleteFunc(all, func(s snapshot.Info) bool {
		return query.Has("sandboxId") && sourceOf(s) != query.Get("sandboxId") || query.Has("name") && s.Name != query.Get("name")
	})
	slices.SortFunc(all, func(a, b snapshot.Info) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	shown, place, err := pageOf(all, query)
	answer := snapshotList{Items: []snapshotAnswer{}, Pagination: place}
	for _, one := range shown {
		answer.Items = append(answer.Items, answerOf(one))
	}
	return http.StatusOK, answer, err
}

// pageOf is the page of a list that a query asks for, and what it says of itself.
func pageOf[T any](all []T, query url.Values) ([]T, pagination, error) {
	page, err := numberOf(query, "page", 1, math.MaxInt32)
	if err != nil {
		return nil, pagination{}, err
	}
	size, err := numberOf(query, "pageSize", defaultPageSize, maxPageSize)
	if err != nil {
		return nil, pagination{}, err
	}
	place := pagination{Page: page, PageSize: size, TotalItems: len(all), TotalPages: (len(all) + size - 1) / size}
	place.HasNextPage = page < place.TotalPages
	if page > place.TotalPages {
		return nil, place, nil
	}
	from := (page - 1) * size
	return all[from:min(from+size, len(all))], place, nil
}

// goOn has a creation go on from a snapshot, if it names one.
func (d *Door) goOn(who tenant.Tenant, id string, req *instance.CreateRequest) error {
	if id == "" {
		return nil
	}
	info, err := d.ownSnapshot(who, id)
	if err != nil {
		return err
	}
	return d.snapshots.Source(who, info.ID, req)
}
