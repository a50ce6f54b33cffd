package instance_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// time.Sleep in this file is of the bubble's clock.

func TestNothingButARenewalMovesAFixedEnd(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxIdle = time.Minute
	inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnInterrupt = func(context.Context, string, string) error { return nil } // which is a capability
		destroyed := watchEnds(first)
		info := create(t, s, instance.CreateRequest{Session: "s", TTL: time.Minute, Fixed: true})
		assert.Check(t, info.Fixed)
		assert.Equal(t, info.ExpiresAt, info.CreatedAt.Add(time.Minute))
		assert.Equal(t, info.Idle, 24*time.Hour, "the maximum lifetime")
		for range 5 {
			time.Sleep(10 * time.Second)
			assert.NilError(t, execute(t, s, info))
			lease, err := s.Lease(t.Context(), acme, info.ID.String(), sdk.CapabilityInterrupt)
			assert.NilError(t, err)
			assert.Equal(t, lease.Info().ExpiresAt, info.ExpiresAt)
			lease.Release()
			again, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
			assert.NilError(t, err)
			assert.Check(t, !created)
			assert.Equal(t, again.ExpiresAt, info.ExpiresAt)
		}
		renewed, err := s.Renew(t.Context(), acme, info.ID.String(), 2*time.Hour) // beyond the idle limit of others
		assert.NilError(t, err)
		end := time.Now().Add(2 * time.Hour)
		assert.Equal(t, renewed.ExpiresAt, end)
		time.Sleep(time.Until(end) - 1)
		get(t, s, info)
		assert.Equal(t, destroyed.times.Load(), int32(0))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestAFixedInstanceEndsWithWhatRunsInIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		gone := make(chan struct{})
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			select {
			case <-gone:
			case <-ctx.Done():
			}
			return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeNotFound, "the sandbox is gone")
		}
		var at time.Time
		var cause origin.Cause
		first.OnDestroy = func(ctx context.Context, _ string) error {
			at, cause = time.Now(), origin.Of(ctx).Cause
			close(gone)
			return nil
		}
		info := create(t, s, instance.CreateRequest{TTL: time.Minute, Fixed: true})
		execution, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python", Timeout: 5 * time.Minute})
		assert.NilError(t, err)
		assert.Equal(t, execution.Result.Status, sdk.StatusCancelled)
		assert.Equal(t, execution.Result.Detail, "the instance's time was over during the execution")
		assert.Equal(t, at, info.ExpiresAt)
		assert.Equal(t, cause, origin.Expired)
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.ErrorContains(t, err, "its time was over")
	})
}

// A watch or a transfer has no end of its own.
func TestAUseFollowsTheEndOfAFixedInstance(t *testing.T) {
	for name, test := range map[string]struct {
		renewals []time.Duration // one every 50 s
		ends     time.Duration   // after the creation
	}{
		"that nobody moves":            {nil, time.Minute},
		"that is moved later":          {[]time.Duration{2 * time.Minute}, 170 * time.Second},
		"that is moved later twice":    {[]time.Duration{2 * time.Minute, 2 * time.Minute}, 220 * time.Second},
		"that is moved earlier":        {[]time.Duration{time.Second}, 51 * time.Second},
		"that is moved there and back": {[]time.Duration{time.Hour, time.Second}, 101 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OnInterrupt = func(context.Context, string, string) error { return nil }
				info := create(t, s, instance.CreateRequest{TTL: time.Minute, Fixed: true})
				lease, err := s.Lease(t.Context(), acme, info.ID.String(), sdk.CapabilityInterrupt)
				assert.NilError(t, err)
				ctx, cancel := lease.Watching(t.Context())
				defer cancel()
				var group sync.WaitGroup
				group.Go(func() {
					for _, ttl := range test.renewals {
						time.Sleep(50 * time.Second)
						_, err := s.Renew(t.Context(), acme, info.ID.String(), ttl)
						assert.Check(t, err)
					}
				})
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Hour):
				}
				assert.Equal(t, time.Since(info.CreatedAt), test.ends)
				assertCode(t, lease.Fault(ctx, ctx.Err()), sdk.CodeNotFound)
				group.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0), "it is held still")
				lease.Release()
			})
		})
	}
}

func TestAFixedEndOutlivesARestart(t *testing.T) {
	for name, change := range map[string]func(*instance.Record){
		"as it was written":              func(*instance.Record) {},
		"of one that is said to be used": func(r *instance.Record) { r.Used = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				s := journalled(m, instance.Past{}, cloud)
				info := create(t, s, instance.CreateRequest{TTL: 10 * time.Minute, Fixed: true})
				renewed, err := s.Renew(t.Context(), acme, info.ID.String(), 20*time.Minute)
				assert.NilError(t, err)
				time.Sleep(time.Minute)
				assert.NilError(t, execute(t, s, info))
				s.ShutdownKeeping(t.Context())
				assert.NilError(t, m.Amend(t.Context(), info.ID, change))

				time.Sleep(time.Minute)
				next := restarted(t, m, nil, cloud)
				defer next.Shutdown(t.Context())
				after := get(t, next, info)
				assert.Check(t, after.Fixed)
				assert.Check(t, after.ExpiresAt.Equal(renewed.ExpiresAt), "%s, not %s", after.ExpiresAt, renewed.ExpiresAt)
				assert.NilError(t, execute(t, next, info))
				assert.Check(t, get(t, next, info).ExpiresAt.Equal(renewed.ExpiresAt))
				time.Sleep(time.Until(renewed.ExpiresAt) + time.Second)
				synctest.Wait()
				assert.Check(t, cmp.Len(cloud.Live(), 0))
			})
		})
	}
}

func TestCreationsForAFrontDoorThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		req   instance.CreateRequest
		code  sdk.Code
		field string
	}{
		"an idle limit and a fixed end":            {instance.CreateRequest{Fixed: true, Idle: time.Minute}, sdk.CodeInvalidRequest, "idle"},
		"a note that is too long":                  {instance.CreateRequest{Note: strings.Repeat("x", 8<<10+1)}, sdk.CodeInvalidRequest, "note"},
		"a note that is no text":                   {instance.CreateRequest{Note: "\xff"}, sdk.CodeInvalidRequest, "note"},
		"a session whose instance is not so fixed": {instance.CreateRequest{Session: "s", Fixed: true}, sdk.CodeConflict, "session_id"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
				create(t, s, instance.CreateRequest{Session: "s"})
				_, _, err := s.Create(t.Context(), acme, test.req)
				assertCode(t, err, test.code)
				assertField(t, err, test.field)
			})
		})
	}
}
