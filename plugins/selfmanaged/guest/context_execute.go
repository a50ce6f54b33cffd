package guest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/esm"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/refusal"
)

// InterruptGrace is how long code in a context may go on after it was interrupted.
// Then its interpreter is killed, and the state with it.
const InterruptGrace = time.Second

// exitInterrupted is the exit code of code that was interrupted.
const exitInterrupted = 130

// stateKept is told of an execution that was interrupted and ended by that.
const stateKept = "the state of the context was kept"

// execute runs code in the context. It waits until those before it have ended.
func (c *codeContext) execute(ctx context.Context, running *interruptible, req *guestv1.ExecuteRequest, stream eventSender) error {
	if req.GetLanguage() != "" && req.GetLanguage() != c.language {
		return refusal.New(refusal.InvalidRequest, "language", "the context is for %s", c.language)
	}
	if c.language == Bash && req.Arguments != nil {
		return refusal.New(refusal.InvalidRequest, "arguments", "bash has no main to give them to; use env")
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

	var found verdict
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
		return refusal.New(refusal.Conflict, "context_id", "the context was restarted or deleted before the code began")
	}
	e := &contextExecution{context: c, resident: r, judged: c.language == Python, report: newReport(stream, req)}
	e.report.verdict = found
	if err := stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Started{Started: &guestv1.ExecuteStarted{}}}); err != nil {
		return err
	}
	target.runs(r.process)
	result, err := e.run(ctx, req)
	if err != nil {
		return err
	}
	if interrupts.ended() {
		result.Outcome = guestv1.ExecuteResult_OUTCOME_CANCELLED
		if result.GetDetail() == "" {
			result.Detail = stateKept
		}
	}
	if lost != "" {
		result.Detail = lost + " since the last execution, so this one began with a fresh one" + after("; ", result.GetDetail())
	}
	e.report.files()
	return e.report.finish(result)
}

// contextExecution is one piece of code in a context.
type contextExecution struct {
	context  *codeContext
	resident *resident
	report   *report
	judged   bool // the runner tells a verdict first
	number   int64
}

func (e *contextExecution) run(ctx context.Context, req *guestv1.ExecuteRequest) (*guestv1.ExecuteResult, error) {
	r := e.resident
	r.executions++
	e.number = r.executions
	payload, err := e.payload(req)
	if err != nil {
		return nil, refusal.New(refusal.InvalidRequest, "arguments", "is no JSON")
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
	result := &guestv1.ExecuteResult{Outcome: outcome, Duration: durationpb.New(elapsed)}
	if done != nil {
		for _, t := range r.output {
			t.flush()
		}
		result.ExitCode, result.PeakMemoryBytes = done.ExitCode&0xff, max(done.PeakBytes, 0) // as of a process
		if outcome == guestv1.ExecuteResult_OUTCOME_TIMEOUT {
			result.Detail = stateKept
		}
	} else {
		e.context.drop(r)
		e.explainEnd(result)
	}
	for _, t := range r.output {
		t.to(nil)
	}
	r.want(nil)
	if ctx.Err() != nil {
		if done == nil {
			e.context.forget("the interpreter of the context had to be killed when an execution was cancelled")
		}
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return result, nil
}

// payload is what the interpreter reads.
func (e *contextExecution) payload(req *guestv1.ExecuteRequest) ([]byte, error) {
	if e.context.language == Bash {
		return shellRequest(req, e.number), nil
	}
	request := newRunnerRequest(req)
	request.Execution = e.number
	if e.context.language == JavaScript {
		request.Code = esm.Script(request.Code)
	}
	return line(request)
}

// await takes what the runner reports until the execution has ended. Without a
// done frame the interpreter has ended, or must be.
func (e *contextExecution) await(ctx context.Context, timeout time.Duration) (*frames.Frame, guestv1.ExecuteResult_Outcome) {
	outcome := guestv1.ExecuteResult_OUTCOME_EXITED
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
			case f.Kind == frames.Verdict && first && e.judged:
				e.report.judge(f)
				first = false
			default:
				e.report.take(f)
				first = false
			}
		case <-timer.C:
			outcome = guestv1.ExecuteResult_OUTCOME_TIMEOUT
			interrupt()
		case <-cancelled:
			interrupt()
		case <-grace:
			return nil, outcome
		}
	}
}

// explainEnd says how an execution ended that took the interpreter with it.
func (e *contextExecution) explainEnd(result *guestv1.ExecuteResult) {
	r := e.resident
	const afresh = "; the context starts afresh, without its state"
	result.ExitCode = 128 + 9
	if r.whole {
		result.ExitCode = int32(r.exit.Code)
	}
	switch {
	case e.context.wasRestarted():
		result.Outcome, result.Detail = guestv1.ExecuteResult_OUTCOME_CANCELLED, "the context was restarted or deleted while the code ran"
	case result.GetOutcome() == guestv1.ExecuteResult_OUTCOME_TIMEOUT:
		result.Detail = fmt.Sprintf("the code went on for %s after it was interrupted, so its interpreter was killed", InterruptGrace) + afresh
	case r.guarded.Killed():
		result.Outcome, result.Detail = guestv1.ExecuteResult_OUTCOME_OUT_OF_MEMORY, r.whyEnded()+afresh
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

func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}
