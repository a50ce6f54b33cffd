package instance_test

import (
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What a broker before this one has left counts from the start, before anybody has
// asked the provider, until it is known to be gone.
func TestInstancesThatOutlivedTheBrokerCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		kept := made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})
		gone := made("bbbbbbbbbbbbbbbbbbbb", func(r *instance.Record) { r.Ending = true })
		for _, r := range []instance.Record{kept, gone} {
			cloud.Adopt(sdk.Instance{ID: r.Made, Labels: map[string]string{sdk.LabelBroker: brokerID, sdk.LabelInstance: r.ID.Instance}})
		}
		keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Instances: 2}}}})
		assert.NilError(t, err)
		s := instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{cloud}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
			Past: instance.Past{Records: []instance.Record{kept, gone}}, BrokerID: brokerID, Quotas: keeper,
		})
		defer s.Shutdown(t.Context())
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		reconciled(t, s, cloud)
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
		assert.NilError(t, err)
		assert.NilError(t, s.Destroy(t.Context(), acme, kept.ID.String()))
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
	})
}

func TestACreationThatACrashCutOffIsResumedWithinTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		cut := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Made, r.Claimed = "", true })
		keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Instances: 1}}}})
		assert.NilError(t, err)
		s := instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{cloud}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
			Past: instance.Past{Records: []instance.Record{cut}}, BrokerID: brokerID, Quotas: keeper,
		})
		defer s.Shutdown(t.Context())
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: cut.ID.Session})
		assert.NilError(t, err)
		assert.Equal(t, info.ID, cut.ID)
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
	})
}
