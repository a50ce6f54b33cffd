package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnOrphanThatIsListedAfterItsEndCountsForNobody(t *testing.T) {
	for name, past := range map[string]instance.Past{
		"known from a record": {Records: []instance.Record{made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Ending = true })}},
		"known to nobody":     {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				cloud.OnDestroy = func(context.Context, string) error {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				cloud.Adopt(sdk.Instance{ID: "fake-aaaaaaaaaaaaaaaaaaaa", Labels: map[string]string{
					sdk.LabelBroker: brokerID, sdk.LabelTenant: "acme", sdk.LabelInstance: "aaaaaaaaaaaaaaaaaaaa",
				}})
				s, keeper := withOneInstance(t, cloud, past)
				defer s.Shutdown(t.Context())
				reconciled(t, s, cloud)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
				assert.NilError(t, err)
			})
		})
	}
}
