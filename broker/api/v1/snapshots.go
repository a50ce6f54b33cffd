package v1

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Snapshots does what the routes of snapshots promise; snapshot.Service is it.
type Snapshots interface {
	Make(ctx context.Context, who tenant.Tenant, instanceID string, req snapshot.MakeRequest) (snapshot.Info, bool, error)
	Get(who tenant.Tenant, id string) (snapshot.Info, error)
	List(who tenant.Tenant, req snapshot.ListRequest) snapshot.Page
	ListEverywhere(ctx context.Context, who tenant.Tenant, req snapshot.ListRequest) (snapshot.Page, error)
	Delete(ctx context.Context, who tenant.Tenant, id string) error
	Source(who tenant.Tenant, id string, req *instance.CreateRequest) error
	Fork(ctx context.Context, who tenant.Tenant, instanceID string, req snapshot.ForkRequest) ([]instance.Info, error)
	ListAllEverywhere(ctx context.Context, owner string, req snapshot.ListRequest) (snapshot.Page, error)
	DeleteAny(ctx context.Context, id string) error
}

// snapshotRoutes are those of the capability "snapshots". Instances are made of snapshots by
// createInstance.
type snapshotRoutes struct{ snapshots Snapshots }

func (h snapshotRoutes) register(a *rest.API) {
	const all, one, admin = "/api/v1/snapshots", "/api/v1/snapshots/{snapshot}", pathAdmin + "/snapshots"
	codes := append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/snapshots", ID: "createSnapshot", Tag: tagSnapshots,
		Summary: "Keep an instance as it is",
		Details: "Keeps its files and, where memory is true in the answer, its processes in the middle of what they do: contexts with their variables, and commands in the background. " +
			"The instance runs on. POST /api/v1/instances with its ID as snapshot makes instances that go on from there. Answers 200 for the one that an earlier request with the same Idempotency-Key has made.",
		Resumes: true,
		Success: []int{http.StatusCreated, http.StatusOK}, Codes: codes,
	}, h.createSnapshot)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: all, ID: "listSnapshots", Tag: tagSnapshots,
		Summary: "List your snapshots",
		Query: append([]rest.Parameter{
			{Name: "label", Multiple: true, Doc: "Only those with this label, as name=value. Several must all be there."},
			{Name: "instance_id", Doc: "Only those of this instance."},
			{Name: "provider", Doc: "Only those at this provider."},
		}, paging()...),
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.listSnapshots)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: one, ID: "getSnapshot", Tag: tagSnapshots,
		Summary: "Look at a snapshot",
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeNotFound},
	}, func(_ context.Context, c rest.Call[rest.None]) (int, client.Snapshot, error) {
		info, err := h.snapshots.Get(c.Tenant, c.Path["snapshot"])
		return http.StatusOK, snapshotOf(info), err
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: one, ID: "deleteSnapshot", Tag: tagSnapshots,
		Summary: "Delete a snapshot",
		Details: "Instances that were made from it go on. After an error the snapshot is out of use; try again, or leave it to the broker.",
		Success: []int{http.StatusNoContent}, Codes: append(providerCodes(), sdk.CodeNotFound),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
		return http.StatusNoContent, rest.None{}, h.snapshots.Delete(ctx, c.Tenant, c.Path["snapshot"])
	})
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: "/api/v1/instances/{id}/fork", ID: "forkInstance", Tag: tagSnapshots,
		Summary: "Make copies of an instance that go on where it stands",
		Details: "Files, contexts with their variables and commands in the background are as they are in the original at one moment, and each copy's own from then on; each has a session of its own. The original runs on. " +
			"All copies are made, or none: when one cannot be, those that were are destroyed.",
		Resumes: true,
		Success: []int{http.StatusCreated}, Codes: codes,
	}, h.forkInstance)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: admin, ID: "adminListSnapshots", Tag: tagAdmin, Admin: true,
		Summary: "List the snapshots of all tenants",
		Query: append([]rest.Parameter{
			{Name: "tenant", Doc: "Only those of this tenant."},
			{Name: "provider", Doc: "Only those at this provider."},
		}, paging()...),
		Success: []int{http.StatusOK}, Codes: []sdk.Code{sdk.CodeUnavailable},
	}, h.adminListSnapshots)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: admin + "/{snapshot}", ID: "adminDeleteSnapshot", Tag: tagAdmin, Admin: true,
		Summary: "Delete a snapshot of any tenant",
		Success: []int{http.StatusNoContent}, Codes: append(providerCodes(), sdk.CodeNotFound),
	}, func(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
		return http.StatusNoContent, rest.None{}, h.snapshots.DeleteAny(ctx, c.Path["snapshot"])
	})
}

// paging are the parameters of a page.
func paging() []rest.Parameter {
	return []rest.Parameter{
		{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxPage, Doc: "At most so many; 100 unless given."},
		{Name: "after", Doc: "Only those behind this ID: next of the page before."},
	}
}

func (h snapshotRoutes) createSnapshot(ctx context.Context, c rest.Call[client.CreateSnapshotRequest]) (int, client.Snapshot, error) {
	info, created, err := h.snapshots.Make(ctx, c.Tenant, c.Path["id"], snapshot.MakeRequest{
		Name: c.Body.Name, Labels: c.Body.Labels, TTL: duration(c.Body.TTL), Key: c.Key,
	})
	if created {
		return http.StatusCreated, snapshotOf(info), err
	}
	return http.StatusOK, snapshotOf(info), err
}

func (h snapshotRoutes) listSnapshots(ctx context.Context, c rest.Call[rest.None]) (int, client.SnapshotList, error) {
	labels, err := labelsOf(c.Query.All("label"))
	if err != nil {
		return 0, client.SnapshotList{}, err
	}
	page, err := h.snapshots.ListEverywhere(ctx, c.Tenant, snapshot.ListRequest{
		Labels: labels, Instance: c.Query.Text("instance_id"), Provider: c.Query.Text("provider"),
		Limit: int(c.Query.Integer("limit", defaultPage)), After: c.Query.Text("after"),
	})
	if err != nil {
		return 0, client.SnapshotList{}, err
	}
	list := client.SnapshotList{Snapshots: []client.Snapshot{}}
	for _, info := range page.Snapshots {
		list.Snapshots = append(list.Snapshots, snapshotOf(info))
	}
	if page.More {
		list.Next = list.Snapshots[len(list.Snapshots)-1].ID
	}
	return http.StatusOK, list, nil
}

// labelsOf reads what a list shall have, as name=value.
func labelsOf(wanted []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, label := range wanted {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "label", "must be name=value")
		}
		if v, again := labels[name]; again && v != value {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "label", "there is one value for each name")
		}
		labels[name] = value
	}
	return labels, nil
}

func (h snapshotRoutes) forkInstance(ctx context.Context, c rest.Call[client.ForkInstanceRequest]) (int, client.Fork, error) {
	fork := client.Fork{Instances: []client.Instance{}}
	copies, err := h.snapshots.Fork(ctx, c.Tenant, c.Path["id"], snapshot.ForkRequest{
		Count: max(c.Body.Count, 1, len(c.Body.SessionIDs)), Sessions: c.Body.SessionIDs, Env: c.Body.Env, Labels: c.Body.Labels,
		TTL: duration(c.Body.TTL), Idle: duration(c.Body.Idle), Wait: waitOf(c.Body.WaitMS), Key: c.Key, FrontDoor: c.FrontDoor(),
	})
	for _, info := range copies {
		fork.Instances = append(fork.Instances, instanceOf(info))
	}
	return http.StatusCreated, fork, err
}

func (h snapshotRoutes) adminListSnapshots(ctx context.Context, c rest.Call[rest.None]) (int, client.AdminSnapshotList, error) {
	page, err := h.snapshots.ListAllEverywhere(ctx, c.Query.Text("tenant"), snapshot.ListRequest{
		Provider: c.Query.Text("provider"), Limit: int(c.Query.Integer("limit", defaultPage)), After: c.Query.Text("after"),
	})
	list := client.AdminSnapshotList{Data: []client.AdminSnapshot{}}
	if list.Silent, err = silent(err); err != nil {
		return 0, client.AdminSnapshotList{}, err
	}
	for _, info := range page.Snapshots {
		list.Data = append(list.Data, client.AdminSnapshot{Tenant: info.Tenant, Broker: info.Broker, Snapshot: snapshotOf(info)})
	}
	if page.More {
		list.Next = list.Data[len(list.Data)-1].ID
	}
	return http.StatusOK, list, nil
}

func snapshotOf(info snapshot.Info) client.Snapshot {
	return client.Snapshot{
		ID: info.ID, Name: info.Name, Labels: info.Labels, InstanceID: info.Instance, Provider: info.Provider, Template: info.Template,
		CreatedAt: info.CreatedAt.UTC(), ExpiresAt: info.ExpiresAt.UTC(), Bytes: info.Bytes, Memory: info.Memory,
	}
}
