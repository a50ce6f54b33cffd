package local

import (
	"context"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Interrupter = (*Provider)(nil)

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(_ context.Context, instanceID, executionID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	i.mu.Lock()
	run := i.executions[executionID]
	i.mu.Unlock()
	if run == nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution")
	}
	run.interrupt()
	return nil
}

// interrupt does what Ctrl-C does, and more a second later. Whatever ends the
// process now, it was the interrupt.
func (p *process) interrupt() {
	p.mu.Lock()
	first := p.reason == nil
	if first {
		p.reason = errInterrupted
	}
	p.mu.Unlock()
	if !first {
		return
	}
	p.signal(syscall.SIGINT)
	time.AfterFunc(sdk.InterruptGrace, func() { p.end(errInterrupted) })
}
