package guest

import (
	"context"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// interruptible finds executions by their ID while they run.
type interruptible struct {
	mu      sync.Mutex
	running map[string]*interrupts
}

// interrupts are those of one execution.
type interrupts struct {
	all    *interruptible
	id     string
	target interruptTarget
	kill   *time.Timer // nil until it was interrupted
}

// interruptTarget is what runs, or is about to.
type interruptTarget interface {
	Interrupt()
	Kill()
}

func newInterruptible() *interruptible {
	return &interruptible{running: map[string]*interrupts{}}
}

// add makes an execution known until ended is called.
func (all *interruptible) add(id string, target interruptTarget) (*interrupts, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if id != "" && all.running[id] != nil {
		return nil, sdk.FieldErrorf(sdk.CodeConflict, "execution_id", "an execution with the ID %s runs already", id)
	}
	i := &interrupts{all: all, id: id, target: target}
	all.running[id] = i
	return i, nil
}

// any says whether an execution runs.
func (all *interruptible) any() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.running) > 0
}

// ended forgets the execution and says whether it was interrupted.
func (i *interrupts) ended() bool {
	i.all.mu.Lock()
	defer i.all.mu.Unlock()
	if i.all.running[i.id] == i {
		delete(i.all.running, i.id)
	}
	if i.kill == nil {
		return false
	}
	i.kill.Stop()
	return true
}

// interrupt sends SIGINT, and SIGKILL to all when the grace is over.
func (all *interruptible) interrupt(id string, grace time.Duration) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	i := all.running[id]
	switch {
	case id == "" || i == nil:
		return sdk.Errorf(sdk.CodeNotFound, "no execution with the ID %s runs", id)
	case i.kill != nil:
		return nil
	}
	i.kill = time.AfterFunc(grace, i.target.Kill)
	i.target.Interrupt()
	return nil
}

func (g *guest) Interrupt(_ context.Context, req *guestv1.InterruptRequest) (*guestv1.InterruptResponse, error) {
	return &guestv1.InterruptResponse{}, g.running.interrupt(req.GetExecutionId(), req.GetGrace().AsDuration())
}
