package agreement_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/agreement"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a broker that has a text in force.
type member struct {
	group *agreement.Group
	store *postgres.Store
	end   func()

	mu    sync.Mutex // held while a text is tried, as a reload does
	text  string
	wrong error // with any text
	// trying, if not nil, is called once a text is tried.
	trying func()
}

func (m *member) Adopt(ctx context.Context, _ int64, text []byte, decide func(context.Context) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trying != nil {
		m.trying()
	}
	if m.wrong != nil {
		return m.wrong
	}
	if err := decide(ctx); err != nil {
		return err
	}
	m.text = string(text)
	return nil
}

func (m *member) propose(ctx context.Context, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group.Propose(ctx, []byte(text), func() error { m.text = text; return nil })
}

func (m *member) has(text string) poll.Check {
	return func(poll.LogT) poll.Result {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.text != text {
			return poll.Continue("it has %q", m.text)
		}
		return poll.Success()
	}
}

func (m *member) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// members share the text "1".
func members(t *testing.T, patience time.Duration, ids ...string) (all []*member) {
	t.Helper()
	url := server.Start(t).Database()
	for _, id := range ids {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: url, Broker: id, Holder: "directory of " + id, Version: "test"})
		assert.NilError(t, err)
		first, err := s.First(t.Context(), []byte("1"))
		assert.NilError(t, err)
		assert.NilError(t, s.Joined(t.Context(), first.Number))
		m := &member{store: s, text: "1", group: agreement.NewGroup(first.Number, agreement.Options{Store: s, Logger: hclog.NewNullLogger(), Patience: patience})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.group.Follow(ctx, m)
		}()
		m.end = sync.OnceFunc(func() { cancel(); <-done })
		t.Cleanup(func() {
			m.end()
			assert.Check(t, s.Close())
		})
		all = append(all, m)
	}
	return all
}

func TestAllHaveATextOrNoneHasIt(t *testing.T) {
	all := members(t, time.Minute, "a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	assert.NilError(t, a.propose(t.Context(), "2"))
	for _, m := range all {
		poll.WaitOn(t, m.has("2"), poll.WithTimeout(time.Minute))
	}

	c.set(func() { c.wrong = errors.New("there is no such plugin") })
	err := b.propose(t.Context(), "3")
	_, refused := errors.AsType[*agreement.RefusedError](err)
	assert.Check(t, refused, "%v", err)
	assert.Check(t, is.ErrorContains(err, "broker c refuses it: there is no such plugin"))
	for _, m := range all {
		poll.WaitOn(t, m.has("2"), poll.WithTimeout(2*time.Minute))
	}

	// Who has left is not waited for, and has what the others have when it is there again.
	c.end()
	assert.NilError(t, b.propose(t.Context(), "4"))
	poll.WaitOn(t, a.has("4"), poll.WithTimeout(time.Minute))
	poll.WaitOn(t, c.has("2"), poll.WithTimeout(2*time.Minute))
	c.set(func() { c.wrong = nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.group.Follow(ctx, c)
	}()
	poll.WaitOn(t, c.has("4"), poll.WithTimeout(time.Minute))
	cancel()
	<-done
	inForce, newest := c.group.Numbers()
	assert.Check(t, is.Equal(inForce, newest))
}

func TestWhoeverGivesUpLeavesNothingOpen(t *testing.T) {
	all := members(t, time.Minute, "a", "b")
	a, b := all[0], all[1]
	ctx, cancel := context.WithCancel(t.Context())
	b.set(func() { b.trying = cancel; b.wrong = errors.New("it is not asked any more") })
	assert.Check(t, is.ErrorContains(a.propose(ctx, "2"), ""))
	b.set(func() { b.trying, b.wrong = nil, nil })
	// The next one is not kept waiting.
	assert.NilError(t, b.propose(t.Context(), "3"))
	poll.WaitOn(t, a.has("3"), poll.WithTimeout(time.Minute))
}

// The proposer ends as a killed process does: the others decide without it.
func TestADeadProposerLeavesNothingUndecided(t *testing.T) {
	all := members(t, time.Minute, "a", "b")
	a, b := all[0], all[1]
	a.end()
	assert.NilError(t, a.store.Joined(t.Context(), 1))
	proposed, err := a.store.Propose(t.Context(), 1, []byte("2"), time.Minute)
	assert.NilError(t, err)
	poll.WaitOn(t, b.has("2"), poll.WithTimeout(time.Minute))
	decided, err := b.store.Decide(t.Context(), proposed.ID)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(decided.State, agreement.Committed))
}

func TestWhoDoesNotAnswerIsNotWaitedForLonger(t *testing.T) {
	all := members(t, 500*time.Millisecond, "a", "b")
	a, b := all[0], all[1]
	release := make(chan struct{})
	b.set(func() { b.trying = func() { <-release } })
	err := a.propose(t.Context(), "2")
	close(release)
	assert.Check(t, is.ErrorContains(err, "no answer in time from broker b"))
	poll.WaitOn(t, b.has("1"), poll.WithTimeout(time.Minute))
	b.set(func() { b.trying = nil })
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		err := a.propose(t.Context(), "3")
		if err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	poll.WaitOn(t, b.has("3"), poll.WithTimeout(time.Minute))
}
