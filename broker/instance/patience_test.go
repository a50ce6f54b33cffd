package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// working does nothing for as long as its context lets it, d at most.
func working(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The limit of a creation in these tests is a minute.
func TestTheWaitForAProviderAndItsCreationShareOneTimeLimit(t *testing.T) {
	for name, test := range map[string]struct {
		ready, make time.Duration // how long each lasts
		code        sdk.Code
		took        time.Duration
	}{
		"both in time":                           {40 * time.Second, 15 * time.Second, "", 55 * time.Second},
		"one too long for what the other left":   {40 * time.Second, 25 * time.Second, sdk.CodeCreateFailed, time.Minute},
		"a creation alone":                       {0, 2 * time.Minute, sdk.CodeCreateFailed, time.Minute},
		"ready too late to make anything":        {55 * time.Second, 0, sdk.CodeUnavailable, 54 * time.Second},
		"ready when a tenth of the time is left": {54*time.Second - 1, 6 * time.Second, "", time.Minute - 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				began := time.Now()
				first.OnWait = func(ctx context.Context) error { return working(ctx, test.ready-time.Since(began)) }
				first.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error { return working(ctx, test.make) }
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assertCode(t, err, test.code)
				assert.Equal(t, time.Since(began), test.took)
				synctest.Wait()
			})
		})
	}
}

// What a request asks to wait for its turn is not taken from its creation's time.
func TestTheWaitForATurnComesOnTop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &instancetest.Provider{Name: "slow", OnCreate: func(ctx context.Context, _ sdk.CreateRequest) error {
			return working(ctx, 8*time.Second) // of 10
		}}
		keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{MaxWaiting: 1, Tenants: map[string]quota.Limits{"acme": {Instances: 1}}}})
		assert.NilError(t, err)
		s := serve(instancetest.Catalog{slow}, nil, instance.Past{}, keeper)
		defer s.Shutdown(t.Context())
		limits := instancetest.Limits()
		limits.CreateTimeout, limits.MaxWait = 10*time.Second, time.Minute
		s.SetLimits(limits)
		other, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "other"})
		assert.NilError(t, err)
		time.AfterFunc(20*time.Second, func() { _ = s.Destroy(t.Context(), acme, other.ID.String()) })
		began := time.Now()
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Wait: 30 * time.Second})
		assert.NilError(t, err)
		assert.Equal(t, time.Since(began), 28*time.Second)
	})
}
