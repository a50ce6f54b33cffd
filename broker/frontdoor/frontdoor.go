// Package frontdoor has what all front doors share. A front door is an API of another
// system, served by this broker, so that the unmodified clients of that system work with
// every provider. Each is a package below this one, which stands on the room of the REST
// API (broker/api/rest) and on the flow of instances alone, and keeps nothing that a
// restart would lose (docs/decisions/0021-front-doors.md).
//
// A door is one constructor: it registers its operations with the server and returns a
// Door, which takes its settings whenever they change. broker/api lists the doors.
package frontdoor

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Settings are what the operator says of a door.
type Settings struct {
	// Path is the prefix of its paths, such as /ragflow, on the listener of all APIs;
	// empty where it has none there.
	Path string
	// Listen is where it has a listener of its own; empty for none.
	Listen string
	// Tenant by name of those who give no token; empty where they are refused.
	Tenant string
	// Provider by label that its instances are made on; empty for the usual one.
	Provider string
	// Wait is how long a request may wait for its turn.
	Wait time.Duration
	// Timeout of one run, for doors whose clients name none.
	Timeout time.Duration
	// Lease is how long a sandbox lives after each use, for doors whose clients say nothing
	// of it, and Template what it is made of; empty for the provider's usual one.
	Lease    time.Duration
	Template string
	// Address is where clients reach the broker: a host, perhaps with a port and a path, and
	// where clients take a scheme with that. Empty for the one that a request was sent to.
	Address string
	// Images leads from names of images to templates.
	Images map[string]string
	// Templates leads from names of templates, as clients have them, to those of providers.
	Templates map[string]string
	// Domain has hosts at which the API and the ports of its sandboxes are, and perhaps a
	// port; empty for none.
	Domain string
	// PublicPorts has ports of sandboxes answer who has no token, unless their creators
	// say otherwise.
	PublicPorts bool
	// Network is what runs in the sandboxes may reach: config.NetworkDeny or
	// config.NetworkAllow; empty where nothing is promised.
	Network string
}

// New returns the settings of a block of the configuration.
func New(c config.FrontDoor) Settings {
	return Settings{
		Path: c.Path, Listen: c.Listen, Tenant: c.Tenant, Provider: c.Provider, Wait: c.Wait, Timeout: c.Timeout,
		Lease: c.Lease, Template: c.Template, Address: c.Address, Images: c.Images, Network: c.Network,
		Templates: c.Templates, Domain: c.Domain, PublicPorts: c.PublicPorts,
	}
}

// Door is one front door.
type Door interface {
	// Apply puts settings in force for requests that come from now on; nil closes the
	// door.
	Apply(s *Settings)
}

// Tenants knows who may ask; generation.Catalog is it.
type Tenants interface {
	Authenticate(token string) (tenant.Tenant, bool)
	// Tenant by name.
	Tenant(name string) (tenant.Tenant, bool)
}

// Elsewhere reports whether a sandbox is another broker's, or may be: it was not found here, and
// is not known to be gone.
func Elsewhere(info instance.Info, err error) bool {
	return err != nil && info.ID == (instance.ID{}) && sdk.CodeOf(err) != sdk.CodeNotFound
}

// Resumable is a failure after which the same request, with the same Idempotency-Key, goes
// on where this one ended: its answer is not kept.
type Resumable struct{ Err error }

// Error implements error.
func (r Resumable) Error() string { return r.Err.Error() }

// Unwrap returns the failure.
func (r Resumable) Unwrap() error { return r.Err }

// HasBegun says so to the API.
func (r Resumable) HasBegun() bool { return false }
