package instance_test

import (
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

// A creation that was tried twice may have made two, of which the owner was told of
// one. Which of them a cloud lists first says nothing.
func TestATwinThatIsListedFirstDoesNotTakeThePlaceOfWhatWasAcknowledged(t *testing.T) {
	const name = "aaaaaaaaaaaaaaaaaaaa"
	for title, test := range map[string]struct {
		change func(*instance.Record)
		comes  bool     // the list has it two seconds later
		early  sdk.Code // of Get before that
		late   sdk.Code // of Get two minutes after that
	}{
		"it is listed later: adopted": {
			change: func(*instance.Record) {}, comes: true, early: sdk.CodeUnavailable,
		},
		"it never is: gone after a while": {
			change: func(*instance.Record) {}, early: sdk.CodeUnavailable, late: sdk.CodeNotFound,
		},
		"given up, and listed later: destroyed": {
			change: func(r *instance.Record) { r.Ending = true }, comes: true, early: sdk.CodeNotFound, late: sdk.CodeNotFound,
		},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				r := made(name, func(r *instance.Record) {
					r.TTL, r.Expires = time.Hour, time.Now().Add(time.Hour)
					test.change(r)
				})
				cloud.Adopt(sdk.Instance{ID: "twin", Labels: map[string]string{sdk.LabelBroker: brokerID, sdk.LabelInstance: name}})
				m, keeper := &memory{}, oneEach(t)
				assert.NilError(t, m.Write(t.Context(), r))
				s := serve(instancetest.Catalog{cloud}, m, m.past(), keeper)
				defer s.Shutdown(t.Context())

				reconciled(t, s, cloud)
				_, err := s.Get(t.Context(), acme, r.ID.String())
				assertCode(t, err, test.early)
				assert.Check(t, cmp.Len(cloud.Live(), 0), "the twin is an orphan")
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)

				if test.comes {
					in(cloud, name, brokerID)
				}
				time.Sleep(2 * time.Minute) // of the bubble
				reconciled(t, s, cloud)
				_, err = s.Get(t.Context(), acme, r.ID.String())
				assertCode(t, err, test.late)
				left := 0
				if test.late == "" {
					left = 1
				}
				assert.Check(t, cmp.Len(cloud.Live(), left))
				assert.Check(t, cmp.Len(m.past().Records, left))
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), float64(left))
			})
		})
	}
}
