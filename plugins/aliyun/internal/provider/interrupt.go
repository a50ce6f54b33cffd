package provider

import (
	"context"
	"errors"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Interrupter = (*Provider)(nil)

// executionName is unique among those that run.
type executionName struct{ instance, execution string }

// executions are those that run now.
type executions struct {
	mu  sync.Mutex
	all map[executionName]*execution
}

// execution is one that runs.
type execution struct {
	sandbox sandbox
	// program is its name in the sandbox.
	program string
	// stop ends one in a kernel; nil for one in a process of its own.
	stop func()
}

func (e *executions) add(req sdk.ExecuteRequest, one *execution) (remove func()) {
	name := executionName{req.InstanceID, req.ExecutionID}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all[name] = one
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.all[name] == one {
			delete(e.all, name)
		}
	}
}

func (e *executions) get(name executionName) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[name]
}

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(ctx context.Context, instanceID, executionID string) error {
	notRunning := sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	e := p.running.get(executionName{instanceID, executionID})
	if e == nil {
		return notRunning
	}
	if e.stop != nil {
		e.stop()
		return nil
	}
	_, err := ask(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, guest.Interrupt(ctx, e.sandbox, e.program)
	})
	if errors.Is(err, guest.ErrUnknown) || errors.Is(err, guest.ErrEnded) {
		return notRunning
	}
	return p.explain(ctx, err, sdk.CodeUnavailable, "interrupt code")
}
