package main

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
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
	// The SDK knows what main and its arguments are, and brings its result back among
	// the output.
	code, err := program.ForProcess(req, program.Options{Dir: workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	output := code.Output(out)
	file := "/run/program" + code.Suffix

	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, req.Timeout, errTimeout)
	defer cancel()
	ended, err := p.sandbox.run(ctx, command{
		argv: code.Command(file), file: file, content: code.Source, env: environment(instance.Env),
		kept: p.store.kept(req.InstanceID), stdout: writer(output.Stdout), stderr: writer(output.Stderr),
	}, e.process.Store)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	result, err := output.Finish(ended.exitCode)
	result.Duration = time.Since(began)
	switch cause := context.Cause(ctx); {
	case e.interrupted.Load():
		result.Status, result.Result = sdk.StatusCancelled, nil
	case errors.Is(cause, errTimeout):
		result.Status, result.Result = sdk.StatusTimeout, nil
	case cause != nil:
		return sdk.ExecuteResult{}, cause
	}
	return result, err
}

// environment is that of code, with what was asked for.
func environment(more ...map[string]string) map[string]string {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin", "HOME": workspace, "LANG": "C.UTF-8"}
	for _, m := range more {
		maps.Copy(env, m)
	}
	return env
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
