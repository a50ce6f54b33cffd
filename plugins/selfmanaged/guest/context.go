package guest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds on waiting for one's turn in a context.
const (
	maxWaiting = 32
	// TurnBound is the longest that an execution waits.
	TurnBound = time.Minute
)

// codeContext is a stateful interpreter. Its interpreter may end and be replaced;
// what it is called and where it starts stay.
type codeContext struct {
	id, language, cwd string
	env               map[string]string
	created           time.Time
	interpreters      *interpreters
	guard             *memory.Guard
	policy            codepolicy.Policy

	// turn holds something while an execution runs or the interpreter is
	// replaced. Those who wait for it get it in the order of their arrival.
	turn    chan struct{}
	waiting atomic.Int32
	busy    atomic.Bool
	renewal atomic.Pointer[renewal] // that its interpreter is to do; nil for none
	gone    chan struct{}           // closed when it is deleted

	mu   sync.Mutex
	live *resident // nil if it has ended, or was never started
	// lost says why the next execution finds no state, if it has not been told.
	lost      string
	restarted bool // whoever runs shall end: the state is not wanted any more
	deleted   bool
}

// errContextGone is for those who wait for a context that is deleted.
var errContextGone = sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "the context was deleted")

// enter waits for the turn. The caller must leave.
func (c *codeContext) enter(ctx context.Context) error {
	if c.waiting.Add(1) > maxWaiting {
		c.waiting.Add(-1)
		return sdk.FieldErrorf(sdk.CodeQuotaExceeded, "context_id", "%d executions wait for this context already", maxWaiting)
	}
	defer c.waiting.Add(-1)
	timer := time.NewTimer(TurnBound)
	defer timer.Stop()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.gone:
		return errContextGone
	case <-timer.C:
		return sdk.FieldErrorf(sdk.CodeQuotaExceeded, "context_id", "the context was busy for %s; interrupt what runs in it, or use another", TurnBound)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		<-c.turn
		return errContextGone
	}
	c.restarted = false
	return nil
}

func (c *codeContext) leave() { <-c.turn }

// ensure starts the interpreter if there is none.
func (c *codeContext) ensure(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.leave()
	_, _, err := c.interpreter(ctx)
	return err
}

// interpreter returns the living interpreter, which it starts if there is none,
// and what became of an earlier one if nobody was told. The caller has the turn.
func (c *codeContext) interpreter(ctx context.Context) (*resident, string, error) {
	c.mu.Lock()
	live, lost := c.live, c.lost
	c.mu.Unlock()
	if live != nil {
		select {
		case <-live.ended:
			lost = live.whyEnded()
			c.drop(live)
		default:
			return live, "", nil
		}
	}
	fresh, err := startResident(ctx, c)
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		fresh.close()
		return nil, "", errContextGone
	}
	c.live, c.lost = fresh, ""
	c.renewal.Store(nil)
	return fresh, lost, nil
}

// drop ends an interpreter. The next execution starts another.
func (c *codeContext) drop(r *resident) {
	r.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == r {
		c.live = nil
	}
}

// restart ends what runs, and the state with it, and starts afresh, unless somebody
// who waits for the turn will.
func (c *codeContext) restart(ctx context.Context) error {
	c.mu.Lock()
	live := c.live
	c.restarted, c.lost = true, ""
	c.mu.Unlock()
	if live != nil {
		live.process.Kill()
		c.drop(live)
	}
	select {
	case c.turn <- struct{}{}:
	default:
		return nil
	}
	defer c.leave()
	c.mu.Lock()
	c.restarted = false
	c.mu.Unlock()
	_, _, err := c.interpreter(ctx)
	return err
}

// delete ends it for good, and returns when nothing of it is left.
func (c *codeContext) delete() {
	c.mu.Lock()
	live, deleted := c.live, c.deleted
	c.deleted, c.restarted = true, true
	c.mu.Unlock()
	if !deleted {
		close(c.gone)
	}
	if live != nil {
		live.process.Kill()
		c.drop(live)
	}
}

// wasRestarted says whether the execution that has the turn was ended by restart
// or delete.
func (c *codeContext) wasRestarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarted
}

// startError puts into words why an interpreter cannot be started.
func startError(err error) error {
	if errors.Is(err, errUnknownLanguage) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "%v", err)
	}
	return sdk.Errorf(sdk.CodeUnavailable, "the interpreter could not be started: %v", err)
}
