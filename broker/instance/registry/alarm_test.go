package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
)

// time.Sleep in this file is of the bubble's clock.

func TestAnAlarmRingsAtTheEndThatNoUseMoves(t *testing.T) {
	renew := func(after, ttl time.Duration) func(*fixture, *registry.Entry) {
		return func(f *fixture, e *registry.Entry) {
			time.Sleep(after)
			_, _, err := f.Renew(e.ID().Tenant, e.ID().String(), ttl, maxLifetime)
			assert.NilError(f.t, err)
		}
	}
	shorten := func(f *fixture, e *registry.Entry) { e.Shorten(time.Now().Add(20 * time.Second)) }
	for name, test := range map[string]struct {
		fixed bool
		acts  []func(*fixture, *registry.Entry)
		rings time.Duration // after the creation
	}{
		"the maximum lifetime":                  {false, nil, maxLifetime},
		"which a renewal does not move":         {false, []func(*fixture, *registry.Entry){renew(0, time.Second)}, maxLifetime},
		"nor a use":                             {true, []func(*fixture, *registry.Entry){func(_ *fixture, e *registry.Entry) { e.Drop(true) }}, time.Minute},
		"what is paid for":                      {false, []func(*fixture, *registry.Entry){shorten}, 20 * time.Second},
		"a fixed end":                           {true, nil, time.Minute},
		"a fixed end that was moved later":      {true, []func(*fixture, *registry.Entry){renew(50*time.Second, 0)}, 110 * time.Second},
		"and once more":                         {true, []func(*fixture, *registry.Entry){renew(50*time.Second, 0), renew(50*time.Second, 0)}, 160 * time.Second},
		"a fixed end that was moved earlier":    {true, []func(*fixture, *registry.Entry){renew(0, 10*time.Second)}, 10 * time.Second},
		"later, and earlier":                    {true, []func(*fixture, *registry.Entry){renew(0, time.Hour), renew(0, 10*time.Second)}, 10 * time.Second},
		"earlier, and later":                    {true, []func(*fixture, *registry.Entry){renew(0, 10*time.Second), renew(9*time.Second, time.Minute)}, 69 * time.Second},
		"a fixed end that is not paid for":      {true, []func(*fixture, *registry.Entry){shorten}, 20 * time.Second},
		"a renewal beyond the maximum lifetime": {true, []func(*fixture, *registry.Entry){renew(50*time.Second, maxLifetime)}, maxLifetime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				e := f.runningFixed(test.fixed)
				began := time.Now()
				var rang []time.Duration
				defer e.WhenOver(func() { rang = append(rang, time.Since(began)) })()
				unheard := e.WhenOver(func() { t.Error("an alarm that was stopped") })
				unheard()
				_, err := f.Hold(e.ID().Tenant, e.ID().String())
				assert.NilError(t, err)
				for _, act := range test.acts {
					act(f, e)
				}
				time.Sleep(2 * maxLifetime)
				synctest.Wait()
				assert.DeepEqual(t, rang, []time.Duration{test.rings})
			})
		})
	}
}

// runningFixed is running with an end that is fixed, or not.
func (f *fixture) runningFixed(fixed bool) *registry.Entry {
	f.t.Helper()
	claim := claimOf(f.id("t", "s"), f.provider)
	claim.Spec.Fixed = fixed
	claimed, err := f.Claim(claim)
	assert.NilError(f.t, err)
	e := f.made(claimed.Entry)
	e.Created(registry.Ours, nil, nil)
	e.StopWaiting(false)
	return e
}
