package main

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Why an execution was stopped, beside the end of its caller's context.
var (
	errTimeout     = errors.New("its time is over")
	errInterrupted = errors.New("it was interrupted and did not end by itself")
)

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e := &execution{instanceID: req.InstanceID, id: req.ExecutionID, stop: stop, ended: make(chan struct{})}
	p.running.add(e)
	defer p.running.remove(e)

	// In this order: Destroy finds the execution, or the execution no instance.
	instance, err := p.store.load(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	todo, err := programFor(req)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	todo.workspace = p.store.workspace(req.InstanceID)
	todo.env = map[string]string{"PATH": "/usr/local/bin:/usr/bin", "HOME": "/workspace", "LANG": "C.UTF-8"}
	maps.Copy(todo.env, instance.Env)
	maps.Copy(todo.env, req.Env)
	todo.stdout, todo.stderr = writer(out.Stdout), writer(out.Stderr)

	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, req.Timeout, errTimeout)
	defer cancel()
	ended, err := p.sandbox.run(ctx, todo, e.process.Store)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	result := sdk.ExecuteResult{ExitCode: ended.exitCode, Duration: time.Since(began)}
	switch cause := context.Cause(ctx); {
	case e.interrupted.Load():
		result.Status = sdk.StatusCancelled
	case errors.Is(cause, errTimeout):
		result.Status = sdk.StatusTimeout
	case cause != nil:
		return sdk.ExecuteResult{}, cause
	case ended.exitCode == 0:
		result.Status = sdk.StatusSucceeded
	default:
		result.Status = sdk.StatusFailed
	}
	return result, nil
}

// writer passes output on.
type writer func([]byte) error

func (w writer) Write(p []byte) (int, error) { return len(p), w(p) }

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(_ context.Context, instanceID, executionID string) error {
	for _, e := range p.running.in(instanceID) {
		if e.id == executionID && e.interrupt() {
			return nil
		}
	}
	return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
}
