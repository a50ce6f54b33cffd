package guest

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/esm"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// InterruptGrace is how long code in a context may go on after it was interrupted.
// Then its interpreter is killed, and the state with it.
const InterruptGrace = time.Second

// exitInterrupted is the exit code of code that was interrupted.
const exitInterrupted = 130

// stateKept is told of an execution that was interrupted and ended by that.
const stateKept = "the state of the context was kept"

// execute runs code in the context. It waits until those before it have ended.
func (c *codeContext) execute(ctx context.Context, running *interruptible, req *providerv1.ExecuteRequest, stream executionStream) error {
	if req.GetLanguage() != "" && req.GetLanguage() != c.language {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "the context is for %s", c.language)
	}
	if c.language == Bash && req.Arguments != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to give them to; use env")
	}
	target := newContextTarget(ctx)
	defer target.end()
	interrupts, err := running.add(req.GetExecutionId(), target)
	if err != nil {
		return err
	}
	defer interrupts.ended()
	if err := c.enter(target.waiting); err != nil {
		if interrupts.ended() && ctx.Err() == nil {
			return sendCancelled(stream)
		}
		return err
	}
	defer c.leave()
	c.busy.Store(true)
	defer c.busy.Store(false)

	var found inspection
	if c.language == JavaScript {
		_, found = inspectJavaScript(c.policy, req)
		if found.Blocked {
			return sendBlocked(stream, found)
		}
	}
	r, lost, err := c.interpreter(ctx)
	if err != nil {
		return err
	}
	if c.wasRestarted() {
		return sdk.FieldErrorf(sdk.CodeConflict, "context_id", "the context was restarted or deleted before the code began")
	}
	e := &contextExecution{context: c, resident: r, inspects: c.language == Python, report: newReport(stream, req)}
	e.report.inspection = found
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	target.runs(r.process)
	result, err := e.run(ctx, req)
	if err != nil {
		return err
	}
	if interrupts.ended() {
		result.Status = sdk.StatusCancelled
		if result.Detail == "" {
			result.Detail = stateKept
		}
	}
	if lost != "" {
		result.Detail = lost + " since the last execution, so this one began with a fresh one" + andThen(result.Detail)
	}
	e.report.files()
	return e.report.finish(result)
}

// contextExecution is one piece of code in a context.
type contextExecution struct {
	context  *codeContext
	resident *resident
	report   *report
	inspects bool // the runner sends an inspection first
	number   int64
}

func (e *contextExecution) run(ctx context.Context, req *providerv1.ExecuteRequest) (sdk.ExecuteResult, error) {
	r := e.resident
	r.executions++
	e.number = r.executions
	payload, err := e.payload(req)
	if err != nil {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "is no JSON")
	}
	wants := e.report.wants
	r.want(func(f frames.Frame) bool { return f.Execution == e.number && wants(f) })
	for i, t := range r.output {
		t.to(func(p []byte) { e.report.output(i, p) })
	}
	started := time.Now()
	written := make(chan error, 1)
	go func() { written <- r.send(payload) }()

	done, outcome := e.await(ctx, req.GetTimeout().AsDuration())
	elapsed := time.Since(started)
	if done != nil {
		// A runner that has not even read the request lies about its end.
		select {
		case err := <-written:
			if err != nil {
				done = nil
			}
		case <-time.After(InterruptGrace):
			done = nil
		}
	}
	result := sdk.ExecuteResult{Status: outcome, Duration: elapsed}
	if done != nil {
		for _, t := range r.output {
			t.flush()
		}
		result.ExitCode, result.PeakMemoryBytes = int(done.ExitCode&0xff), max(done.PeakBytes, 0) // as of a process
		if outcome == sdk.StatusTimeout {
			result.Detail = stateKept
		}
	} else {
		e.context.drop(r)
		e.explainEnd(&result)
	}
	for _, t := range r.output {
		t.to(nil)
	}
	r.want(nil)
	if ctx.Err() != nil {
		if done == nil {
			e.context.forget("the interpreter of the context had to be killed when an execution was cancelled")
		}
		return sdk.ExecuteResult{}, ctx.Err()
	}
	return result, nil
}

// payload is what the interpreter reads.
func (e *contextExecution) payload(req *providerv1.ExecuteRequest) ([]byte, error) {
	renewal := e.context.renewal.Swap(nil)
	if e.context.language == Bash {
		return shellRequest(req, e.number, renewal), nil
	}
	request := newRunnerRequest(req)
	request.Execution, request.Renewal = e.number, renewal
	if e.context.language == JavaScript {
		request.Code = esm.Script(request.Code)
	}
	return line(request)
}

// await takes what the runner reports until the execution has ended. Without a
// done frame the interpreter has ended, or must be.
func (e *contextExecution) await(ctx context.Context, timeout time.Duration) (*frames.Frame, sdk.Status) {
	outcome := byItself
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var grace <-chan time.Time
	cancelled := ctx.Done()
	interrupt := func() {
		cancelled = nil
		timer.Stop()
		e.resident.process.Interrupt()
		grace = time.After(InterruptGrace)
	}
	for first := true; ; {
		select {
		case f, ok := <-e.resident.frames:
			switch {
			case !ok:
				return nil, outcome
			case f.Execution != e.number: // of a thread that an earlier one left behind
			case f.Kind == frames.Done:
				return &f, outcome
			case f.Kind == frames.Inspection && first && e.inspects:
				e.report.inspected(f)
				first = false
			default:
				e.report.take(f)
				first = false
			}
		case <-timer.C:
			outcome = sdk.StatusTimeout
			interrupt()
		case <-cancelled:
			interrupt()
		case <-grace:
			return nil, outcome
		}
	}
}

// explainEnd says how an execution ended that took the interpreter with it.
func (e *contextExecution) explainEnd(result *sdk.ExecuteResult) {
	r := e.resident
	const afresh = "; the context starts afresh, without its state"
	result.ExitCode = 128 + 9
	if r.whole {
		result.ExitCode = r.exit.Code
	}
	switch {
	case e.context.wasRestarted():
		result.Status, result.Detail = sdk.StatusCancelled, "the context was restarted or deleted while the code ran"
	case result.Status == sdk.StatusTimeout:
		result.Detail = fmt.Sprintf("the code went on for %s after it was interrupted, so its interpreter was killed", InterruptGrace) + afresh
	case r.oom:
		result.Status, result.Detail = sdk.StatusOutOfMemory, r.whyEnded()+afresh
	default:
		result.Detail = r.whyEnded() + afresh
	}
}

// forget keeps for the next execution why it finds no state.
func (c *codeContext) forget(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.restarted {
		c.lost = why
	}
}

// andThen puts a sentence behind another one, if there is one.
func andThen(text string) string {
	if text == "" {
		return ""
	}
	return "; " + text
}
