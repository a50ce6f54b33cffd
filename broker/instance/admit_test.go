package instance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// withQuota returns a service whose tenants all have these limits.
func withQuota(t *testing.T, provider *instancetest.Provider, limits quota.Limits) (*instance.Service, *quota.Keeper) {
	t.Helper()
	rules := quota.Rules{
		Tenants:    map[string]quota.Limits{},
		Costs:      map[string]quota.Money{"dear": quota.MoneyOf(1)},
		MaxWaiting: 1000,
	}
	for _, name := range tenants {
		rules.Tenants[name] = limits
	}
	keeper, err := quota.NewKeeper(quota.Options{Rules: rules})
	assert.NilError(t, err)
	bounds := instancetest.Limits()
	bounds.MaxWait = time.Minute
	s := instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{provider}, Limits: bounds, Logger: hclog.NewNullLogger(), Quotas: keeper,
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		s.Shutdown(ctx)
		keeper.Close()
	})
	return s, keeper
}

var tenants = []string{"a", "b", "c"}

func usedOf(k *quota.Keeper, name string, limit quota.Limit) float64 {
	for _, line := range k.Usage(name).Lines {
		if line.Limit == limit {
			return line.Used
		}
	}
	return -1
}

func wantsUsed(t *testing.T, k *quota.Keeper, name string, limit quota.Limit, want float64) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if got := usedOf(k, name, limit); got != want {
			return poll.Continue("%s has used %v of %s, not %v", name, got, limit, want)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func code(timeout time.Duration) instance.ExecuteRequest {
	return instance.ExecuteRequest{Code: "1", Language: "python", Timeout: timeout}
}

func limitOf(err error) quota.Limit {
	if refusal, ok := errors.AsType[*quota.Refusal](err); ok {
		return refusal.Limit
	}
	return ""
}

func TestInstancesAreCountedUntilTheyHaveEnded(t *testing.T) {
	ctx, a := context.Background(), tenant.Tenant{Name: "a"}
	provider := &instancetest.Provider{Name: "first"}
	s, k := withQuota(t, provider, quota.Limits{Instances: 1})
	info, _, err := s.Create(ctx, a, instance.CreateRequest{Session: "one"})
	assert.NilError(t, err)
	_, again, err := s.Create(ctx, a, instance.CreateRequest{Session: "one"})
	assert.NilError(t, err)
	assert.Assert(t, !again, "the session has its instance, whatever the quota")
	_, _, err = s.Create(ctx, a, instance.CreateRequest{Session: "two"})
	assert.Equal(t, limitOf(err), quota.MaxInstances)
	_, err = s.Run(ctx, a, instance.RunRequest{ExecuteRequest: code(0)})
	assert.Equal(t, limitOf(err), quota.MaxInstances)
	_, err = s.Run(ctx, a, instance.RunRequest{ExecuteRequest: code(0), Session: "one"})
	assert.NilError(t, err)
	assert.NilError(t, s.Destroy(ctx, a, info.ID.String()))
	_, err = s.Run(ctx, a, instance.RunRequest{ExecuteRequest: code(0)})
	assert.NilError(t, err)
	wantsUsed(t, k, "a", quota.MaxInstances, 0)
	wantsUsed(t, k, "a", quota.MaxConcurrent, 0)
	wantsUsed(t, k, "a", quota.ExecutionsPerDay, 2)
}

func TestARequestMayWaitForItsTurn(t *testing.T) {
	ctx, a := context.Background(), tenant.Tenant{Name: "a"}
	running, finish := make(chan struct{}, 10), make(chan struct{})
	provider := &instancetest.Provider{Name: "first", OnExecute: func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		running <- struct{}{}
		<-finish
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}}
	s, k := withQuota(t, provider, quota.Limits{Concurrent: 1, Instances: 5})
	info, _, err := s.Create(ctx, a, instance.CreateRequest{})
	assert.NilError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		_, err := s.Run(ctx, a, instance.RunRequest{ExecuteRequest: code(0)})
		assert.Check(t, err)
	})
	<-running
	_, err = s.Execute(ctx, a, info.ID.String(), code(0))
	assert.Equal(t, limitOf(err), quota.MaxConcurrent)
	patient := code(0)
	patient.Wait = time.Minute
	group.Go(func() {
		_, err := s.Execute(ctx, a, info.ID.String(), patient)
		assert.Check(t, err)
	})
	group.Go(func() {
		_, err := s.Run(ctx, a, instance.RunRequest{ExecuteRequest: patient})
		assert.Check(t, err)
	})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := k.Usage("a").Waiting; n != 2 {
			return poll.Continue("%d wait", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, len(provider.Live()), 2, "who waits has no instance yet")
	close(finish)
	group.Wait()
	patient.Wait = time.Minute + 1
	_, err = s.Run(ctx, a, instance.RunRequest{ExecuteRequest: patient})
	assert.Error(t, err, "SB010: wait_ms: must be at most 60000")
}

func TestWhoWaitsIsSentAwayWhenTheBrokerStops(t *testing.T) {
	a := tenant.Tenant{Name: "a"}
	s, k := withQuota(t, &instancetest.Provider{Name: "first"}, quota.Limits{Instances: 1})
	_, _, err := s.Create(context.Background(), a, instance.CreateRequest{})
	assert.NilError(t, err)
	outcome := make(chan error)
	go func() {
		_, _, err := s.Create(context.Background(), a, instance.CreateRequest{Wait: time.Minute})
		outcome <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if k.Usage("a").Waiting == 1 {
			return poll.Success()
		}
		return poll.Continue("it does not wait yet")
	}, poll.WithTimeout(2*time.Minute))
	s.Drain(context.Background())
	assert.ErrorContains(t, <-outcome, "the broker is shutting down")
}

func TestWhoWaitsForAFullProviderIsServedWhenItHasRoom(t *testing.T) {
	ctx, a := context.Background(), tenant.Tenant{Name: "a"}
	var room atomic.Int64
	room.Store(1)
	provider := &instancetest.Provider{
		Name: "first",
		OnCreate: func(context.Context, sdk.CreateRequest) error {
			if room.Add(-1) < 0 {
				room.Add(1)
				return sdk.Errorf(sdk.CodeQuotaExceeded, "too many sandboxes in this account")
			}
			return nil
		},
		OnDestroy: func(context.Context, string) error {
			room.Add(1)
			return nil
		},
	}
	s, _ := withQuota(t, provider, quota.Limits{})
	info, _, err := s.Create(ctx, a, instance.CreateRequest{})
	assert.NilError(t, err)
	_, _, err = s.Create(ctx, a, instance.CreateRequest{})
	assert.ErrorContains(t, err, "too many sandboxes")
	done := make(chan error)
	go func() {
		_, err := s.Run(ctx, a, instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Code: "1", Language: "python", Wait: time.Minute}})
		done <- err
	}()
	assert.NilError(t, s.Destroy(ctx, a, info.ID.String()))
	assert.NilError(t, <-done)
}

func TestAnInstanceLivesNoLongerThanItsTenantCanPay(t *testing.T) {
	ctx, a := context.Background(), tenant.Tenant{Name: "a"}
	provider := &instancetest.Provider{Name: "dear"}
	s, k := withQuota(t, provider, quota.Limits{MoneyPerDay: quota.MoneyOf(90)}) // of seconds
	info, _, err := s.Create(ctx, a, instance.CreateRequest{TTL: time.Hour})
	assert.NilError(t, err)
	assert.Equal(t, usedOf(k, "a", quota.MoneyPerDay), 60.0)
	_, _, err = s.Create(ctx, a, instance.CreateRequest{})
	assert.Equal(t, limitOf(err), quota.MoneyPerDay)
	_, err = s.Execute(ctx, a, info.ID.String(), code(2*time.Minute))
	assert.Equal(t, limitOf(err), quota.MoneyPerDay, "the execution could last longer")
	assert.Equal(t, usedOf(k, "a", quota.ExecutionsPerDay), 0.0)
	_, err = s.Execute(ctx, a, info.ID.String(), code(time.Second))
	assert.NilError(t, err)
	assert.NilError(t, s.Destroy(ctx, a, info.ID.String()))
	assert.Assert(t, usedOf(k, "a", quota.MoneyPerDay) < 10, "what was not lived is not paid")
}

// faults are what a provider does wrong, by chance.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	// there are the instances that the provider has or may have, running the
	// executions, by tenant; most is the limit of both.
	there, running map[string]int
	// owners of the instances that are there, names of those of all.
	owners, names map[string]string
	most          int
	exceeded      []string
}

func (f *faults) chance(percent int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(100) < percent
}

func (f *faults) add(counts map[string]int, what, tenant string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts[tenant] += n
	if counts[tenant] > f.most {
		f.exceeded = append(f.exceeded, fmt.Sprintf("%d %s of %s", counts[tenant], what, tenant))
	}
}

// TestNoSlotIsLostOrGivenTwice drives random requests of several tenants against a
// provider that fails, panics and dies, with callers that go away, and compares what
// the quotas say with what the provider has seen.
func TestNoSlotIsLostOrGivenTwice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const most, workers, requests = 4, 12, 60
	f := &faults{
		random: rand.New(rand.NewPCG(seed, 0)), most: most,
		there: map[string]int{}, running: map[string]int{}, owners: map[string]string{}, names: map[string]string{},
	}
	var executions sync.Map // by tenant, *atomic.Int64
	for _, name := range tenants {
		executions.Store(name, &atomic.Int64{})
	}
	var provider *instancetest.Provider
	provider = &instancetest.Provider{
		Name: "first",
		OnCreate: func(ctx context.Context, req sdk.CreateRequest) error {
			who, id := req.Labels[sdk.LabelTenant], "fake-"+req.Labels[sdk.LabelInstance]
			f.mu.Lock()
			f.owners[id], f.names[id] = who, who
			f.mu.Unlock()
			f.add(f.there, "instances", who, 1)
			gone := func(err error) error {
				f.add(f.there, "instances", who, -1)
				return err
			}
			switch {
			case f.chance(5):
				return gone(sdk.Errorf(sdk.CodeQuotaExceeded, "full"))
			case f.chance(5):
				return gone(sdk.Errorf(sdk.CodeCreateFailed, "no"))
			case f.chance(5):
				return gone(wire.ErrPluginGone)
			case f.chance(5): // it is there all the same
				provider.Adopt(sdk.Instance{ID: id, Labels: req.Labels})
				return sdk.Errorf(sdk.CodeInternal, "the answer was lost")
			case f.chance(3):
				_ = gone(nil)
				panic("the provider's client panics")
			case f.chance(5):
				<-ctx.Done()
				return gone(ctx.Err())
			}
			return nil
		},
		OnExecute: func(ctx context.Context, req sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			f.mu.Lock()
			who := f.names[req.InstanceID]
			f.mu.Unlock()
			n, _ := executions.Load(who)
			n.(*atomic.Int64).Add(1)
			f.add(f.running, "executions", who, 1)
			defer f.add(f.running, "executions", who, -1)
			switch {
			case f.chance(5):
				return sdk.ExecuteResult{}, wire.ErrPluginGone
			case f.chance(5):
				return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeInternal, "no")
			case f.chance(3):
				panic("the provider's client panics")
			case f.chance(10):
				<-ctx.Done()
				return sdk.ExecuteResult{}, ctx.Err()
			}
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		},
		OnDestroy: func(_ context.Context, id string) error {
			f.mu.Lock()
			who, known := f.owners[id]
			delete(f.owners, id)
			f.mu.Unlock()
			if known {
				f.add(f.there, "instances", who, -1)
			}
			return nil
		},
	}
	s, k := withQuota(t, provider, quota.Limits{Instances: most, Concurrent: most})
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)+1))
			for range requests {
				oneRequest(s, tenant.Tenant{Name: tenants[random.IntN(len(tenants))]}, random)
			}
		})
	}
	group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s.Shutdown(ctx)
	assert.DeepEqual(t, f.exceeded, []string(nil))
	// Those that found their instance gone may count or not: it may have been
	// destroyed while they ran.
	asked := map[string]int64{}
	for _, e := range provider.Executions() {
		asked[f.names[e.InstanceID]]++
	}
	for _, name := range tenants {
		assert.Equal(t, usedOf(k, name, quota.MaxInstances), 0.0, "instances of %s", name)
		assert.Equal(t, usedOf(k, name, quota.MaxConcurrent), 0.0, "executions of %s", name)
		assert.Equal(t, k.Usage(name).Waiting, 0)
		n, _ := executions.Load(name)
		day := int64(usedOf(k, name, quota.ExecutionsPerDay))
		assert.Assert(t, n.(*atomic.Int64).Load() <= day && day <= asked[name], "%d executions of %s in the day, %d were asked for", day, name, asked[name])
	}
}

// oneRequest does something by chance, and goes away early by chance.
func oneRequest(s *instance.Service, who tenant.Tenant, random *rand.Rand) {
	defer func() { _ = recover() }() // as the API does
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(30))*time.Millisecond)
	defer cancel()
	wait := time.Duration(random.IntN(2)*random.IntN(50)) * time.Millisecond
	session := ""
	if random.IntN(2) == 0 {
		session = fmt.Sprintf("s%d", random.IntN(3))
	}
	switch random.IntN(4) {
	case 0:
		_, _, _ = s.Create(ctx, who, instance.CreateRequest{Session: session, Wait: wait})
	case 1:
		req := code(time.Second)
		req.Wait = wait
		_, _ = s.Run(ctx, who, instance.RunRequest{ExecuteRequest: req, Session: session})
	default:
		page := s.List(who, instance.ListRequest{})
		if len(page.Instances) == 0 {
			return
		}
		id := page.Instances[random.IntN(len(page.Instances))].ID.String()
		if random.IntN(3) == 0 {
			_ = s.Destroy(ctx, who, id)
			return
		}
		req := code(time.Second)
		req.Wait = wait
		_, _ = s.Execute(ctx, who, id, req)
	}
}
