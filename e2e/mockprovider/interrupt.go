package main

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Interrupter = (*provider)(nil)

// errInterrupted is why the context of an interrupted execution ends.
var errInterrupted = errors.New("interrupted")

// executions finds what runs by instance and execution.
type executions struct {
	mu      sync.Mutex
	running map[[2]string]context.CancelCauseFunc
}

// begin makes an execution known until its context is given back.
func (e *executions) begin(ctx context.Context, req sdk.ExecuteRequest) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	key := [2]string{req.InstanceID, req.ExecutionID}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		e.running = map[[2]string]context.CancelCauseFunc{}
	}
	e.running[key] = cancel
	return ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.running, key)
		cancel(nil)
	}
}

// Interrupt ends a delay.
func (p *provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	return p.call(ctx, "interrupt", func() error {
		p.executions.mu.Lock()
		defer p.executions.mu.Unlock()
		cancel := p.executions.running[[2]string{instanceID, executionID}]
		if cancel == nil {
			return sdk.Errorf(sdk.CodeNotFound, "no such execution")
		}
		cancel(errInterrupted)
		return nil
	})
}
