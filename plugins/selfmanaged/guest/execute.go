package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/codepolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
)

// eventSender is the part of a gRPC stream that an execution needs.
type eventSender interface {
	Send(*guestv1.ExecuteResponse) error
}

// execution is one piece of code on its way through an interpreter.
type execution struct {
	ctx     context.Context
	process *process
	limit   int64
	judged  bool // the interpreter tells a verdict first

	mu        sync.Mutex // a gRPC stream takes one sender at a time
	stream    eventSender
	truncated bool
	result    []byte
	verdict   verdict
}

func execute(ctx context.Context, in *interpreters, guard *memory.Guard, policy codepolicy.Policy, running *interruptible, req *guestv1.ExecuteRequest, stream eventSender) error {
	var callMain bool
	var verdict verdict
	if req.GetLanguage() == JavaScript {
		callMain, verdict = inspectJavaScript(policy, req)
	}
	if verdict.Blocked {
		return sendBlocked(stream, verdict)
	}
	payload, err := requestPayload(req, callMain)
	if err != nil {
		return status.Errorf(codes.Internal, "encode request: %v", err)
	}
	p, err := in.take(req.GetLanguage())
	switch {
	case errors.Is(err, errUnknownLanguage):
		return status.Error(codes.Unimplemented, err.Error())
	case err != nil:
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	defer in.replace(req.GetLanguage())
	defer p.wait()

	e := &execution{
		ctx: ctx, process: p, limit: req.GetOutputLimit(), stream: stream,
		judged: req.GetLanguage() == Python && policy.Mode != codepolicy.Off, verdict: verdict,
	}
	guarded := guard.Watch(p)
	defer guarded.Release()
	interrupts, err := running.add(req.GetExecutionId(), p)
	if err != nil {
		p.Kill()
		return err
	}
	defer interrupts.ended()

	if err := stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Started{Started: &guestv1.ExecuteStarted{}}}); err != nil {
		p.Kill()
		return err
	}
	started := time.Now()
	outcome, exit := e.run(payload, req.GetTimeout().AsDuration(), guarded)
	if interrupts.ended() {
		outcome = guestv1.ExecuteResult_OUTCOME_CANCELLED
	}
	elapsed := time.Since(started)
	p.wait() // the answer shall not come before the last process has gone
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	result := &guestv1.ExecuteResult{
		Outcome:         outcome,
		ExitCode:        int32(exit.Code),
		Duration:        durationpb.New(elapsed),
		Truncated:       e.truncated,
		PeakMemoryBytes: exit.PeakBytes,
		Findings:        findingsToWire(e.verdict.Findings),
	}
	if e.verdict.Blocked {
		result.Outcome, result.ExitCode = guestv1.ExecuteResult_OUTCOME_BLOCKED, exitBlocked
	}
	// What failed or was stopped has returned nothing, whatever it wrote.
	if result.Outcome == guestv1.ExecuteResult_OUTCOME_EXITED && result.ExitCode == 0 && json.Valid(e.result) {
		result.Result = e.result
	}
	return stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Result{Result: result}})
}

// sendBlocked answers for code that no interpreter has seen.
func sendBlocked(stream eventSender, v verdict) error {
	if err := stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Started{Started: &guestv1.ExecuteStarted{}}}); err != nil {
		return err
	}
	return stream.Send(&guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Result{Result: &guestv1.ExecuteResult{
		Outcome: guestv1.ExecuteResult_OUTCOME_BLOCKED, ExitCode: exitBlocked, Findings: findingsToWire(v.Findings),
	}}})
}

// run feeds the interpreter, forwards its output and returns when it and all it
// started are gone and everything they wrote was sent.
func (e *execution) run(payload []byte, timeout time.Duration, guarded *memory.Guarded) (guestv1.ExecuteResult_Outcome, isolation.Exit) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		_, _ = e.process.request.Write(payload) // an interpreter that is gone tells by its exit
		_ = e.process.request.Close()
	})
	wg.Go(func() { e.forward(e.process.stdout, stdoutEvent) })
	wg.Go(func() { e.forward(e.process.stderr, stderrEvent) })
	wg.Go(func() { e.readResult() })

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

	outcome := guestv1.ExecuteResult_OUTCOME_EXITED
	var end ended
	select {
	case end = <-exited:
	case <-timer.C:
		outcome = guestv1.ExecuteResult_OUTCOME_TIMEOUT
		e.process.Kill()
		end = <-exited
	case <-e.ctx.Done():
		e.process.Kill()
		end = <-exited
	}
	// The interpreter has ended; its init is about to, and takes along what was
	// left running. Being killed first does not hurt.
	e.process.Kill()
	if !end.ok {
		end.Code = 128 + 9
	}
	if !end.ok && outcome == guestv1.ExecuteResult_OUTCOME_EXITED && guarded.Killed() {
		outcome = guestv1.ExecuteResult_OUTCOME_OUT_OF_MEMORY
	}
	return outcome, end.Exit
}

// forward sends a stream up to the limit and drains the rest: a full pipe would
// stop the program.
func (e *execution) forward(from *os.File, event func([]byte) *guestv1.ExecuteResponse) {
	left := e.limit
	buf := make([]byte, 64<<10)
	for {
		n, err := readLines(from, buf)
		if chunk := buf[:min(int64(n), left)]; len(chunk) > 0 {
			left -= int64(len(chunk))
			e.send(event(append([]byte(nil), chunk...)))
		}
		if err != nil {
			return
		}
		if int64(n) > left && left == 0 {
			e.mu.Lock()
			e.truncated = true
			e.mu.Unlock()
		}
	}
}

// lineWait is how long the end of a line is waited for. Python, unbuffered, writes
// what print was given and the line end apart.
const lineWait = 2 * time.Millisecond

// readLines reads what there is. Where that ends amid a line, it waits a moment for
// the rest, which saves a message of its own all the way to the caller.
func readLines(from *os.File, buf []byte) (int, error) {
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

// send ignores errors: they mean that the call is over, which its context tells.
func (e *execution) send(event *guestv1.ExecuteResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.stream.Send(event)
}

// readResult takes what the runner reports of main's return value.
func (e *execution) readResult() {
	var from io.Reader = e.process.result
	if e.judged {
		lines := bufio.NewReader(from)
		e.verdict = readVerdict(lines)
		from = lines
	}
	result, err := io.ReadAll(io.LimitReader(from, e.limit+1))
	_, _ = io.Copy(io.Discard, from)
	if err == nil && int64(len(result)) <= e.limit {
		e.result = result
	}
}

func stdoutEvent(p []byte) *guestv1.ExecuteResponse {
	return &guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Stdout{Stdout: p}}
}

func stderrEvent(p []byte) *guestv1.ExecuteResponse {
	return &guestv1.ExecuteResponse{Event: &guestv1.ExecuteResponse_Stderr{Stderr: p}}
}

// runnerRequest is what the runners read.
type runnerRequest struct {
	Code        string            `json:"code"`
	Arguments   *json.RawMessage  `json:"arguments"`
	Env         map[string]string `json:"env"`
	CallMain    bool              `json:"call_main"` // JavaScript: defined and not used by the code itself
	ResultLimit int64             `json:"result_limit"`
}

// requestPayload is what an interpreter reads from its request descriptor.
func requestPayload(req *guestv1.ExecuteRequest, callMain bool) ([]byte, error) {
	if req.GetLanguage() == Bash {
		return shellPayload(req), nil
	}
	r := runnerRequest{Code: req.GetCode(), Env: req.GetEnv(), CallMain: callMain, ResultLimit: req.GetOutputLimit()}
	if req.Arguments != nil {
		raw := json.RawMessage(req.GetArguments())
		r.Arguments = &raw
	}
	return json.Marshal(r)
}

// shellPayload is the code behind the variables of the request, all on the first
// line, so that line numbers in messages are those of the code.
func shellPayload(req *guestv1.ExecuteRequest) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(req.GetEnv())) {
		fmt.Fprintf(&b, "export %s=%s 2>/dev/null;", name, shellQuote(req.GetEnv()[name]))
	}
	b.WriteString(req.GetCode())
	return []byte(b.String())
}

// shellQuote writes a string as one word of bash without a line end in it.
func shellQuote(s string) string {
	return "$'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
}
