package guest

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// execution is one piece of code on its way through an interpreter.
type execution struct {
	ctx      context.Context
	process  *process
	inspects bool // the interpreter sends an inspection first
	report   *report
}

func execute(ctx context.Context, in *interpreters, guard *memory.Guard, policy codepolicy.Policy, running *interruptible, req *providerv1.ExecuteRequest, stream executionStream) error {
	var callMain bool
	var found inspection
	if req.GetLanguage() == JavaScript {
		callMain, found = inspectJavaScript(policy, req)
	}
	if found.Blocked {
		return sendBlocked(stream, found)
	}
	payload, err := requestPayload(req, callMain)
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "encode request: %w", err)
	}
	p, err := in.take(req.GetLanguage())
	switch {
	case errors.Is(err, errUnknownLanguage):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "%w", err)
	case err != nil:
		return sdk.Errorf(sdk.CodeUnavailable, "the interpreter could not be started: %w", err)
	}
	defer in.replace(req.GetLanguage())
	e := &execution{ctx: ctx, process: p, inspects: req.GetLanguage() == Python, report: newReport(stream, req)}
	e.report.inspection = found
	e.report.calls = e.report.calls || callMain
	result, err := e.perform(guard, running, stream, req, payload)
	if err != nil {
		return err
	}
	// Nothing else is left to do, so that the answer and its end go out as one.
	return e.report.finish(result)
}

// perform runs the code, and returns when nothing of it is left but its result.
func (e *execution) perform(guard *memory.Guard, running *interruptible, stream executionStream, req *providerv1.ExecuteRequest, payload []byte) (sdk.ExecuteResult, error) {
	p := e.process
	defer p.wait()
	guarded := guard.Watch(p)
	defer guarded.Release()
	interrupts, err := running.add(req.GetExecutionId(), p)
	if err != nil {
		p.Kill()
		return sdk.ExecuteResult{}, err
	}
	defer interrupts.ended()

	if err := stream.SendHeader(nil); err != nil {
		p.Kill()
		return sdk.ExecuteResult{}, err
	}
	started := time.Now()
	outcome, exit := e.run(payload, req.GetTimeout().AsDuration(), guarded)
	if interrupts.ended() {
		outcome = sdk.StatusCancelled
	}
	elapsed := time.Since(started)
	p.wait() // the answer shall not come before the last process has gone
	if err := e.ctx.Err(); err != nil {
		return sdk.ExecuteResult{}, err
	}
	e.report.files()
	return sdk.ExecuteResult{Status: outcome, ExitCode: exit.Code, Duration: elapsed, PeakMemoryBytes: exit.PeakBytes}, nil
}

// sendBlocked answers for code that no interpreter has seen.
func sendBlocked(stream executionStream, found inspection) error {
	return answer(stream, sdk.ExecuteResult{Status: sdk.StatusBlocked, ExitCode: exitBlocked, Findings: found.findings()})
}

// answer begins and ends the answer for code that did not run.
func answer(stream executionStream, result sdk.ExecuteResult) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	return stream.Send(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Result{Result: inWords(result, 0)}})
}

// run feeds the interpreter, forwards its output and returns when it and all it
// started are gone and everything they wrote was sent.
func (e *execution) run(payload []byte, timeout time.Duration, guarded *memory.Guarded) (sdk.Status, isolation.Exit) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = e.process.request.Write(payload) // an interpreter that is gone tells by its exit
		_ = e.process.request.Close()
	})
	wg.Go(func() { e.forward(e.process.stdout, stdout) })
	wg.Go(func() { e.forward(e.process.stderr, stderr) })
	wg.Go(e.readFrames)

	type ended struct {
		isolation.Exit
		ok bool
	}
	exited := make(chan ended, 1)
	wg.Go(func() {
		exit, ok := e.process.Exit()
		exited <- ended{exit, ok}
	})
	timer := time.NewTimer(timeout)
	defer timer.Stop()

	outcome := byItself
	var end ended
	select {
	case end = <-exited:
	case <-timer.C:
		outcome = sdk.StatusTimeout
		e.process.Kill()
		end = <-exited
	case <-e.ctx.Done():
		e.process.Kill()
		end = <-exited
	}
	// The interpreter has ended; its init is about to, and takes along what was
	// left running. Being killed first does not hurt.
	e.process.Kill()
	e.process.waitGone()
	if !end.ok {
		end.Code = 128 + 9
	}
	if outcome == byItself && guarded.EndedForMemory(end.Exit, end.ok) {
		outcome = sdk.StatusOutOfMemory
	}
	return outcome, end.Exit
}

// forward sends a stream up to the limit and drains the rest: a full pipe would
// stop the program.
func (e *execution) forward(from *pipe.Reader, stream int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := readLines(from, buf)
		e.report.output(stream, buf[:n])
		if err != nil {
			return
		}
	}
}

// readFrames takes what the runner reports.
func (e *execution) readFrames() {
	reader := frames.NewReader(e.process.result)
	for first := true; ; first = false {
		f, err := reader.Next(e.report.wants)
		if err != nil {
			break
		}
		if f.Kind == frames.Inspection && first && e.inspects {
			e.report.inspected(f)
			continue
		}
		e.report.take(f)
	}
	_, _ = io.Copy(io.Discard, e.process.result)
}

// lineWait is how long the end of a line is waited for. Python, unbuffered, writes
// what print was given and the line end apart.
const lineWait = 2 * time.Millisecond

// readLines reads what there is. Where that ends amid a line, it waits a moment for
// the rest, which saves a message of its own all the way to the caller.
func readLines(from *pipe.Reader, buf []byte) (int, error) {
	n, err := from.Read(buf)
	if err != nil || n == len(buf) || buf[n-1] == '\n' || from.SetReadDeadline(time.Now().Add(lineWait)) != nil {
		return n, err
	}
	for err == nil && n < len(buf) && buf[n-1] != '\n' {
		var more int
		more, err = from.Read(buf[n:])
		n += more
	}
	if resetErr := from.SetReadDeadline(time.Time{}); resetErr != nil {
		return n, resetErr
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}
