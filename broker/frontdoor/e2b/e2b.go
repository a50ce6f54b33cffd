// Package e2b is the front door for E2B: its control API, and what its daemon envd and its
// code interpreter answer in a sandbox, so that its unmodified SDKs work with every
// provider (docs/front-doors/e2b.md).
//
// What goes over the wire is taken from E2B's public API texts and from its SDKs (npm e2b
// 2.51.0 and 2.45.0, @e2b/code-interpreter 2.8.0). Start with control.go. lists.go shows the
// sandboxes in pages. envd.go and the files beside it that begin with envd are what stands
// behind port 49983, interpreter.go behind 49999, and ports.go behind all others. snapshots.go
// has the snapshots, forks.go the forks, and egress.go what sandboxes may reach. problem.go
// puts refusals into E2B's form.
//
// A sandbox is an instance of the tenant with a fixed end. Its ID is the last part of the
// instance's, and what its creator said and nobody else needs is kept as the instance's
// note. The messages that go over the Connect protocol are in package envdv1.
package e2b

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Name of the door.
const Name = "e2b"

// Instances makes and uses sandboxes; instance.Service is it.
type Instances interface {
	Create(ctx context.Context, who tenant.Tenant, req instance.CreateRequest) (instance.Info, bool, error)
	Named(ctx context.Context, name string) (instance.Info, error)
	ListEverywhere(ctx context.Context, who tenant.Tenant, req instance.ListRequest) (instance.Page, error)
	ListAll(owner string, req instance.ListRequest) instance.Page
	SetNetwork(ctx context.Context, who tenant.Tenant, id string, asked network.Request) (instance.Info, error)
	Renew(ctx context.Context, who tenant.Tenant, id string, ttl time.Duration) (instance.Info, error)
	Pause(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Resume(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
	Destroy(ctx context.Context, who tenant.Tenant, id string) error
	Execute(ctx context.Context, who tenant.Tenant, id string, req instance.ExecuteRequest) (instance.Execution, error)
}

// Snapshots keeps sandboxes as they are; snapshot.Service is it.
type Snapshots interface {
	Make(ctx context.Context, who tenant.Tenant, instanceID string, req snapshot.MakeRequest) (snapshot.Info, bool, error)
	Get(who tenant.Tenant, id string) (snapshot.Info, error)
	ListEverywhere(ctx context.Context, who tenant.Tenant, req snapshot.ListRequest) (snapshot.Page, error)
	Delete(ctx context.Context, who tenant.Tenant, id string) error
	Source(who tenant.Tenant, id string, req *instance.CreateRequest) error
	Fork(ctx context.Context, who tenant.Tenant, instanceID string, req snapshot.ForkRequest) ([]instance.Info, error)
}

// Door answers E2B's clients.
type Door struct {
	api       *rest.API
	instances Instances
	snapshots Snapshots
	tenants   frontdoor.Tenants
	tokens    tokens
	settings  atomic.Pointer[frontdoor.Settings]
	// domain is what hosts end in that are this door's; empty for none.
	domain   atomic.Pointer[string]
	watchers watchers
	// resumes are those that traffic has begun, by the ID of the instance.
	resumes singleflight.Group
	counts  frontdoor.Counts[contextKey]
}

var _ frontdoor.Door = (*Door)(nil)

// Add adds the door to a server. It is closed until Apply opens it. The key signs the
// tokens of sandboxes, and outlives the process.
func Add(server *rest.Server, instances Instances, snapshots Snapshots, tenants frontdoor.Tenants, key []byte) *Door {
	d := &Door{instances: instances, snapshots: snapshots, tenants: tenants, tokens: newTokens(key)}
	d.settings.Store(&frontdoor.Settings{})
	d.domain.Store(new(string))
	d.api = server.NewAPI(rest.APIOptions{Name: Name, Hosts: d.ownHost, Authenticate: d.authenticate, Problem: problem})
	d.registerControl()
	d.registerSnapshots()
	envd{d}.register()
	interpreter{d}.register()
	d.registerPorts()
	return d
}

// Apply implements frontdoor.Door.
func (d *Door) Apply(s *frontdoor.Settings) {
	if s == nil {
		d.domain.Store(new(string))
		d.api.Mount("")
		return
	}
	d.settings.Store(s)
	domain := hostWithoutPort(s.Domain)
	d.domain.Store(&domain)
	d.api.Mount(s.Path)
}

// sandbox returns the tenant's sandbox of that ID, SB013 for any other. The error is SB009
// as long as nobody knows, after a restart, whether it is there.
func (d *Door) sandbox(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error) {
	info, err := d.instances.Named(ctx, id)
	if frontdoor.Elsewhere(info, err) {
		return instance.Info{}, err
	}
	if info.ID.Tenant != who.Name || info.FrontDoor != Name || isNotFound(err) {
		return instance.Info{}, noSandbox()
	}
	return info, err
}

func noSandbox() error {
	return sdk.Errorf(sdk.CodeNotFound, "The sandbox was not found. It may have ended.")
}
