package instance_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A watch or a transfer has no end of its own.
func TestAUseEndsWithTheMaximumLifetime(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxLifetime = time.Hour
	limits.DefaultTTL, limits.MaxIdle = time.Minute, time.Minute
	inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnInterrupt = func(context.Context, string, string) error { return nil } // which is a capability
		info := create(t, s, instance.CreateRequest{})
		lease, err := s.Lease(t.Context(), acme, info.ID.String(), sdk.CapabilityInterrupt)
		assert.NilError(t, err)
		ctx, cancel := lease.Within(t.Context())
		defer cancel()
		<-ctx.Done()
		assert.Equal(t, time.Since(info.CreatedAt), time.Hour, "not at the end of its ttl, nor of its idle limit")
		err = lease.Fault(ctx, ctx.Err())
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
		assert.ErrorContains(t, err, "time is over")
		lease.Release()
	})
}
