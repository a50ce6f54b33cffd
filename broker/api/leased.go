package api

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// leased calls use with the provider of an instance as the interface of a
// capability, and puts its errors into words. Where the provider lacks the
// capability nothing is called.
func leased[T any](ctx context.Context, s *Server, who tenant.Tenant, id string, capability sdk.Capability, use func(ctx context.Context, provider T, instanceID string) error) error {
	lease, err := s.instances.Lease(ctx, who, id, capability)
	if err != nil {
		return err
	}
	defer lease.Release()
	provider, err := instance.Capable[T](lease)
	if err != nil {
		return err
	}
	ctx, cancel := lease.Within(ctx)
	defer cancel()
	return lease.Fault(ctx, use(ctx, provider, lease.InstanceID))
}
