// Package deerflow is the front door for DeerFlow: its provisioner, and below the URL that
// this hands out for each sandbox what DeerFlow asks of an all-in-one sandbox, so that it
// works with every provider as it is (docs/front-doors/deerflow.md).
//
// What goes over the wire is taken from DeerFlow's client (f1f4af99 of 2026-08-22), and
// from the API document and the Python SDK of the all-in-one sandbox (1.9.4, and 0.0.30).
// Start with provisioner.go. shell.go has the shells that last, and output.go what they
// print; bash.go what runs beside them, files.go what is read and write.go what is written;
// problem.go puts refusals into the forms that both parts read.
//
// A sandbox is the instance of a session that has the client's own ID as its name. No call
// has a credential but the URL: it holds a token, which follows from the instance and ends
// with it. A shell is a command, which is found again after a restart.
package deerflow

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Name of the door.
const Name = "deerflow"

// Instances makes and uses sandboxes; instance.Service is it.
type Instances interface {
	Create(ctx context.Context, who tenant.Tenant, req instance.CreateRequest) (instance.Info, bool, error)
	Named(ctx context.Context, name string) (instance.Info, error)
	List(who tenant.Tenant, req instance.ListRequest) instance.Page
	ListEverywhere(ctx context.Context, who tenant.Tenant, req instance.ListRequest) (instance.Page, error)
	Settled(ctx context.Context, who tenant.Tenant, session, frontDoor string) (unknown []instance.Info)
	SettledEverywhere(ctx context.Context, who tenant.Tenant, frontDoor string) (unknown []instance.Info, err error)
	SessionElsewhere(ctx context.Context, who tenant.Tenant, session string) error
	Confirm(ctx context.Context, who tenant.Tenant, id string) error
	Renew(ctx context.Context, who tenant.Tenant, id string, ttl time.Duration) (instance.Info, error)
	Resume(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
	Destroy(ctx context.Context, who tenant.Tenant, id string) error
}

// Door answers DeerFlow.
type Door struct {
	api       *rest.API
	instances Instances
	tenants   frontdoor.Tenants
	tokens    tokens
	logger    hclog.Logger
	settings  atomic.Pointer[frontdoor.Settings]
	shells    shells
}

var _ frontdoor.Door = (*Door)(nil)

// Add adds the door to a server. It is closed until Apply opens it. The key signs the
// URLs of sandboxes, and outlives the process.
func Add(server *rest.Server, instances Instances, tenants frontdoor.Tenants, logger hclog.Logger, key []byte) *Door {
	d := &Door{instances: instances, tenants: tenants, logger: logger, tokens: newTokens(key)}
	d.settings.Store(&frontdoor.Settings{})
	d.api = server.NewAPI(rest.APIOptions{Name: Name, Authenticate: d.authenticate, Problem: problem})
	d.registerProvisioner()
	const base = "/s/{sandbox}/v1"
	d.registerShells(base)
	d.registerBash(base)
	d.registerFiles(base)
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

// find returns the tenant's sandbox of the ID that its client has chosen; ok says whether
// there is one that the door has made.
func (d *Door) find(who tenant.Tenant, id string) (info instance.Info, ok bool) {
	page := d.instances.List(who, instance.ListRequest{Session: id, FrontDoor: Name, Limit: 1})
	if len(page.Instances) == 0 {
		return instance.Info{}, false
	}
	return page.Instances[0], true
}

// How long it is waited, after a restart of the broker, until the provider of a sandbox has
// said whether it still has it: less than the client waits for the answer, which are 10 s,
// and 30 s for a create.
const (
	patience       = 8 * time.Second
	createPatience = 20 * time.Second
)

// known is find that waits after a restart. The error is for one of which nobody knows yet.
func (d *Door) known(ctx context.Context, who tenant.Tenant, id string, atMost time.Duration) (info instance.Info, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	unknown := d.instances.Settled(ctx, who, id, Name) // before the look, which finds what was settled meanwhile
	if info, ok = d.find(who, id); !ok && len(unknown) > 0 {
		err = errUnsettled()
	}
	if !ok && err == nil {
		err = d.instances.SessionElsewhere(ctx, who, id)
	}
	return info, ok, err
}

func errUnsettled() error {
	err := sdk.Errorf(sdk.CodeUnavailable, "The broker was restarted, and the provider of the sandbox has not said yet whether it still has it. Try again.")
	err.RetryAfter = time.Second
	return err
}

// of returns the sandbox that a URL leads to, by the token in that.
func (d *Door) of(ctx context.Context, token string) (instance.Info, error) {
	name, ok := instanceOf(token)
	if !ok {
		return instance.Info{}, errGone
	}
	info, err := d.instances.Named(ctx, name)
	if frontdoor.Elsewhere(info, err) {
		return instance.Info{}, err
	}
	if info.FrontDoor != Name || !frontdoor.Same(token, d.tokens.of(info.ID)) {
		return instance.Info{}, errGone
	}
	if err != nil && !isNotFound(err) { // the broker was restarted
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		d.instances.Settled(ctx, tenant.Tenant{Name: info.ID.Tenant}, info.ID.Session, Name)
		info, err = d.instances.Named(ctx, name)
	}
	switch {
	case isNotFound(err):
		return instance.Info{}, errGone
	case err == nil && info.Paused:
		err = errPaused
	}
	return info, err
}

var (
	errGone   = sdk.Errorf(sdk.CodeNotFound, "There is no such sandbox. It may have ended.")
	errPaused = sdk.Errorf(sdk.CodeConflict, "The sandbox is paused. Ask the provisioner for it again to resume it.")
)

func isNotFound(err error) bool { return errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) }
