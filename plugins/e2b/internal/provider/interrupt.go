package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/supervisor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Interrupter = (*Provider)(nil)

// Interrupt implements sdk.Interrupter. The signal comes from a process in the sandbox:
// after one of envd's own, output would be lost.
func (p *Provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	p.mu.Lock()
	e := p.running[executionName{instanceID, executionID}]
	p.mu.Unlock()
	if e == nil || !e.canInterrupt() {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	}
	if !e.interruptOnce() {
		return nil
	}
	if e.supervisor() == 0 {
		e.stop(errInterrupted) // whoever runs the cell interrupts the kernel
		return nil
	}
	// Whatever becomes of the signal, the code does not run for longer.
	time.AfterFunc(sdk.InterruptGrace, func() { e.stop(errInterrupted) })
	_, _, err := p.script(ctx, e.sb, supervisor.Interrupt(e.supervisor()))
	return err
}

// canInterrupt says whether there is something to interrupt already.
func (e *execution) canInterrupt() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pid != 0 || e.kernel
}

// interruptOnce is true for the first who asks.
func (e *execution) interruptOnce() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := !e.interrupted
	e.interrupted = true
	return first
}
