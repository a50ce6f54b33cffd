package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// origins are what a provider was told of why it is called.
type origins struct {
	mu                 sync.Mutex
	created, destroyed []origin.Origin
}

func (o *origins) of(p *instancetest.Provider) {
	p.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.created = append(o.created, origin.Of(ctx))
		return nil
	}
	p.OnDestroy = func(ctx context.Context, _ string) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.destroyed = append(o.destroyed, origin.Of(ctx))
		return nil
	}
}

func TestAProviderIsToldWhyItIsCalled(t *testing.T) {
	asked := origin.Origin{Cause: origin.Request, Tenant: "acme", RequestID: "r-1"}
	for cause, end := range map[origin.Cause]func(t *testing.T, ctx context.Context, s *instance.Service){
		origin.Request: func(t *testing.T, ctx context.Context, s *instance.Service) {
			info, _, err := s.Create(ctx, acme, instance.CreateRequest{})
			assert.NilError(t, err)
			assert.NilError(t, s.Destroy(ctx, acme, info.ID.String()))
		},
		origin.NotKept: func(t *testing.T, ctx context.Context, s *instance.Service) {
			_, err := s.Run(ctx, acme, run("py"))
			assert.NilError(t, err)
		},
		origin.Expired: func(t *testing.T, ctx context.Context, s *instance.Service) {
			_, _, err := s.Create(ctx, acme, instance.CreateRequest{TTL: time.Minute})
			assert.NilError(t, err)
			time.Sleep(2 * time.Minute) // in the bubble, where it costs nothing
		},
		origin.Shutdown: func(t *testing.T, ctx context.Context, s *instance.Service) {
			_, _, err := s.Create(ctx, acme, instance.CreateRequest{TTL: time.Hour})
			assert.NilError(t, err)
			s.Shutdown(ctx)
		},
	} {
		t.Run(string(cause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen origins
				first := &instancetest.Provider{Name: "first"}
				seen.of(first)
				s := instance.NewService(instance.Options{
					Catalog: instancetest.Catalog{first}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
				})
				defer s.Shutdown(t.Context())
				end(t, origin.With(t.Context(), asked), s)
				synctest.Wait()
				assert.DeepEqual(t, seen.created, []origin.Origin{asked})
				want := origin.Origin{Cause: cause}
				if cause == origin.Request {
					want = asked
				}
				assert.DeepEqual(t, seen.destroyed, []origin.Origin{want})
			})
		})
	}
}
