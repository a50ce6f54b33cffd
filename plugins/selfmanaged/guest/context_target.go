package guest

import (
	"context"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// contextTarget is an execution in a context for those who interrupt it: it waits
// for its turn first, and then runs in an interpreter that is not its own.
type contextTarget struct {
	// waiting ends with the call, or when an interrupt comes before the turn.
	waiting context.Context
	give    context.CancelFunc

	mu      sync.Mutex
	process *process // once it runs, until end
}

func newContextTarget(ctx context.Context) *contextTarget {
	t := &contextTarget{}
	t.waiting, t.give = context.WithCancel(ctx)
	return t
}

// runs says that the turn has come.
func (t *contextTarget) runs(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process = p
	if t.waiting.Err() != nil { // the interrupt came between the two
		p.Interrupt()
	}
}

func (t *contextTarget) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process = nil
	t.give()
}

// Interrupt implements interruptTarget.
func (t *contextTarget) Interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.give()
	if t.process != nil {
		t.process.Interrupt()
	}
}

// Kill implements interruptTarget.
func (t *contextTarget) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process != nil {
		t.process.Kill()
	}
}

// sendCancelled answers for code that was interrupted before it ran.
func sendCancelled(stream executionStream) error {
	return answer(stream, sdk.ExecuteResult{Status: sdk.StatusCancelled, ExitCode: exitInterrupted, Detail: "it had not begun"})
}
