package instance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A provider that is only tried may have another account, or be another plugin: what it
// lacks is not gone.
func TestAProviderThatIsNotInForceWritesNothingOff(t *testing.T) {
	for name, tried := range map[string]*instancetest.Provider{
		"another account":                    {Name: "cloud", Cloud: true},
		"another plugin, without an account": {Name: "cloud"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				record := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) {})
				cloud, journal := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				assert.NilError(t, journal.Write(t.Context(), record))
				in(cloud, record.ID.Instance, brokerID)
				var down atomic.Bool
				down.Store(true)
				cloud.OnList = func(context.Context) error {
					if down.Load() {
						return sdk.Errorf(sdk.CodeUnavailable, "down")
					}
					return nil
				}
				s := journalled(journal, journal.past(), cloud)
				defer s.Shutdown(t.Context())
				time.Sleep(70 * time.Second) // longer than a list may be late
				reconciled(t, s, tried)
				assert.Check(t, is.Len(journal.past().Records, 1), "%v", journal.past().Ended)
				_, err := s.Get(t.Context(), acme, record.ID.String())
				assertCode(t, err, sdk.CodeUnavailable)

				down.Store(false)
				reconciled(t, s, cloud)
				_, err = s.Get(t.Context(), acme, record.ID.String())
				assert.NilError(t, err)
			})
		})
	}
}

// Once it is in force, its word counts, and at once.
func TestWhatAProviderLacksIsGoneOnceItIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "cloud", Cloud: true}
		older.OnList = func(context.Context) error { return sdk.Errorf(sdk.CodeUnavailable, "down") }
		record := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Created = r.Created.Add(-time.Hour) })
		journal, c := &memory{}, &swapped{now: older}
		assert.NilError(t, journal.Write(t.Context(), record))
		s := instance.NewService(instance.Options{
			Catalog: c, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
			Journal: journal, Past: journal.past(), BrokerID: brokerID,
		})
		defer s.Shutdown(t.Context())
		reconciled(t, s, newer)
		assert.Check(t, is.Len(journal.past().Records, 1))
		c.swap(newer)
		s.InForce()
		synctest.Wait()
		assert.Check(t, is.Len(journal.past().Records, 0))
	})
}
