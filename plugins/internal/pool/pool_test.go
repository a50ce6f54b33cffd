package pool_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a sandbox that does nothing.
type box struct {
	template  string
	exited    chan struct{}
	once      sync.Once
	destroyed func()
}

func (b *box) Exited() <-chan struct{} { return b.exited }

func (b *box) Destroy(context.Context) error {
	b.once.Do(func() {
		close(b.exited)
		b.destroyed()
	})
	return nil
}

// factory makes boxes, and counts what exists.
type factory struct {
	mu    sync.Mutex
	alive int
	peak  int
	fail  error
	last  *box
	asked []string      // templates, in the order of the calls
	gate  chan struct{} // nil: make at once
}

func (f *factory) make(ctx context.Context, template string) (*box, error) {
	f.mu.Lock()
	f.asked = append(f.asked, template)
	f.mu.Unlock()
	if f.gate != nil {
		select {
		case <-f.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	f.alive++
	f.peak = max(f.peak, f.alive)
	f.last = &box{template: template, exited: make(chan struct{}), destroyed: func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.alive--
	}}
	return f.last, nil
}

// refuse makes it fail from now on, or work again.
func (f *factory) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *factory) newest() *box {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *factory) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alive
}

func (f *factory) most() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peak
}

func newPool(t *testing.T, f *factory, size, most int) *pool.Pool[*box] {
	t.Helper()
	p := pool.New(pool.Options[*box]{
		Make: f.make, Templates: map[string]int{"python": 5, "nodejs": 3, "bash": 2},
		Size: size, Max: most, MakeTimeout: time.Minute, Logger: hclog.NewNullLogger(),
	})
	t.Cleanup(func() {
		p.Close()
		assert.Check(t, is.Equal(f.count(), 0), "sandboxes are left")
	})
	return p
}

func waitFull(t *testing.T, p *pool.Pool[*box], size int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ready := 0
		for _, n := range p.Stats().Ready {
			ready += n
		}
		return poll.Compare(is.Equal(ready, size))
	}, poll.WithTimeout(2*time.Minute))
}

// use asks for a sandbox and gives it back.
func use(t *testing.T, p *pool.Pool[*box], template string) {
	t.Helper()
	b, err := p.Acquire(t.Context(), pool.Request{Template: template, Patience: time.Minute})
	assert.NilError(t, err)
	assert.Equal(t, b.template, template)
	assert.NilError(t, b.Destroy(t.Context()))
	p.Release()
}

func TestThePoolIsSplitByShareAndByTheDemandOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newPool(t, f, 10, 100)
		synctest.Wait()
		byShare := map[string]int{"python": 5, "nodejs": 3, "bash": 2}
		assert.DeepEqual(t, p.Stats().Ready, byShare)
		for range 100 {
			use(t, p, "bash")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		assert.DeepEqual(t, p.Stats().Ready, map[string]int{"python": 1, "nodejs": 1, "bash": 8})

		time.Sleep(time.Minute)
		use(t, p, "python")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.DeepEqual(t, p.Stats().Ready, byShare)
		assert.Equal(t, f.count(), 10, "what took the place of others has sent them away")
	})
}

func TestWhatCanWaitIsNotMadeWhileCodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(pool.Options[*box]{
			Make: (&factory{}).make, Templates: map[string]int{"python": 1},
			Size: 5, Max: 100, MakeTimeout: time.Minute, Logger: hclog.NewNullLogger(),
		})
		t.Cleanup(p.Close)
		synctest.Wait()
		var ended []func()
		for range runtime.NumCPU() { // as much code as leaves nothing to make sandboxes with
			ended = append(ended, p.Running())
		}
		ready := func() int {
			t.Helper()
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			return p.Stats().Ready["python"]
		}
		use(t, p, "python")
		assert.Equal(t, ready(), 4, "another four are there for a template that one asked for: nothing is made")
		for range 4 {
			use(t, p, "python")
		}
		assert.Equal(t, ready(), 5, "five were asked for at once, and five will be ready")

		time.Sleep(time.Minute)
		use(t, p, "python")
		assert.Equal(t, ready(), 4)
		time.Sleep(time.Second)
		assert.Equal(t, ready(), 5, "code that runs for long does not keep the pool empty")

		use(t, p, "python")
		assert.Equal(t, ready(), 4)
		for _, ended := range ended {
			ended()
		}
		assert.Equal(t, ready(), 5, "code that has ended leaves room")
	})
}

func TestThoseWhoWaitAreServedInOrder(t *testing.T) {
	f := &factory{gate: make(chan struct{})}
	p := newPool(t, f, 0, 1)
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
			if !assert.Check(t, err) {
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			assert.Check(t, b.Destroy(t.Context()))
			p.Release()
		})
		poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(p.Stats().Waiting, i+1)) }, poll.WithTimeout(2*time.Minute))
	}
	close(f.gate)
	wg.Wait()
	assert.DeepEqual(t, order, []int{0, 1, 2, 3, 4})
	assert.Equal(t, f.most(), 1, "never more than the bound")
}

func TestPatienceAndContextEndAWait(t *testing.T) {
	f := &factory{gate: make(chan struct{})}
	p := newPool(t, f, 0, 1)
	_, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Millisecond})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeCreateFailed})
	assert.ErrorContains(t, err, "0 requests were waiting when this one came, 0 of them of this tenant")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Acquire(ctx, pool.Request{Template: "python", Patience: time.Minute})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, p.Stats().Waiting, 0)
}

// Who waits for a sandbox that is being made is not in the way of anybody; who waits for
// the end of another's is, and may be in a hurry.
func TestTheQueueOfAFullPoolIsBoundedByTheRequest(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 0, 1)
	hurry := time.Duration(0)
	req := pool.Request{Template: "python", Patience: time.Minute, MaxQueue: &hurry}
	s, err := p.Acquire(t.Context(), req)
	assert.NilError(t, err, "there is room")
	_, err = p.Acquire(t.Context(), req)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
	req.Patience = 0
	_, err = p.Acquire(t.Context(), req)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeCreateFailed}, "its own patience is no longer")
	assert.NilError(t, s.Destroy(t.Context()))
	p.Release()
	req.Patience = time.Minute
	s, err = p.Acquire(t.Context(), req)
	assert.NilError(t, err, "there is room again")
	assert.DeepEqual(t, p.Stats().HandedOut, map[string]pool.HandOuts{"python": {Awaited: 2}})
	assert.NilError(t, s.Destroy(t.Context()))
	p.Release()
}

func TestRepeatedFailuresAreTold(t *testing.T) {
	f := &factory{fail: errors.New("no runsc")}
	p := newPool(t, f, 1, 1)
	_, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeCreateFailed})
	assert.Check(t, !strings.Contains(err.Error(), "no runsc"), "the reason is not for callers: %v", err)
	f.refuse(nil)
	waitFull(t, p, 1)
	assert.Equal(t, p.Stats().Failures, 0)
}

func TestASandboxThatEndsByItselfIsReplaced(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 1, 10)
	waitFull(t, p, 1)
	b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.NilError(t, err)
	waitFull(t, p, 1)
	next, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.NilError(t, err)
	assert.Assert(t, b != next, "a sandbox is handed out once")
	waitFull(t, p, 1)
	assert.NilError(t, b.Destroy(t.Context()))
	assert.NilError(t, next.Destroy(t.Context()))
	p.Release()
	p.Release()
	assert.Equal(t, p.Stats().InUse, 0)

	made := p.Stats().Made
	dying, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.NilError(t, err)
	assert.NilError(t, dying.Destroy(t.Context()))
	p.Release()
	poll.WaitOn(t, func(l poll.LogT) poll.Result {
		if p.Stats().Made > made {
			return poll.Success()
		}
		return poll.Continue("nothing was made")
	}, poll.WithTimeout(2*time.Minute))
}

func TestCloseRefusesThoseWhoWait(t *testing.T) {
	f := &factory{gate: make(chan struct{})}
	p := newPool(t, f, 0, 1)
	done := make(chan error, 1)
	go func() {
		_, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
		done <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(p.Stats().Waiting, 1)) }, poll.WithTimeout(2*time.Minute))
	p.Close()
	assert.ErrorIs(t, <-done, &sdk.Error{Code: sdk.CodeUnavailable})
	_, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeUnavailable})
}

func TestWhoWaitsGetsTheRoomOfWhatNobodyWaitsFor(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 2, 2)
	waitFull(t, p, 2)
	assert.DeepEqual(t, p.Stats().Ready, map[string]int{"python": 1, "nodejs": 1, "bash": 0})
	b, err := p.Acquire(t.Context(), pool.Request{Template: "bash", Patience: 10 * time.Second})
	assert.NilError(t, err)
	assert.Equal(t, b.template, "bash")
	assert.Equal(t, f.most(), 2, "never more than the bound")
	assert.NilError(t, b.Destroy(t.Context()))
	p.Release()
}

func TestADeadSandboxIsNotHandedOut(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 1, 2)
	for range 20 {
		waitFull(t, p, 1)
		ready := f.newest()
		assert.NilError(t, ready.Destroy(t.Context()))
		b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: 10 * time.Second})
		assert.NilError(t, err)
		assert.Assert(t, b != ready)
		assert.NilError(t, b.Destroy(t.Context()))
		p.Release()
	}
}

func TestCloseWaitsForWhatIsInUse(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 1, 1)
	b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.NilError(t, err)
	left := make(chan int)
	go func() {
		p.Close()
		left <- f.count()
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeUnavailable}))
	}, poll.WithTimeout(2*time.Minute))
	go func() {
		assert.Check(t, b.Destroy(t.Context()))
		p.Release()
	}()
	assert.Equal(t, <-left, 0)
}

// Whoever gives up at the moment of the end may hold a sandbox that came then.
func TestGivingUpWhileThePoolClosesLeavesNothing(t *testing.T) {
	for range 200 {
		f := &factory{}
		p := newPool(t, f, 0, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				b, err := p.Acquire(ctx, pool.Request{Template: "python", Patience: time.Minute})
				if err == nil {
					assert.Check(t, b.Destroy(t.Context()))
					p.Release()
				}
			})
		}
		wg.Go(cancel)
		p.Close()
		wg.Wait()
		assert.Equal(t, f.count(), 0)
	}
}

func TestManyAtOnceNeverShareASandbox(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 3, 8)
	var mu sync.Mutex
	seen := map[*box]bool{}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			b, err := p.Acquire(t.Context(), pool.Request{Template: "nodejs", Patience: time.Minute})
			if !assert.Check(t, err) {
				return
			}
			mu.Lock()
			assert.Check(t, !seen[b])
			seen[b] = true
			mu.Unlock()
			assert.Check(t, b.Destroy(t.Context()))
			p.Release()
		})
	}
	wg.Wait()
	assert.Check(t, f.most() <= 8)
	// What made room may still be on its way out.
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(p.Stats().InUse, 0)) }, poll.WithTimeout(2*time.Minute))
	stats := p.Stats()
	assert.Equal(t, stats.Hits+stats.Waits, int64(200))
}

func TestADrainedPoolKeepsNothingReady(t *testing.T) {
	f := &factory{}
	p := newPool(t, f, 4, 10)
	waitFull(t, p, 4)
	held, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
	assert.NilError(t, err)
	p.Drain()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(f.count(), 1)) }, poll.WithTimeout(2*time.Minute))
	assert.Check(t, held.Destroy(t.Context()))
	p.Release()

	late, err := p.Acquire(t.Context(), pool.Request{Template: "bash", Patience: time.Minute})
	assert.NilError(t, err, "who asks all the same is served")
	assert.Check(t, late.Destroy(t.Context()))
	p.Release()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(f.count(), 0)) }, poll.WithTimeout(2*time.Minute))
}
