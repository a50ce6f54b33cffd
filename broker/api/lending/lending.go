// Package lending is what an API needs to use an instance: its commands, files and
// ports. It lives between package rest, which it takes requests from, and package
// instance, and knows no JSON form: what an answer looks like is for the API to say, as
// package v1 does.
//
// Start with Use. The files of the package are one for each capability.
package lending

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Instances lends instances; instance.Service does.
type Instances interface {
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
}

// Use calls use with the provider of an instance as the interface of a capability,
// and puts its errors into words. Where the provider lacks the capability nothing is
// called. The context that use gets ends with ctx, when the broker stops, and with the
// instance's time.
func Use[T any](ctx context.Context, instances Instances, who tenant.Tenant, id string, capability sdk.Capability, use func(ctx context.Context, provider T, instanceID string) error) error {
	return Lend(ctx, instances, who, id, capability, (*instance.Lease).Within, func(ctx context.Context, provider T, lease *instance.Lease) error {
		return use(ctx, provider, lease.InstanceID)
	})
}

// Lend does the same for who needs the lease too, and says how long the context lives
// that use gets: (*instance.Lease).Within or (*instance.Lease).Watching.
func Lend[T any](ctx context.Context, instances Instances, who tenant.Tenant, id string, capability sdk.Capability,
	within func(*instance.Lease, context.Context) (context.Context, context.CancelFunc),
	use func(ctx context.Context, provider T, lease *instance.Lease) error,
) error {
	lease, err := instances.Lease(ctx, who, id, capability)
	if err != nil {
		return err
	}
	defer lease.Release()
	provider, err := instance.Capable[T](lease)
	if err != nil {
		return err
	}
	ctx, cancel := within(lease, ctx)
	defer cancel()
	err = use(ctx, provider, lease)
	if unheard, ok := errors.AsType[Unheard](err); ok {
		return unheard.Err
	}
	return lease.Fault(ctx, err)
}

// Unheard is a failure of whoever listens, and not of the provider: Lend returns Err as
// it is. There is no Unwrap, so that nothing on the way through the provider's calls
// takes the listener's time limit for that of the call.
type Unheard struct{ Err error }

func (u Unheard) Error() string { return u.Err.Error() }

// RanOut reports whether a call failed because the time of its own context is over,
// while that of ctx goes on. The provider has the same deadline, and its clock may
// be a moment ahead of ours.
func RanOut(ctx, own context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (own.Err() != nil || errors.Is(err, context.DeadlineExceeded))
}
