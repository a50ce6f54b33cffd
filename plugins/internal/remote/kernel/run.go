package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Result is what became of an execution.
type Result = sdk.ExecuteResult

// Run is one execution in a kernel.
type Run struct {
	Kernel   Kernel
	Request  sdk.ExecuteRequest
	Out      sdk.Output
	Language sdk.Language
	// Execution is it, as those who interrupt it know it.
	Execution *remote.Execution
	// Files finds what the code has made.
	Files artifacts.Finder
	// Limit is how long the code may run. Where it is shorter than the one asked for, Cut
	// says so.
	Limit time.Duration
	Cut   string
	// Grace is how long interrupted code may take to end.
	Grace time.Duration

	failed *Error
	// own is the cell that calls main, once it was begun.
	own    string
	groups int
	// begun says that some of the code may run, or has run.
	begun bool
	stop  context.CancelCauseFunc
}

// Why code was stopped, beside the end of its caller's context.
var (
	errTimeout     = errors.New("its time is over")
	errInterrupted = errors.New("it was interrupted")
	errGone        = errors.New("the kernel is gone")
)

// outputError is that nobody takes the output.
type outputError struct{ error }

func (e *outputError) Unwrap() error { return e.error }

// Do runs the code. Its errors say whether anything of it may have run.
func (r *Run) Do(ctx context.Context) (Result, error) {
	result, err := r.do(ctx)
	return result, sdk.ExecutionError(err, r.begun)
}

func (r *Run) do(ctx context.Context) (Result, error) {
	before, err := r.Files.Before(ctx, r.Request.Artifacts)
	if err != nil {
		return Result{}, err
	}
	if err := r.Kernel.Ready(ctx); err != nil {
		return Result{}, r.Kernel.Explain(ctx, err)
	}
	// The code is to stop at the end of stopping. At the end of listening, which may be a
	// little later, nobody listens to it any more.
	stopping, cancel := context.WithTimeoutCause(ctx, r.Limit, errTimeout)
	defer cancel()
	stopping, r.stop = context.WithCancelCause(stopping)
	defer r.stop(nil)
	listening, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	r.Execution.Reached(func(context.Context) error { r.stop(errInterrupted); return nil })

	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { r.interrupt(stopping, over, giveUp) })
	watching.Go(func() { r.Kernel.Watch(over, giveUp) })
	began := time.Now()
	ended, err := r.cells(listening, stopping)
	close(over)
	watching.Wait()
	result := Result{Status: sdk.StatusSucceeded, Duration: time.Since(began)}
	cleaning, done := context.WithTimeout(context.WithoutCancel(ctx), ending)
	defer done()
	cause := context.Cause(stopping)
	whole := err == nil && cause == nil
	switch {
	case errors.Is(cause, errGone):
		result, err = r.gone(result)
	case whole:
		cleaning = ctx
		result, err = r.completed(ctx, result, nil)
	case err == nil:
		result, err = r.completed(cleaning, result, cause)
	default:
		result, err = r.broken(cleaning, result, cause, ended, err)
	}
	if err != nil {
		return result, err
	}
	// What is known of code that was stopped is worth more than its files.
	if sent := r.Files.SendNew(cleaning, before, r.Request.Artifacts, r.Out); whole {
		return result, sent
	}
	return result, nil
}

// interrupt waits until the code is to be stopped, and does what Ctrl-C does. If that is of
// no use, it calls giveUp. It returns when over ends.
func (r *Run) interrupt(stopping context.Context, over <-chan struct{}, giveUp func()) {
	select {
	case <-stopping.Done():
	case <-r.Kernel.Gone():
		r.stop(errGone)
		giveUp()
		return
	case <-over:
		return
	}
	// Waited for, so that it does not hit what comes next.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stopping), interrupting)
	defer cancel()
	if r.Language != sdk.Python || !r.Kernel.Interrupt(ctx) { // no other goes on for sure
		giveUp()
		return
	}
	grace := time.NewTimer(r.Grace)
	defer grace.Stop()
	select {
	case <-over:
	case <-grace.C:
		giveUp()
	case <-r.Kernel.Gone():
		giveUp()
	}
}

// cells runs the code, and around it what its environment and arguments need. None is begun
// when stopping has ended. If one has failed, ended says whether it came to its end.
func (r *Run) cells(ctx, stopping context.Context) (ended bool, err error) {
	if before := r.Kernel.Before(); before != "" {
		if ended, err := r.Kernel.Cell(ctx, before, Quietly); err != nil {
			return ended, err
		}
	}
	codes := []string{r.Request.Code}
	if r.Request.Arguments != nil {
		codes = append(codes, r.Kernel.Call())
	}
	for i, code := range codes {
		if r.failed != nil || stopping.Err() != nil {
			break
		}
		if i > 0 {
			r.own = code
		}
		ended, err := r.Kernel.Cell(ctx, code, r.event)
		_, heard := errors.AsType[*outputError](err)
		r.begun = r.begun || err == nil || heard || r.Kernel.Class(err) != Refused
		if err != nil {
			return ended, err
		}
	}
	if after := r.Kernel.After(); after != "" {
		return r.Kernel.Cell(ctx, after, Quietly)
	}
	return true, nil
}

// CellError is the failure of a cell of our own.
type CellError struct{ Cause Error }

// Error says how it failed.
func (e *CellError) Error() string {
	return "a cell of the provider failed: " + e.Cause.Name + ": " + e.Cause.Value
}

// Quietly shows nothing of a cell of our own.
func Quietly(ev Event) error {
	if ev.Error != nil {
		return &CellError{*ev.Error}
	}
	return nil
}

// event passes on what a cell does. Where nobody takes it, the code is stopped.
func (r *Run) event(ev Event) error {
	var err error
	switch {
	case len(ev.Stdout) > 0:
		err = r.Out.Stdout(ev.Stdout)
	case len(ev.Stderr) > 0:
		err = r.Out.Stderr(ev.Stderr)
	case ev.Error != nil:
		r.failed = ev.Error
	case ev.Value != nil && r.Request.Artifacts != nil:
		err = r.show(*ev.Value)
	}
	if err != nil {
		err = &outputError{err}
		r.stop(err)
	}
	return err
}

// show passes on a value, in all its forms.
func (r *Run) show(v Value) error {
	kind := sdk.ArtifactDisplay
	if v.Main {
		kind = sdk.ArtifactResult
	}
	r.groups++
	for _, mime := range slices.Sorted(maps.Keys(v.Forms)) {
		data := v.Forms[mime]
		if err := r.Out.Artifact(sdk.Artifact{Kind: kind, MIMEType: mime, Data: data, Size: int64(len(data)), Group: r.groups}); err != nil {
			return err
		}
	}
	return nil
}

// drain passes on all that is left, and returns what main returned.
func (r *Run) drain(ctx context.Context) (json.RawMessage, error) {
	value, err := r.Kernel.Drain(ctx, r.event)
	if err != nil || r.failed == nil {
		return value, err
	}
	if text := r.failed.shown(r.own); text != "" {
		return value, r.event(Event{Stderr: []byte(text)})
	}
	return value, nil
}

// completed says what became of code that came to its end, by itself or because it was
// stopped for that cause. Its context goes on.
func (r *Run) completed(ctx context.Context, result Result, cause error) (Result, error) {
	value, err := r.drain(ctx)
	if err != nil {
		return result, r.explained(ctx, err)
	}
	switch {
	case r.failed != nil:
		if result.ExitCode = r.failed.exitCode(); result.ExitCode != 0 {
			result.Status = sdk.StatusFailed
		}
		if r.failed.Name == "MemoryError" {
			result.Status = sdk.StatusOutOfMemory
		}
		if err := r.Kernel.Settled(ctx, *r.failed, &result); err != nil {
			return result, err
		}
	case r.Request.Arguments != nil && value == nil:
		result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 1, noResult
	default:
		result.Result = value
	}
	if cause == nil {
		return result, nil
	}
	if err := r.stopped(&result, cause); err != nil {
		return result, err
	}
	if result.ExitCode == 0 {
		result.ExitCode = 128 + 2
	}
	return result, nil
}

// stopped says why code was stopped; an error is that there is nobody to say it to.
func (r *Run) stopped(result *Result, cause error) error {
	switch {
	case errors.Is(cause, errTimeout) && !r.Execution.Interrupted():
		result.Status = sdk.StatusTimeout
		if r.Cut != "" && r.Limit < r.Request.Timeout {
			result.Detail = strings.TrimPrefix(result.Detail+"; "+r.Cut, "; ")
		}
	case r.Execution.Interrupted():
		result.Status = sdk.StatusCancelled
	default:
		if e, ok := errors.AsType[*outputError](cause); ok {
			return e.error
		}
		return cause
	}
	result.Result = nil
	return nil
}

// gone says what became of code whose kernel somebody else has ended, also of such as had not
// begun by then.
func (r *Run) gone(result Result) (Result, error) {
	if lost := r.Kernel.Lost(); lost != nil {
		return result, lost
	}
	result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, 128+9, restarted
	return result, nil
}

// broken says what became of code that did not come to its end, and sees to it that the
// context can be used.
func (r *Run) broken(ctx context.Context, result Result, cause error, ended bool, err error) (Result, error) {
	select {
	case <-r.Kernel.Gone():
		return r.gone(result)
	default:
	}
	class := r.Kernel.Class(err)
	if cause == nil && class == TimedOut {
		cause = errTimeout
	}
	if cause == nil {
		if death, dead := r.Kernel.Died(ctx, err); dead {
			return r.died(ctx, result, death)
		}
	}
	if ended || cause == nil && class != Open {
		return result, r.explained(ctx, err)
	}
	_, drained := r.drain(ctx)
	if err := r.Kernel.Restart(ctx); err != nil {
		return result, err
	}
	if cause == nil {
		return result, r.explained(ctx, err)
	}
	result.ExitCode, result.Detail = 128+9, Unstoppable
	if err := r.stopped(&result, cause); err != nil {
		return result, err
	}
	return result, r.explained(ctx, drained)
}

// died says what became of code whose interpreter has ended, and starts another one.
func (r *Run) died(ctx context.Context, result Result, death Death) (Result, error) {
	_, drained := r.drain(ctx)
	if err := r.Kernel.Restart(ctx); err != nil {
		return result, err
	}
	result.Status, result.ExitCode, result.Detail = sdk.StatusFailed, death.Exit, Ended
	switch {
	case death.Memory:
		result.Status, result.ExitCode, result.Detail = sdk.StatusOutOfMemory, 128+9, Killed
	case death.Exit == 0:
		result.Status = sdk.StatusSucceeded
	}
	return result, r.explained(ctx, drained)
}

// explained makes an error for the broker.
func (r *Run) explained(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*outputError](err); ok {
		return e.error
	}
	if err == nil {
		return nil
	}
	return r.Kernel.Explain(ctx, err)
}
