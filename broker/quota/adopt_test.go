package quota_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// What quotas.md says of an instance in a cloud that outlives a broker.
func TestAnInstanceThatOutlivedABrokerPaysFromTheStartOfTheNextOne(t *testing.T) {
	d, c := &disk{}, noon()
	limits := quota.Limits{MoneyPerDay: quota.MoneyOf(100)}
	k := keeper(t, limits, on(d), at(c))
	admit(t, k, instanceOn("cloud"))
	assert.Equal(t, d.acme().MoneyDay, quota.MoneyOf(0.6), "a minute in advance")

	// The broker is killed, and nobody starts it for an hour.
	killed := &disk{records: map[string]quota.Record{"acme": d.acme()}}
	c.forward(time.Hour)
	next := keeper(t, limits, on(killed), at(c))
	assert.Equal(t, used(t, next, quota.MoneyPerDay), 0.6)
	life := next.Adopt("acme", "cloud", false)
	assert.Equal(t, used(t, next, quota.MoneyPerDay), 1.2)

	// The provider says ten minutes later that it has it, and then it is used.
	c.forward(10 * time.Minute)
	until, err := life.Renew(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, until, c.Now().Add(time.Minute))
	assert.Equal(t, used(t, next, quota.MoneyPerDay), 0.6+6.6)
	c.forward(time.Minute)
	life.Release()
	assert.Equal(t, used(t, next, quota.MoneyPerDay), 0.6+6.6)
}
