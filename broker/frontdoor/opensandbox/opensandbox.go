// Package opensandbox is the front door for OpenSandbox: its lifecycle API, and below the
// address that this hands out for each port of a sandbox what its daemons execd and egress
// answer there, so that its unmodified SDKs work with every provider
// (docs/front-doors/opensandbox.md).
//
// What goes over the wire is taken from OpenSandbox's public API texts and SDKs (snapshot
// 4db3a993 of 2026-06-12, and the JavaScript package 0.1.11). Start with lifecycle.go;
// the files execd_*.go are what stands behind port 44772, egress.go behind 18080, with
// policy.go for what sandboxes may reach, and ports.go behind all others. snapshots.go has the
// snapshots. problem.go puts refusals into OpenSandbox's form.
//
// A sandbox is an instance of the tenant with a fixed end. Its ID is the last part of the
// instance's, and what its creator said and nobody else needs is kept as the instance's
// note. A terminal is a command, whose ID is that of its session (execd_pty.go): a restart
// loses no more of it than its client's connection.
package opensandbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Name of the door.
const Name = "opensandbox"

// Instances makes and uses sandboxes; instance.Service is it.
type Instances interface {
	Create(ctx context.Context, who tenant.Tenant, req instance.CreateRequest) (instance.Info, bool, error)
	Named(ctx context.Context, name string) (instance.Info, error)
	ListEverywhere(ctx context.Context, who tenant.Tenant, req instance.ListRequest) (instance.Page, error)
	Renew(ctx context.Context, who tenant.Tenant, id string, ttl time.Duration) (instance.Info, error)
	SetNetwork(ctx context.Context, who tenant.Tenant, id string, asked network.Request) (instance.Info, error)
	Relabel(ctx context.Context, who tenant.Tenant, id string, change func(labels map[string]string)) (instance.Info, error)
	Pause(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Resume(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
	Destroy(ctx context.Context, who tenant.Tenant, id string) error
	Execute(ctx context.Context, who tenant.Tenant, id string, req instance.ExecuteRequest) (instance.Execution, error)
	Interrupt(ctx context.Context, who tenant.Tenant, instanceID, executionID string) error
}

// Door answers OpenSandbox's clients.
type Door struct {
	api       *rest.API
	instances Instances
	snapshots Snapshots
	tenants   frontdoor.Tenants
	tokens    tokens
	settings  atomic.Pointer[frontdoor.Settings]
	running   running
	seats     seats

	operations operations
	// policies are held by who changes what a sandbox reaches, by its ID.
	policies keylock.Locks[string]
}

var _ frontdoor.Door = (*Door)(nil)

// The two mounts of routes that clients find by the address of a port.
var mounts = []string{"", "/v1"}

// Add adds the door to a server. It is closed until Apply opens it. The key signs the
// tokens of sandboxes, and outlives the process. Without answers, which may be nil, there
// are no operations.
func Add(server *rest.Server, instances Instances, snapshots Snapshots, tenants frontdoor.Tenants, answers Answers, key []byte) *Door {
	d := &Door{instances: instances, snapshots: snapshots, tenants: tenants, tokens: newTokens(key)}
	d.operations.kept = answers
	d.settings.Store(&frontdoor.Settings{})
	d.api = server.NewAPI(rest.APIOptions{Name: Name, Authenticate: d.authenticate, Problem: problem})
	d.registerLifecycle()
	d.registerSnapshots()
	for _, mount := range mounts {
		base := mount + "/sandboxes/{id}/proxy/"
		execd{d}.register(base + portExecd)
		d.registerEgress(base + portEgress)
		d.registerPorts(base + "{port}") // the last: what else has a port is a program's
	}
	return d
}

// Apply implements frontdoor.Door.
func (d *Door) Apply(s *frontdoor.Settings) {
	if s == nil {
		d.api.Mount("")
		return
	}
	d.settings.Store(s)
	d.api.Mount(s.Path)
}

// sandbox returns the tenant's sandbox of that ID, SB013 for any other. The error is SB009
// as long as nobody knows, after a restart, whether it is there.
func (d *Door) sandbox(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error) {
	info, err := d.instances.Named(ctx, id)
	if frontdoor.Elsewhere(info, err) {
		return instance.Info{}, err
	}
	if info.ID.Tenant != who.Name || info.FrontDoor != Name || errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) {
		return instance.Info{}, noSandbox()
	}
	return info, err
}

func noSandbox() error {
	return sdk.Errorf(sdk.CodeNotFound, "There is no such sandbox. It may have ended.")
}
