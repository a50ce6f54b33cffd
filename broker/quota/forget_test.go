package quota_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

func TestWhoGetsTheNameOfARemovedTenantBeginsWithNothingUsed(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 2, ExecutionsPerDay: 1}, at(noon()))
	life := admit(t, k, instanceOn("local")).Instance
	run := admit(t, k, execution(time.Second)).Execution
	k.Forget(func(string) bool { return false })
	assert.Equal(t, used(t, k, quota.MaxInstances), 0.0)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	admit(t, k, execution(time.Second))
	admit(t, k, instanceOn("local"))
	// What ends of the earlier one gives the new one nothing.
	run.Start()
	run.Release()
	life.Release()
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 1.0)
	assert.Equal(t, used(t, k, quota.MaxInstances), 1.0)
}
