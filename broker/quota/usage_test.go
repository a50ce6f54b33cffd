package quota_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

func TestAllHasTheTenantsOfTheRulesAndWhoHasUsedSomething(t *testing.T) {
	k := keeper(t, quota.Limits{ExecutionsPerDay: 5}, at(noon()))
	guest := execution(time.Second)
	guest.Tenant = "a-guest"
	admit(t, k, guest)
	admit(t, k, instanceOn("cloud"))
	var names []string
	for _, usage := range k.All() {
		names = append(names, usage.Tenant)
		assert.DeepEqual(t, usage, k.Usage(usage.Tenant))
	}
	assert.DeepEqual(t, names, []string{"a-guest", "acme"})
	k.Forget(func(tenant string) bool { return tenant == "acme" })
	assert.Equal(t, len(k.All()), 1)
}

func TestTheCostOfAllIsWhatInstancesHaveLived(t *testing.T) {
	clock := noon()
	k := keeper(t, quota.Limits{Concurrent: 1}, at(clock))
	wants := func(amount float64) {
		t.Helper()
		assert.Equal(t, k.Totals().Cost.Amount(), amount)
	}
	assert.Assert(t, k.Totals().Priced)
	a, b := admit(t, k, instanceOn("cloud")), admit(t, k, instanceOn("cloud"))
	admit(t, k, instanceOn("local")).Instance.Release()
	wants(0)
	clock.forward(10 * time.Second)
	wants(0.2)
	a.Instance.Release()
	clock.forward(10 * time.Second)
	wants(0.3)
	b.Instance.Cancel()
	wants(0.1)
	clock.forward(time.Hour)
	wants(0.1)
	k.Adopt("acme", "cloud", false).Take()
	clock.forward(time.Minute)
	wants(0.7)
	clock.forward(-time.Hour)
	wants(0.7)

	k.SetRules(quota.Rules{})
	assert.Assert(t, k.Totals().Priced, "one with a price is alive")
	free := keeper(t, quota.Limits{}, func(o *quota.Options) { o.Rules.Costs = map[string]quota.Money{"local": 0} })
	assert.Assert(t, !free.Totals().Priced)
}

func TestTotalsCountWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, quota.Limits{Concurrent: 1})
		running := admit(t, k, execution(time.Second))
		waiting := execution(time.Second)
		waiting.Wait = time.Minute
		done := make(chan struct{})
		go func() {
			defer close(done)
			grant, err := k.Admit(context.Background(), waiting)
			assert.Check(t, err)
			grant.Release()
		}()
		synctest.Wait()
		assert.Equal(t, k.Totals().Waiting, 1)
		running.Release()
		<-done
		assert.Equal(t, k.Totals().Waiting, 0)
	})
}
