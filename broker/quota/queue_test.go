package quota_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// These tests run in bubbles, where time passes when nobody has anything to do.

func waiting(d quota.Demand, wait time.Duration) quota.Demand {
	d.Wait = wait
	return d
}

func TestWhoWaitsGetsWhatBecomesFree(t *testing.T) {
	for name, d := range map[string]quota.Demand{"an execution": execution(time.Second), "an instance": instanceOn("local")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := keeper(t, quota.Limits{Instances: 1, Concurrent: 1})
				first := admit(t, k, d)
				time.AfterFunc(3*time.Second, first.Release)
				began := time.Now()
				admit(t, k, waiting(d, time.Minute)).Release()
				assert.Equal(t, time.Since(began), 3*time.Second)
				assert.Equal(t, k.Usage("acme").Waiting, 0)
			})
		})
	}
}

func TestWaitingEnds(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	for name, c := range map[string]struct {
		ctx  context.Context
		meet func(k *quota.Keeper)
		want func(err error) bool
	}{
		"when its time is over": {context.Background(), func(*quota.Keeper) {}, func(err error) bool {
			return sdk.CodeOf(err) == sdk.CodeQuotaExceeded
		}},
		"when the caller goes away": {gone, func(*quota.Keeper) { leave() }, func(err error) bool {
			return errors.Is(err, context.Canceled)
		}},
		"when waiting cannot help any more": {
			context.Background(),
			func(k *quota.Keeper) {
				k.SetRules(rules(quota.Limits{Concurrent: 1, ExecutionsPerDay: 1}))
			},
			func(err error) bool {
				var refusal *quota.Refusal
				return errors.As(err, &refusal) && refusal.Limit == quota.ExecutionsPerDay
			},
		},
		"when the limit is raised": {
			context.Background(),
			func(k *quota.Keeper) { k.SetRules(rules(quota.Limits{Concurrent: 2})) },
			func(err error) bool { return err == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeper(t, quota.Limits{Concurrent: 1})
			admit(t, k, execution(time.Second)).Execution.Start()
			outcome := make(chan error)
			go func() {
				_, err := k.Admit(c.ctx, waiting(execution(time.Second), time.Second))
				outcome <- err
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if k.Usage("acme").Waiting == 1 {
					return poll.Success()
				}
				return poll.Continue("it does not wait yet")
			}, poll.WithTimeout(2*time.Minute))
			c.meet(k)
			err := <-outcome
			assert.Assert(t, c.want(err), "%v", err)
			assert.Equal(t, k.Usage("acme").Waiting, 0)
		})
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rules(quota.Limits{Concurrent: 1})
		r.MaxWaiting = 3
		k := keeper(t, quota.Limits{}, func(o *quota.Options) { o.Rules = r })
		admit(t, k, execution(time.Second))
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				_, err := k.Admit(context.Background(), waiting(execution(time.Second), time.Second))
				assert.Check(t, sdk.CodeOf(err) == sdk.CodeQuotaExceeded)
			})
		}
		synctest.Wait()
		_, err := k.Admit(context.Background(), waiting(execution(time.Second), time.Second))
		assert.Error(t, err, "SB008: the quota max_concurrent = 1 does not allow more: 1 in use; 3 requests wait already, which is as many as may")
		group.Wait()
	})
}

func TestFirstComeFirstServedWithinATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, quota.Limits{Concurrent: 1})
		held := admit(t, k, execution(time.Second))
		var served []int
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				g, err := k.Admit(context.Background(), waiting(execution(time.Second), time.Minute))
				assert.Check(t, err)
				served = append(served, i) // one at a time: the quota is the lock
				g.Release()
			})
			synctest.Wait()
		}
		_, err := k.Admit(context.Background(), execution(time.Second))
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded, "nobody overtakes")
		held.Release()
		group.Wait()
		assert.Assert(t, slices.IsSorted(served) && len(served) == 20, "%v", served)
	})
}

func TestWhoNeedsSomethingElseMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, quota.Limits{Instances: 1, Concurrent: 1})
		life := admit(t, k, instanceOn("local"))
		both := waiting(instanceOn("local"), time.Minute)
		both.Execution, both.Timeout = true, time.Second
		var group sync.WaitGroup
		group.Go(func() {
			g, err := k.Admit(context.Background(), both)
			assert.Check(t, err)
			g.Release()
		})
		synctest.Wait()
		admit(t, k, execution(time.Second)).Release()
		life.Release()
		group.Wait()
	})
}

// cloud is a provider that takes so many instances. It refuses more, as a remote
// service does.
type cloud struct {
	mu         sync.Mutex
	room, have int
	asked      int
	order      strings.Builder // of service: the first letters of the tenants
}

// obtain gets an instance as package instance does: it asks again when it has its
// turn.
func (c *cloud) obtain(t *testing.T, k *quota.Keeper, tenant string) *quota.Instance {
	d := quota.Demand{Tenant: tenant, Instance: true, Provider: "full", Wait: time.Hour, Arrived: time.Now()}
	for {
		g, err := k.Admit(context.Background(), d)
		if !assert.Check(t, err) {
			return nil
		}
		c.mu.Lock()
		c.asked++
		if c.have < c.room {
			c.have++
			c.order.WriteString(tenant[:1])
			c.mu.Unlock()
			return g.Instance
		}
		c.mu.Unlock()
		g.Instance.Full(0)
	}
}

func (c *cloud) end(i *quota.Instance) {
	c.mu.Lock()
	c.have--
	c.mu.Unlock()
	i.Release()
}

// Tenant a floods with 1000 requests before b sends 10, on a provider that has room
// for 4. What counts is the order of service: the time that a request waits is how
// many are served before it.
func TestAFloodOfOneTenantDoesNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, flood, few = 4, 1000, 10
		k := keeper(t, quota.Limits{})
		c := &cloud{room: room}
		var group sync.WaitGroup
		ask := func(tenant string) {
			group.Go(func() {
				i := c.obtain(t, k, tenant)
				time.Sleep(time.Second) // of the bubble: the instance's life
				c.end(i)
			})
		}
		for range flood {
			ask("acme")
		}
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		before := c.order.Len()
		for range few {
			ask("b")
		}
		group.Wait()

		order := c.order.String()
		assert.Equal(t, len(order), flood+few)
		var waits []int
		for i := before; i < len(order); i++ {
			if order[i] == 'b' {
				waits = append(waits, i-before+1)
			}
		}
		t.Logf("b's requests were served at the places %v of the services after they came", waits)
		assert.Equal(t, len(waits), few)
		// Its fair share is every second service: the last of ten comes 20th.
		p95 := waits[len(waits)*95/100]
		assert.Assert(t, p95 <= 2*2*few, "%v", waits)
		assert.Assert(t, c.asked < 2*(flood+few), "the provider was asked %d times", c.asked)
	})
}

func TestAProviderThatIsFullIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, quota.Limits{})
		c := &cloud{room: 0}
		time.AfterFunc(4500*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.room = 1 // nobody tells the broker
		})
		began := time.Now()
		c.obtain(t, k, "acme").Release()
		assert.Equal(t, time.Since(began), 5*time.Second)
		assert.Equal(t, c.asked, 6)
	})
}

func TestWhoDoesNotWaitDoesNotPassThoseWhoDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper(t, quota.Limits{})
		c := &cloud{}
		at := quota.Demand{Tenant: "acme", Instance: true, Provider: "full"}
		admit(t, k, at).Instance.Full(0)
		admit(t, k, at).Instance.Full(10 * time.Second) // nobody waits, so it may try
		var group sync.WaitGroup
		group.Go(func() { c.obtain(t, k, "b").Release() })
		synctest.Wait()
		_, err := k.Admit(context.Background(), at)
		assert.Error(t, err, "SB008: the provider has no room, and others wait for it already")
		c.mu.Lock()
		c.room = 1
		c.mu.Unlock()
		group.Wait()
		admit(t, k, at).Release()
	})
}
