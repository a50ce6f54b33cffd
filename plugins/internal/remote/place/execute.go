package place

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

// stopTimeout bounds what is done to end a program.
const stopTimeout = 10 * time.Second

// Execution is one in a process of its own.
type Execution struct {
	Service Service
	Logger  hclog.Logger
	Box     Box
	Request sdk.ExecuteRequest
	// Running is it, as those who interrupt it know it.
	Running *remote.Execution
	// Files finds what the code has made.
	Files artifacts.Finder
	// Limit is how long the code may run. Where it is shorter than the one asked for, Cut
	// says so.
	Limit time.Duration
	Cut   string
}

// Do runs the code, beside the calls that watch it.
func (e *Execution) Do(ctx context.Context, out sdk.Output) (sdk.ExecuteResult, error) {
	req := e.Request
	req.Env = e.Box.Environment(req.Env)
	made, err := program.ForProcess(req, program.Options{Dir: e.Box.Workspace})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	run := Program{
		ID: remote.NewName(), Argv: made.Command("{}"), Source: made.Source, Suffix: made.Suffix,
		Dir: e.Box.Workspace, Timeout: e.Limit, Grace: sdk.InterruptGrace, Artifacts: artifacts.Wanted(req.Artifacts),
	}
	e.Running.Reached(func(ctx context.Context) error { return e.interrupt(ctx, run.ID) })
	output, tail := made.Output(out), &tailed{}
	done, begun, err := e.follow(ctx, run, output, tail)
	if err != nil {
		stop(ctx, e.Service, e.Logger, e.Box, run.ID)
		return sdk.ExecuteResult{}, sdk.ExecutionError(e.Service.Explain(ctx, err, "run code"), begun)
	}
	result, err := output.Finish(done.Exit)
	if err != nil {
		return result, err
	}
	result.Duration, result.PeakMemoryBytes = time.Duration(done.Seconds*float64(time.Second)), done.Peak
	e.judge(&result, done, tail.text)
	if done.Error != "" {
		return result, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the sandbox cannot run this language: %.200s", done.Error)
	}
	if done.Reason != "" {
		return result, nil
	}
	return result, sdk.ExecutionError(e.Files.Send(ctx, done.Files, req.Artifacts, out), true)
}

// sink takes what a program prints.
type sink interface {
	Stdout(p []byte) error
	Stderr(p []byte) error
}

// follow starts a program and passes on what it prints, until its end. begun says that
// it may run, or has run.
func (e *Execution) follow(ctx context.Context, run Program, output sink, tail *tailed) (_ supervise.Done, begun bool, err error) {
	// The code may run although the answer was lost: under its name it is not started twice.
	progress, err := Ask(ctx, e.Service, func(ctx context.Context) (Progress, error) { return Start(ctx, e.Box, run) })
	begun = !e.Service.Refused(err)
	var stdout, stderr int64
	for err == nil {
		if len(progress.Stdout) > 0 {
			err = output.Stdout(progress.Stdout)
		}
		if err == nil && len(progress.Stderr) > 0 {
			tail.add(progress.Stderr)
			err = output.Stderr(progress.Stderr)
		}
		if err != nil || progress.Done != nil {
			break
		}
		stdout += int64(len(progress.Stdout))
		stderr += int64(len(progress.Stderr))
		progress, err = e.watch(ctx, run.ID, stdout, stderr)
	}
	if err != nil {
		return supervise.Done{}, begun, err
	}
	return *progress.Done, true, nil
}

func (e *Execution) watch(ctx context.Context, id string, stdout, stderr int64) (Progress, error) {
	return Ask(ctx, e.Service, func(ctx context.Context) (Progress, error) { return Watch(ctx, e.Box, id, stdout, stderr) })
}

// interrupt does to the code what Ctrl-C does.
func (e *Execution) interrupt(ctx context.Context, id string) error {
	_, err := Ask(ctx, e.Service, func(ctx context.Context) (struct{}, error) { return struct{}{}, Interrupt(ctx, e.Box, id) })
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrEnded) {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is running")
	}
	return e.Service.Explain(ctx, err, "interrupt code")
}

// stop ends a program whose caller has gone or that cannot be followed any more.
func stop(ctx context.Context, s Service, logger hclog.Logger, box Box, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := Cancel(ctx, box, id)
	if err == nil || Known(err) {
		return
	}
	if err := s.Explain(ctx, err, "stop a program"); sdk.CodeOf(err) != sdk.CodeNotFound {
		logger.Warn("a program may run until its time limit: it could not be stopped", "sandbox", box.ID, "error", err)
	}
}

// judge says what the exit code does not.
func (e *Execution) judge(result *sdk.ExecuteResult, done supervise.Done, stderr string) {
	done.Settle(result)
	switch {
	case done.Reason == supervise.Timeout && e.Limit < e.Request.Timeout:
		result.Detail = e.Cut
	case done.Reason == supervise.Output:
		result.Status, result.ExitCode, result.Truncated = sdk.StatusFailed, max(result.ExitCode, 1), true
		result.Detail = "the code was stopped: it printed more than 64 MiB"
	case done.Reason == "" && result.Status == sdk.StatusFailed && saysOutOfMemory(stderr):
		result.Status = sdk.StatusOutOfMemory
	}
}

// saysOutOfMemory knows the last words of the interpreters.
func saysOutOfMemory(stderr string) bool {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	last := lines[len(lines)-1]
	return last == "MemoryError" || strings.HasPrefix(last, "MemoryError: ") || strings.Contains(stderr, "JavaScript heap out of memory")
}

// tailed keeps the end of a stream.
type tailed struct{ text string }

const tailSize = 4 << 10

func (t *tailed) add(p []byte) {
	t.text += string(p[max(0, len(p)-tailSize):])
	t.text = t.text[max(0, len(t.text)-tailSize):]
}
