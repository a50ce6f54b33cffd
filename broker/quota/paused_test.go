package quota_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

func limitOf(err error) quota.Limit {
	if refusal, ok := errors.AsType[*quota.Refusal](err); ok {
		return refusal.Limit
	}
	return ""
}

func TestAPausedInstanceCountsAmongThePausedOnes(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 1, Paused: 1})
	counts := func(instances, paused float64) {
		t.Helper()
		assert.Equal(t, used(t, k, quota.MaxInstances), instances)
		assert.Equal(t, used(t, k, quota.MaxPaused), paused)
	}
	first := admit(t, k, instanceOn("local")).Instance
	assert.NilError(t, first.ClaimPause())
	counts(1, 1)
	assert.Check(t, !first.Paused(), "its provider has not said so yet")
	first.Settle(true)
	counts(0, 1)
	assert.Check(t, first.Paused())
	assert.NilError(t, first.ClaimPause(), "it takes no second place")
	first.Settle(true)
	counts(0, 1)

	second := admit(t, k, instanceOn("local")).Instance
	assert.Equal(t, limitOf(second.ClaimPause()), quota.MaxPaused)
	counts(1, 1)
	err := first.ClaimResume()
	assert.Equal(t, limitOf(err), quota.MaxInstances)
	assert.Error(t, err, "SB008: the quota max_instances = 1 does not allow more: 1 in use")
	counts(1, 1)
	second.Release()
	assert.NilError(t, first.ClaimResume())
	counts(1, 1)
	first.Settle(true) // the provider could not
	counts(0, 1)
	assert.NilError(t, first.ClaimResume())
	first.Settle(false)
	counts(1, 0)

	assert.NilError(t, first.ClaimPause())
	first.Release() // in the middle of it
	counts(0, 0)
	first.Settle(true)
	counts(0, 0)
	left := k.Adopt("acme", "local", true)
	counts(0, 1)
	left.Release()
	counts(0, 0)
	var none *quota.Instance
	assert.NilError(t, errors.Join(none.ClaimPause(), none.ClaimResume()))
	none.Settle(true)
	assert.Check(t, !none.Paused())
}

func TestWhoWaitsForAnInstanceGetsThePlaceOfAPausedOne(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 1})
	first := admit(t, k, instanceOn("local")).Instance
	d := waiting(instanceOn("local"), time.Minute)
	got := make(chan error, 1)
	go func() {
		_, err := k.Admit(context.Background(), d)
		got <- err
	}()
	assert.NilError(t, first.ClaimPause())
	first.Settle(true)
	assert.NilError(t, <-got)
	assert.Equal(t, limitOf(first.ClaimResume()), quota.MaxInstances)
}

func TestRacingPausesGrantNothingTooMuch(t *testing.T) {
	limits := quota.Limits{Instances: 5, Paused: 3}
	k := keeper(t, limits)
	var instances, paused, over atomic.Int64
	enter := func(n *atomic.Int64, most int64) {
		if n.Add(1) > most {
			over.Add(1)
		}
	}
	var group sync.WaitGroup
	for w := range 16 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(w)))
			for range 3000 {
				g, err := k.Admit(context.Background(), instanceOn("local"))
				if err != nil {
					continue
				}
				enter(&instances, limits.Instances)
				if i := g.Instance; random.IntN(3) > 0 && i.ClaimPause() == nil {
					enter(&paused, limits.Paused)
					instances.Add(-1)
					i.Settle(true)
					if random.IntN(2) == 0 || i.ClaimResume() != nil {
						paused.Add(-1)
						i.Release()
						continue
					}
					enter(&instances, limits.Instances)
					paused.Add(-1)
					i.Settle(false)
				}
				instances.Add(-1)
				g.Instance.Release()
			}
		})
	}
	group.Wait()
	assert.Equal(t, over.Load(), int64(0))
	assert.Equal(t, used(t, k, quota.MaxInstances), 0.0)
	assert.Equal(t, used(t, k, quota.MaxPaused), 0.0)
}
