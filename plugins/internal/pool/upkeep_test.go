package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
)

// newTended is a pool of one template whose sandboxes are looked after.
func newTended(t *testing.T, f *factory, size, most int, change func(*pool.Options[*box])) *pool.Pool[*box] {
	t.Helper()
	o := pool.Options[*box]{
		Make: f.make, Templates: map[string]int{"python": 1}, Size: size, Max: most,
		MakeTimeout: time.Minute, Logger: hclog.NewNullLogger(),
	}
	change(&o)
	p := pool.New(o)
	t.Cleanup(func() {
		p.Close()
		assert.Check(t, is.Equal(f.count(), 0), "sandboxes are left")
	})
	synctest.Wait()
	return p
}

// pass lets time pass, that of the bubble, and all that is due then happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestSandboxesAreReplacedForTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newTended(t, f, 5, 10, func(o *pool.Options[*box]) { o.MaxAge = time.Hour })
		pass(53 * time.Minute)
		assert.Equal(t, p.Stats().Aged, int64(0))
		pass(8 * time.Minute)
		assert.Equal(t, p.Stats().Aged, int64(5), "none is left after its hour")
		assert.Equal(t, p.Stats().Ready["python"], 5)
		assert.Equal(t, f.most(), 6, "one is made, then one goes")
		assert.Equal(t, p.Stats().Made, int64(10))
	})
}

func TestNoneGoesForItsAgeWhileNoneCanBeMade(t *testing.T) {
	for name, most := range map[string]int{"with room for another": 10, "without": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &factory{}
				p := newTended(t, f, 3, most, func(o *pool.Options[*box]) { o.MaxAge = time.Hour })
				f.refuse(errors.New("no memory"))
				pass(3 * time.Hour)
				// Without room the first goes before it is known.
				assert.Check(t, p.Stats().Ready["python"] >= 2)
				f.refuse(nil)
				pass(time.Minute)
				assert.Equal(t, p.Stats().Aged, int64(3))
				assert.Equal(t, p.Stats().Ready["python"], 3)
			})
		})
	}
}

func TestWhereThereIsNoRoomForBothTheOldOneGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newTended(t, f, 3, 3, func(o *pool.Options[*box]) { o.MaxAge = time.Hour })
		pass(61 * time.Minute)
		assert.Equal(t, p.Stats().Aged, int64(3))
		assert.Equal(t, p.Stats().Ready["python"], 3)
		assert.Equal(t, f.most(), 3)
	})
}

func TestASandboxInUseGrowsOldInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newTended(t, f, 1, 10, func(o *pool.Options[*box]) { o.MaxAge = time.Minute })
		b, err := p.Acquire(t.Context(), pool.Request{Template: "python"})
		assert.NilError(t, err)
		pass(time.Hour)
		select {
		case <-b.Exited():
			t.Error("it was destroyed")
		default:
		}
		assert.NilError(t, b.Destroy(t.Context()))
		p.Release()
	})
}

func TestWithoutAMaximumAgeNoneIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTended(t, &factory{}, 2, 10, func(*pool.Options[*box]) {})
		pass(1000 * time.Hour)
		assert.Equal(t, p.Stats().Made, int64(2))
	})
}

func TestASandboxThatFailsItsCheckIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		var sick atomic.Pointer[box]
		var checks atomic.Int64
		p := newTended(t, f, 1, 10, func(o *pool.Options[*box]) {
			o.CheckInterval, o.CheckTimeout = time.Minute, time.Second
			o.Check = func(ctx context.Context, b *box) error {
				checks.Add(1)
				if b == sick.Load() {
					<-ctx.Done() // it hangs
					return ctx.Err()
				}
				return nil
			}
		})
		sick.Store(f.newest())
		pass(time.Minute + 2*time.Second)
		stats := p.Stats()
		assert.Equal(t, stats.Unwell, int64(1))
		assert.Equal(t, stats.Ended, int64(0))
		assert.Equal(t, stats.Made, int64(2))
		assert.Assert(t, f.newest() != sick.Load())

		checks.Store(0)
		pass(time.Hour)
		assert.Check(t, checks.Load() >= 59 && checks.Load() <= 61, "one check a minute: %d", checks.Load())
		assert.Equal(t, p.Stats().Made, int64(2))
	})
}

func TestASandboxThatIsTakenIsCheckedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		var checked atomic.Pointer[box]
		p := newTended(t, f, 1, 1, func(o *pool.Options[*box]) {
			o.CheckInterval, o.CheckTimeout = time.Minute, time.Hour
			o.Check = func(ctx context.Context, b *box) error {
				checked.Store(b)
				<-ctx.Done()
				return ctx.Err()
			}
		})
		pass(time.Minute)
		assert.Equal(t, checked.Load(), f.newest(), "its check is on")
		b, err := p.Acquire(t.Context(), pool.Request{Template: "python"})
		assert.NilError(t, err)
		synctest.Wait()
		checked.Store(nil)
		pass(time.Hour)
		assert.Check(t, checked.Load() == nil)
		assert.Equal(t, p.Stats().Unwell, int64(0), "a check that was broken off says nothing")
		assert.NilError(t, b.Destroy(t.Context()))
		p.Release()
	})
}

func TestTheTimeOfMakingIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		// Each of the three takes another time, and later ones none.
		took := make(chan time.Duration, 3)
		took <- time.Second
		took <- 5 * time.Second
		took <- 3 * time.Second
		close(took)
		p := newTended(t, f, 0, 1, func(o *pool.Options[*box]) {
			o.Make = func(ctx context.Context, template string) (*box, error) {
				<-time.After(<-took)
				return f.make(ctx, template)
			}
		})
		for range 3 {
			b, err := p.Acquire(t.Context(), pool.Request{Template: "python", Patience: time.Minute})
			assert.NilError(t, err)
			assert.NilError(t, b.Destroy(t.Context()))
			p.Release()
		}
		synctest.Wait()
		stats := p.Stats()
		assert.Equal(t, stats.MakeTime, 9*time.Second)
		assert.Equal(t, stats.LongestMake, 5*time.Second)
		assert.Equal(t, stats.WaitTime, 9*time.Second)
	})
}
