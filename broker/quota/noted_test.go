package quota_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// lines is a log in memory, whose first line is number 1.
type lines struct {
	hash  string
	noted []json.RawMessage
}

func (l *lines) Position() (uint64, string) { return uint64(len(l.noted)) + 1, l.hash }

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
	if text := g.Reservation.Note(); text != nil {
		l.noted = append(l.noted, text)
		g.Reservation.Noted()
	}
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
	})
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
	})
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
