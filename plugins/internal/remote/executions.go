package remote

import (
	"context"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Executions are those that run now, by their IDs. It implements sdk.Interrupter; a
// provider embeds it. The zero value has none.
type Executions struct {
	mu  sync.Mutex
	all map[executionName]*Execution
}

var _ sdk.Interrupter = (*Executions)(nil)

// executionName is unique among those that run.
type executionName struct{ instance, id string }

// Execution is one that runs.
type Execution struct {
	mu          sync.Mutex
	interrupt   func(context.Context) error
	interrupted bool
	asked       bool
}

// Begin makes an execution known, until end is called.
func (e *Executions) Begin(req sdk.ExecuteRequest) (one *Execution, end func()) {
	name := executionName{req.InstanceID, req.ExecutionID}
	one = &Execution{}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[executionName]*Execution{}
	}
	e.all[name] = one
	return one, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.all[name] == one {
			delete(e.all, name)
		}
	}
}

// Interrupt implements sdk.Interrupter. Who asks twice has asked once.
func (e *Executions) Interrupt(ctx context.Context, instanceID, executionID string) error {
	e.mu.Lock()
	one := e.all[executionName{instanceID, executionID}]
	e.mu.Unlock()
	interrupt, first := one.ask()
	switch {
	case interrupt == nil:
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	case !first:
		return nil
	}
	err := interrupt(ctx)
	if err != nil {
		one.mu.Lock()
		one.asked = false
		one.mu.Unlock()
	}
	return err
}

// ask returns what interrupts it, nil if that cannot be done yet, and whether nobody has
// asked before.
func (e *Execution) ask() (interrupt func(context.Context) error, first bool) {
	if e == nil {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.interrupt == nil {
		return nil, false
	}
	first = !e.asked
	e.asked, e.interrupted = true, true
	return e.interrupt, first
}

// Reached says that the code runs, and what interrupts it.
func (e *Execution) Reached(interrupt func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.interrupt = interrupt
}

// Interrupted says whether anybody has asked.
func (e *Execution) Interrupted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.interrupted
}
