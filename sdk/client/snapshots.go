package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// CreateSnapshotRequest asks to keep an instance as it is.
type CreateSnapshotRequest struct {
	Name   string            `json:"name,omitempty" maxLength:"100" doc:"For people."`
	Labels map[string]string `json:"labels,omitempty" maxProperties:"50" doc:"Your own notes, to find the snapshot by: GET /api/v1/snapshots?label=name=value."`
	TTL    float64           `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"Seconds that it is kept. The operator sets the default and the maximum."`
}

// Snapshot is an instance as it was at a moment.
type Snapshot struct {
	_          struct{}          `additionalProperties:"true"`
	ID         string            `json:"id" example:"snap-k3v9x2m4q8w1z5y7b6n0"`
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty" doc:"As its maker gave them."`
	InstanceID string            `json:"instance_id" doc:"The instance that it is of, which may be no more."`
	Provider   string            `json:"provider" doc:"Which has it, and makes instances of it."`
	Template   string            `json:"template"`
	CreatedAt  time.Time         `json:"created_at"`
	ExpiresAt  time.Time         `json:"expires_at" doc:"When it is deleted."`
	Bytes      int64             `json:"bytes,omitempty" doc:"What it takes where it is kept; absent if the provider does not say."`
	Memory     bool              `json:"memory" doc:"Whether processes were kept with the files: contexts with their variables, and what runs in the background."`
}

// SnapshotList holds snapshots of the tenant, in the order of their IDs.
type SnapshotList struct {
	_         struct{}   `additionalProperties:"true"`
	Snapshots []Snapshot `json:"snapshots" nullable:"false"`
	Next      string     `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
}

// ForkInstanceRequest asks for copies of an instance that go on where it stands.
type ForkInstanceRequest struct {
	Count      int               `json:"count,omitempty" minimum:"1" maximum:"64" doc:"How many copies; 1 unless given."`
	SessionIDs []string          `json:"session_ids,omitempty" nullable:"false" maxItems:"64" doc:"The sessions of the copies, one for each, which have no instance yet. Without them each copy has a new one."`
	Env        map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables for what starts in the copies, beside those of the original."`
	Labels     map[string]string `json:"labels,omitempty" maxProperties:"50" doc:"Your own notes, the same for each copy."`
	TTL        float64           `json:"ttl,omitempty" exclusiveMinimum:"0" doc:"As of a new instance."`
	Idle       float64           `json:"idle,omitempty" exclusiveMinimum:"0" doc:"As of a new instance."`
	WaitMS     int64             `json:"wait_ms,omitempty" minimum:"0" doc:"Milliseconds that each copy may wait for its turn when max_instances or the provider has no room. Without it the request is refused at once, and no copy is left."`
}

// Fork holds the copies.
type Fork struct {
	_         struct{}   `additionalProperties:"true"`
	Instances []Instance `json:"instances" nullable:"false" doc:"The copies, in the order of session_ids."`
}

// AdminSnapshot is a snapshot with whose it is.
type AdminSnapshot struct {
	Snapshot
	Tenant string `json:"tenant"`
	Broker string `json:"broker,omitempty" doc:"The ID of the broker that has it, where there are several."`
}

// AdminSnapshotList holds snapshots of all tenants.
type AdminSnapshotList struct {
	_    struct{}        `additionalProperties:"true"`
	Data []AdminSnapshot `json:"data" nullable:"false"`
	Next string          `json:"next,omitempty" doc:"If there are more: what to give as after for the next page."`
	// Silent are the brokers that have not answered.
	Silent []string `json:"silent,omitempty" doc:"Where there are several brokers: those that did not answer in time, whose part is missing."`
}

// Snapshots has the calls about snapshots, and forks.
type Snapshots struct{ client *Client }

// SnapshotsOf returns the calls about snapshots of a client.
func SnapshotsOf(c *Client) Snapshots { return Snapshots{c} }

// Create keeps an instance as it is. It runs on.
func (s Snapshots) Create(ctx context.Context, instanceID string, req CreateSnapshotRequest) (Snapshot, error) {
	return ask[Snapshot](ctx, s.client, Request{Method: post, Path: below(instanceID, "snapshots"), Body: req})
}

// List lists a page of snapshots. The query may have label, instance_id, provider, limit and
// after.
func (s Snapshots) List(ctx context.Context, query url.Values) (SnapshotList, error) {
	return ask[SnapshotList](ctx, s.client, Request{Method: get, Path: pathSnapshots, Query: query})
}

// Get looks at a snapshot.
func (s Snapshots) Get(ctx context.Context, id string) (Snapshot, error) {
	return ask[Snapshot](ctx, s.client, Request{Method: get, Path: pathSnapshots + "/" + url.PathEscape(id)})
}

// Delete deletes a snapshot. Instances that were made from it go on.
func (s Snapshots) Delete(ctx context.Context, id string) error {
	return s.client.tell(ctx, http.MethodDelete, pathSnapshots+"/"+url.PathEscape(id), nil)
}

// Fork makes copies of an instance that go on where it stands: all of them, or none.
func (s Snapshots) Fork(ctx context.Context, instanceID string, req ForkInstanceRequest) (Fork, error) {
	return ask[Fork](ctx, s.client, Request{Method: post, Path: below(instanceID, "fork"), Body: req})
}

// Snapshots lists a page of the snapshots of all tenants. The query may have tenant, provider,
// limit and after.
func (a Admin) Snapshots(ctx context.Context, query url.Values) (AdminSnapshotList, error) {
	return ask[AdminSnapshotList](ctx, a.client, Request{Method: get, Path: adminPath("snapshots"), Query: query})
}

// DeleteSnapshot deletes a snapshot of any tenant.
func (a Admin) DeleteSnapshot(ctx context.Context, id string) error {
	return a.client.tell(ctx, http.MethodDelete, adminPath("snapshots", id), nil)
}

const pathSnapshots = "/api/v1/snapshots"
