package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// refusesAndFills refuses each creation, and the disk of the journal is full from then on.
func refusesAndFills(m *memory) func(context.Context, sdk.CreateRequest) error {
	return func(context.Context, sdk.CreateRequest) error {
		m.fill(true)
		return sdk.Errorf(sdk.CodeNotAllowed, "no")
	}
}

// What a session had before, and whose end the journal has not taken, is not found in the
// place of what was acknowledged since.
func TestAnEndThatTheJournalHasNotTakenCostsNoSessionItsInstance(t *testing.T) {
	for name, test := range map[string]struct {
		left   bool // an earlier process has left a record
		before func(t *testing.T, s *instance.Service, cloud *instancetest.Provider, m *memory)
	}{
		"a creation that failed": {
			before: func(t *testing.T, s *instance.Service, cloud *instancetest.Provider, m *memory) {
				t.Helper()
				cloud.OnCreate = refusesAndFills(m)
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assertCode(t, err, sdk.CodeUnavailable)
				cloud.OnCreate = nil
			},
		},
		"one of an earlier process that is gone": {
			left: true,
			before: func(t *testing.T, s *instance.Service, cloud *instancetest.Provider, m *memory) {
				t.Helper()
				m.fill(true)
				time.Sleep(2 * time.Minute) // of the bubble: no list is that late
				reconciled(t, s, cloud)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				if test.left {
					assert.NilError(t, m.Write(t.Context(), made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.ID.Session = "s" })))
				}
				s := serve(instancetest.Catalog{cloud}, m, m.past(), nil)
				defer s.Shutdown(t.Context())
				test.before(t, s, cloud, m)
				m.fill(false)
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.NilError(t, err)

				past := m.past()
				assert.Assert(t, cmp.Len(past.Records, 1), "the end before is durable when the next one is acknowledged")
				after := serve(instancetest.Catalog{cloud}, m, past, nil) // as after a crash
				defer after.Shutdown(t.Context())
				reconciled(t, after, cloud)
				_, err = after.Get(t.Context(), acme, info.ID.String())
				assert.NilError(t, err)
				assert.Check(t, cmp.Len(cloud.Live(), 1))
			})
		})
	}
}

// What the journal has counts in the next process; so it counts in this one.
func TestWhatTheJournalHasNotLetGoCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m, keeper := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}, oneEach(t)
		s := serve(instancetest.Catalog{cloud}, m, instance.Past{}, keeper)
		defer s.Shutdown(t.Context())
		cloud.OnCreate = refusesAndFills(m)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "a"})
		assertCode(t, err, sdk.CodeUnavailable)
		cloud.OnCreate = nil
		time.Sleep(2 * time.Second) // of the bubble
		synctest.Wait()
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)

		m.fill(false)
		time.Sleep(2 * time.Second) // the reaper writes it
		synctest.Wait()
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "b"})
		assert.NilError(t, err)
		next := oneEach(t)
		past := m.past()
		for _, r := range past.Records {
			next.Adopt(r.ID.Tenant, r.Provider, r.Released)
		}
		assert.Equal(t, usedOf(next, "acme", quota.MaxInstances), 1.0, "of 1, also after a crash")
	})
}
