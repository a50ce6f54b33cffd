package local

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed run.py
var pythonRunner string

//go:embed run.js
var javascriptRunner string

// Why an execution was killed.
var (
	errTimeout     = errors.New("its time was over")
	errInterrupted = errors.New("it was interrupted")
	errDestroyed   = errors.New("its instance was destroyed")
)

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, notBegun()
	}
	err = p.reach()
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if i.isPaused() {
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeConflict, "the instance is paused")
	}
	i.makeArtifacts()
	if req.ContextID != "" {
		return i.executeInContext(ctx, req, out)
	}
	dir, err := os.MkdirTemp(i.dir, "execution")
	if err != nil {
		return sdk.ExecuteResult{}, notBegun()
	}
	defer os.RemoveAll(dir)
	argv, err := prepare(dir, req)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	run := i.newProcess(argv, map[string]string{"PYTHONPATH": i.packages()}, req.Env)
	i.running(req.ExecutionID, run)
	defer i.running(req.ExecutionID, nil)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(i.life, func() { cancel(errDestroyed) })()
	timer := time.AfterFunc(req.Timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	before := i.artifactsBefore(req)
	started := time.Now()
	if err := run.run(ctx, out.Stdout, out.Stderr); err != nil {
		return sdk.ExecuteResult{}, err
	}
	result := sdk.ExecuteResult{ExitCode: run.exitCode(), Duration: time.Since(started)}
	if err := conclude(&result, run.endedBy()); err != nil {
		return sdk.ExecuteResult{}, err
	}
	if text, err := os.ReadFile(filepath.Join(dir, "result.json")); err == nil && result.Status == sdk.StatusSucceeded {
		result.Result = text
	}
	return result, i.sendArtifacts(req, before, out)
}

// notBegun is for an instance that is gone before the code has begun.
func notBegun() error {
	e := sdk.Errorf(sdk.CodeNotFound, "no such instance")
	e.NoEffect = true
	return e
}

// conclude says what became of code by the reason for its end.
func conclude(result *sdk.ExecuteResult, reason error) error {
	switch {
	case errors.Is(reason, errTimeout):
		result.Status = sdk.StatusTimeout
	case errors.Is(reason, errInterrupted):
		result.Status = sdk.StatusCancelled
	case errors.Is(reason, errDestroyed):
		return sdk.Errorf(sdk.CodeUnavailable, "the instance was destroyed while the code ran")
	case reason != nil:
		return reason
	case result.ExitCode == 0:
		result.Status = sdk.StatusSucceeded
	default:
		result.Status = sdk.StatusFailed
	}
	return nil
}

// prepare writes what the interpreter reads, and returns how to start it.
func prepare(dir string, req sdk.ExecuteRequest) ([]string, error) {
	write := func(name, text string) (string, error) {
		path := filepath.Join(dir, name)
		return path, os.WriteFile(path, []byte(text), 0o600)
	}
	code, err := write("code", req.Code)
	if err != nil {
		return nil, err
	}
	arguments := "-"
	if req.Arguments != nil {
		if arguments, err = write("arguments.json", string(req.Arguments)); err != nil {
			return nil, err
		}
	}
	result := filepath.Join(dir, "result.json")
	switch req.Language {
	case sdk.Python:
		runner, err := write("run.py", pythonRunner)
		return []string{"python3", runner, code, arguments, result}, err
	case sdk.JavaScript:
		runner, err := write("run.js", javascriptRunner)
		return []string{"node", runner, code, arguments, result}, err
	case sdk.Bash:
		if req.Arguments != nil {
			return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to give them to")
		}
		return []string{"bash", code}, nil
	default:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "must be python, javascript or bash")
	}
}

// running makes an execution known, or forgotten.
func (i *instance) running(executionID string, run *process) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if run == nil {
		delete(i.executions, executionID)
		return
	}
	i.executions[executionID] = run
}
