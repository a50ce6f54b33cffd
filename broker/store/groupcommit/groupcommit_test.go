package groupcommit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store/groupcommit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var errBad = errors.New("bad")

// ledger carries changes out, which are numbers: those below 0 fail.
type ledger struct {
	mu       sync.Mutex
	durable  []int
	attempts [][]int
	// blame is what an attempt says with a change that fails among others, instead of its number.
	blame int
	// began is told of each attempt, and open lets it through.
	began, open chan struct{}
}

func newLedger() *ledger {
	return &ledger{began: make(chan struct{}, 1000), open: make(chan struct{})}
}

func (l *ledger) attempt(changes []int) (about int, err error) {
	l.began <- struct{}{}
	<-l.open
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, slices.Clone(changes))
	if n := slices.IndexFunc(changes, func(c int) bool { return c < 0 }); n >= 0 {
		if l.blame != 0 {
			return l.blame, errBad
		}
		return n, errBad
	}
	l.durable = append(l.durable, changes...)
	return groupcommit.Everybody, nil
}

// together has changes wait while one is attempted, and returns their outcomes.
func (l *ledger) together(t *testing.T, changes ...int) map[int]error {
	t.Helper()
	line := groupcommit.New(l.attempt, "slow")
	go line.Serve(nil, nil)
	t.Cleanup(line.Close)
	outcomes := map[int]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	do := func(change int) {
		group.Go(func() {
			err := line.Do(t.Context(), change)
			mu.Lock()
			defer mu.Unlock()
			outcomes[change] = err
		})
	}
	do(0)
	<-l.began // what comes now waits for the next
	for n, change := range changes {
		do(change)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if line.Len() <= n {
				return poll.Continue("%d in line", line.Len())
			}
			return poll.Success()
		}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
	}
	close(l.open)
	group.Wait()
	return outcomes
}

func TestWhatWaitsSharesOneTransaction(t *testing.T) {
	l := newLedger()
	for _, err := range l.together(t, 1, 2, 3) {
		assert.Check(t, err)
	}
	assert.DeepEqual(t, l.attempts, [][]int{{0}, {1, 2, 3}})
}

func TestAChangeThatFailsHarmsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		blame    int
		attempts [][]int
	}{
		"by its number":       {0, [][]int{{1, -2, 3}, {1, 3}, {-2}}},
		"nobody knows which":  {groupcommit.Somebody, [][]int{{1, -2, 3}, {1}, {-2}, {3}}},
		"of the whole of all": {groupcommit.Everybody, [][]int{{1, -2, 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.blame = test.blame
			outcomes := l.together(t, 1, -2, 3)
			assert.Check(t, is.ErrorIs(outcomes[-2], errBad))
			assert.Check(t, is.DeepEqual(l.attempts[1:], test.attempts))
			for _, good := range []int{1, 3} {
				if test.blame == groupcommit.Everybody {
					assert.Check(t, is.ErrorIs(outcomes[good], errBad))
				} else {
					assert.Check(t, outcomes[good])
				}
				assert.Check(t, is.Equal(slices.Contains(l.durable, good), outcomes[good] == nil))
			}
		})
	}
}

func TestWhoWaitsTooLongIsToldSo(t *testing.T) {
	l := newLedger()
	line := groupcommit.New(l.attempt, "it is slow")
	go line.Serve(nil, nil)
	line.SetPatience(time.Millisecond)
	err := line.Do(t.Context(), 1)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	assert.Check(t, is.ErrorContains(err, "it is slow"))

	// The caller's own end comes to it as it is.
	line.SetPatience(0)
	assert.Equal(t, line.Patience(), 30*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Check(t, is.ErrorIs(line.Do(ctx, 2), context.Canceled))

	close(l.open)
	line.Close()
	assert.Check(t, !slices.Contains(l.durable, 2), "its caller had gone")
	assert.Check(t, is.Equal(sdk.CodeOf(line.Do(t.Context(), 3)), sdk.CodeUnavailable))
}

// What is in line when the line is closed is carried out.
func TestCloseFinishesWhatWaits(t *testing.T) {
	l := newLedger()
	line := groupcommit.New(l.attempt, "slow")
	ticks := make(chan time.Time)
	looked := make(chan struct{}, 1)
	go line.Serve(ticks, func() { looked <- struct{}{} })
	ticks <- time.Time{}
	<-looked
	var group sync.WaitGroup
	do := func(change int) { group.Go(func() { assert.Check(t, line.Do(t.Context(), change)) }) }
	do(0)
	<-l.began
	for n := range 300 {
		do(n)
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if line.Len() < groupcommit.Most {
			return poll.Continue("%d in line", line.Len())
		}
		return poll.Success()
	}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
	close(l.open)
	group.Wait()
	line.Close()
	assert.Equal(t, len(l.durable), 301)
	for _, changes := range l.attempts {
		assert.Check(t, len(changes) <= groupcommit.Most)
	}
}
