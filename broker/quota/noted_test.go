package quota_test

import (
	"context"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// lines is a log in memory, whose first line is number 1.
type lines struct {
	hash string

	mu    sync.Mutex
	noted []json.RawMessage
}

func (l *lines) Position() (uint64, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.noted)) + 1, l.hash
}

func (l *lines) UsageSince(line uint64, hash string, visit func(json.RawMessage)) (bool, error) {
	if hash != l.hash || line > uint64(len(l.noted))+1 {
		return false, nil
	}
	for _, text := range l.noted[line-1:] {
		visit(text)
	}
	return true, nil
}

// begin is the beginning of an effect that a grant is for.
func (l *lines) begin(g quota.Grant) {
	if g.Reservation == nil {
		return // it is durable
	}
	if text := g.Reservation.Note(); text != nil {
		l.add(text)
		g.Reservation.Noted()
	}
}

func (l *lines) add(text json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted = append(l.noted, text)
}

// crash returns what is on disk at this moment, with how much has begun.
func (l *lines) crash(d *disk, begun *atomic.Int64) (state *disk, log *lines, least int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.copied(), &lines{hash: l.hash, noted: slices.Clone(l.noted)}, begun.Load()
}

// copied is what a crash leaves of the disk.
func (d *disk) copied() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{records: maps.Clone(d.records), upTo: d.upTo}
}

func noting(d quota.Demand) quota.Demand {
	d.Noted = true
	return d
}

func TestWhatTheLogNotesOutlivesACrashBeforeItIsWritten(t *testing.T) {
	d, l, c := &disk{}, &lines{hash: "a"}, noon()
	limits := quota.Limits{ExecutionsPerDay: 5, MoneyPerDay: quota.MoneyOf(100)}
	k := keeper(t, limits, on(d), at(c))
	k.Follow(t.Context(), l)
	crashed := &disk{records: map[string]quota.Record{}, upTo: d.upTo} // before anything was written
	both := noting(instanceOn("cloud"))
	both.Execution, both.Timeout = true, 10*time.Second
	first := admit(t, k, both)
	l.begin(first)
	assert.Assert(t, first.Reservation.Note() == nil, "it is in the log")
	first.Execution.Start()
	c.forward(2 * time.Second)
	second := admit(t, k, noting(execution(10*time.Second)))
	third := admit(t, k, noting(execution(10*time.Second)))
	l.begin(third) // the later one is in the log first
	l.begin(second)

	for name, test := range map[string]struct {
		log        *lines
		executions float64
	}{
		"the same log":            {l, 3},
		"a log that was replaced": {&lines{hash: "b", noted: l.noted}, 0},
		"a log that was cut":      {&lines{hash: "a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &disk{records: map[string]quota.Record{}, upTo: crashed.upTo}
			next := keeper(t, limits, on(disk), at(c))
			next.Follow(t.Context(), test.log)
			assert.Equal(t, used(t, next, quota.ExecutionsPerDay), test.executions)
			assert.Equal(t, disk.acme().Executions, int64(test.executions), "it is written")
			if test.executions > 0 {
				assert.Equal(t, used(t, next, quota.MoneyPerDay), 0.6)
				line, _ := test.log.Position()
				assert.Equal(t, disk.upTo.Line, line)
			}
		})
	}
}

func TestWhatIsWrittenLaterIsNotTakenBackByTheLog(t *testing.T) {
	d, l, c := &disk{}, &lines{}, noon()
	limits := quota.Limits{ExecutionTimePerDay: time.Hour}
	k := keeper(t, limits, on(d), at(c))
	k.Follow(t.Context(), l)
	from := d.upTo
	g := admit(t, k, noting(execution(time.Minute)))
	l.begin(g)
	g.Execution.Start()
	c.forward(time.Second)
	g.Release()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if d.acme().ExecutionTime == time.Second {
			return poll.Success()
		}
		return poll.Continue("%v", d.acme())
	}, poll.WithTimeout(2*time.Minute))
	next := keeper(t, limits, on(&disk{records: map[string]quota.Record{"acme": d.acme()}, upTo: from}), at(c))
	next.Follow(t.Context(), l)
	assert.Equal(t, used(t, next, quota.ExecutionTimePerDay), 1.0)
}

func TestATenantThatWasRemovedHasNothingInTheLog(t *testing.T) {
	d, l := &disk{}, &lines{}
	k := keeper(t, quota.Limits{ExecutionsPerDay: 5}, on(d))
	k.Follow(t.Context(), l)
	from := d.upTo
	before, open := admit(t, k, noting(execution(time.Minute))), admit(t, k, noting(execution(time.Minute)))
	l.begin(before)
	k.Forget(func(string) bool { return false })
	assert.Assert(t, open.Reservation.Note() == nil)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if r := d.acme(); r.Version > 0 && r.Executions == 0 {
			return poll.Success()
		}
		return poll.Continue("%v", d.acme())
	}, poll.WithTimeout(2*time.Minute))
	next := keeper(t, quota.Limits{ExecutionsPerDay: 5}, on(&disk{records: map[string]quota.Record{"acme": d.acme()}, upTo: from}))
	next.Follow(t.Context(), l)
	assert.Equal(t, used(t, next, quota.ExecutionsPerDay), 0.0)
}

func TestNothingIsLeftToTheLogWhenTheJournalCannotBeWritten(t *testing.T) {
	d := &disk{}
	k := keeper(t, quota.Limits{ExecutionsPerDay: 100})
	k.Follow(t.Context(), &lines{})
	k = keeper(t, quota.Limits{ExecutionsPerDay: 100}, on(d))
	assert.Assert(t, admit(t, k, noting(execution(time.Second))).Reservation == nil, "there is no log yet")
	k.Follow(t.Context(), &lines{})
	assert.Assert(t, admit(t, k, noting(execution(time.Second))).Reservation != nil)
	d.mu.Lock()
	d.err = sdk.Errorf(sdk.CodeUnavailable, "the disk is full")
	d.mu.Unlock()
	_, err := k.Admit(t.Context(), execution(time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	_, err = k.Admit(t.Context(), noting(execution(time.Second)))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	d.mu.Lock()
	d.err = nil
	d.mu.Unlock()
	assert.Assert(t, admit(t, k, noting(execution(time.Second))).Reservation == nil, "it waits until the disk has proved itself")
	assert.Assert(t, admit(t, k, noting(execution(time.Second))).Reservation != nil)
}

func TestAGrantThatNothingOfADayHangsOnHasNothingToNote(t *testing.T) {
	k := keeper(t, quota.Limits{Concurrent: 5}, on(&disk{}))
	k.Follow(context.Background(), &lines{})
	assert.Assert(t, admit(t, k, noting(execution(time.Second))).Reservation == nil)
}

// Callers execute side by side, and the broker is killed again and again: whatever the disk
// has come to have by then, what has begun is counted, and no more than was granted.
func TestNothingThatHasBegunIsLostByACrash(t *testing.T) {
	d, l, c := &disk{}, &lines{hash: "a"}, noon()
	limits := quota.Limits{ExecutionsPerDay: 1_000_000}
	k := keeper(t, limits, on(d), at(c))
	k.Follow(t.Context(), l)
	var granted, begun atomic.Int64
	callers, stop := sync.WaitGroup{}, make(chan struct{})
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				granted.Add(1) // before it is: the next crash may find it
				g, err := k.Admit(context.Background(), noting(execution(time.Second)))
				if err != nil {
					t.Error(err)
					return
				}
				l.begin(g)
				begun.Add(1)
				g.Execution.Start()
				g.Release()
				runtime.Gosched()
			}
		})
	}
	for crash := 0; crash < 40 || d.copied().acme().Executions == 0; crash++ {
		state, log, least := l.crash(d, &begun)
		next := keeper(t, limits, on(state), at(c))
		next.Follow(t.Context(), log)
		counted := int64(used(t, next, quota.ExecutionsPerDay))
		assert.Check(t, counted >= least && counted <= granted.Load(), "%d counted, %d have begun", counted, least)
	}
	close(stop)
	callers.Wait()
}

func TestWhoGetsANameAgainHasNothingOfTheLog(t *testing.T) {
	d, l := &disk{}, &lines{}
	limits := quota.Limits{ExecutionsPerDay: 5}
	k, err := quota.NewKeeper(quota.Options{Journal: d, Rules: rules(limits)})
	assert.NilError(t, err)
	k.Follow(t.Context(), l)
	from := d.copied().upTo
	l.begin(admit(t, k, noting(execution(time.Minute))))
	k.Forget(func(string) bool { return false })
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0, "it is there again, before anything was written")
	k.Close()
	next := keeper(t, limits, on(&disk{records: d.records, upTo: from}))
	next.Follow(t.Context(), l)
	assert.Equal(t, used(t, next, quota.ExecutionsPerDay), 0.0)
}

func TestATenantThatTheJournalLacksIsTakenFromTheLog(t *testing.T) {
	d, l, c := &disk{}, &lines{hash: "a"}, noon()
	// The record of another tenant is later, and was written first.
	d.records = map[string]quota.Record{"umbrella": {Version: 12, Day: "2026-11-29", Executions: 1}}
	d.upTo = quota.Position{Line: 1, Hash: "a"}
	l.add(json.RawMessage(`{"tenant":"acme","version":11,"day":"2026-11-29","executions":3}`))
	l.add(json.RawMessage(`{"tenant":"umbrella","version":10,"day":"2026-11-29","executions":2}`))
	k := keeper(t, quota.Limits{ExecutionsPerDay: 5}, on(d), at(c))
	k.Follow(t.Context(), l)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 3.0)
	assert.Equal(t, d.copied().records["umbrella"].Executions, int64(1))
}

// A start reads what is behind the line that the journal has, so that is not to be far
// behind where effects come that no quota counts.
func TestTheJournalKeepsUpWithTheLog(t *testing.T) {
	effect := json.RawMessage(`{}`)
	t.Run("by and by", func(t *testing.T) {
		d, l := &disk{}, &lines{}
		k := keeper(t, quota.Limits{}, on(d), func(o *quota.Options) { o.AdvanceEvery = time.Millisecond })
		k.Follow(t.Context(), l)
		l.add(effect)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if line := d.copied().upTo.Line; line != 2 {
				return poll.Continue("at line %d", line)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	})
	t.Run("at the end", func(t *testing.T) {
		d, l := &disk{}, &lines{}
		k, err := quota.NewKeeper(quota.Options{Journal: d})
		assert.NilError(t, err)
		k.Follow(t.Context(), l)
		l.add(effect)
		k.Close()
		assert.Equal(t, d.upTo.Line, uint64(2))
	})
}

func TestNothingIsLeftToTheLogWhileTheJournalHangs(t *testing.T) {
	d, l := &disk{}, &lines{}
	k := keeper(t, quota.Limits{ExecutionsPerDay: 1_000_000}, on(d))
	k.Follow(t.Context(), l)
	hold := make(chan struct{})
	d.mu.Lock()
	d.hold = hold
	d.mu.Unlock()
	defer close(hold)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := k.Admit(ctx, noting(execution(time.Second))); err == nil {
			return poll.Continue("something was left to the log")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
