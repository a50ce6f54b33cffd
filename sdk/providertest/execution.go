package providertest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Limits that an execution gets unless a case says otherwise; the first is before
// patience.
const (
	codeTimeout = 20 * time.Second
	outputLimit = 1 << 20
)

// heard is the output of an execution.
type heard struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
	tooLong        int // the longest chunk above the limit
	more           chan struct{}
}

var _ sdk.Output = (*heard)(nil)

func newHeard() *heard { return &heard{more: make(chan struct{}, 1)} }

func (h *heard) Stdout(p []byte) error { return h.write(&h.stdout, p) }
func (h *heard) Stderr(p []byte) error { return h.write(&h.stderr, p) }

func (h *heard) write(to *bytes.Buffer, p []byte) error {
	h.mu.Lock()
	to.Write(p)
	if len(p) > sdk.MaxOutputChunk {
		h.tooLong = max(h.tooLong, len(p))
	}
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
	return nil
}

func (h *heard) Artifact(a sdk.Artifact) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.Data = bytes.Clone(a.Data)
	h.artifacts = append(h.artifacts, a)
	return nil
}

func (h *heard) out() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stdout.String()
}

// outcome is an execution that has ended.
type outcome struct {
	sdk.ExecuteResult
	stdout, stderr string
	artifacts      []sdk.Artifact
	longestChunk   int
	err            error
	trial          *trial
}

// succeeded checks that the code has.
func (o outcome) succeeded() {
	if o.Status != sdk.StatusSucceeded || o.ExitCode != 0 {
		o.trial.fail("the status is %s with exit code %d and not succeeded; detail %q, stderr %s", o.Status, o.ExitCode, o.Detail, shown(o.stderr))
	}
}

// printed checks that the code succeeded, and what it printed.
func (o outcome) printed(want string) {
	o.succeeded()
	equal(o.trial, o.stdout, want, "stdout")
}

// failedInCode checks that the code failed, by its own fault, and says why.
func (o outcome) failedInCode() {
	if o.Status != sdk.StatusFailed || o.ExitCode == 0 {
		o.trial.fail("the status is %s with exit code %d; it must be failed, with an exit code that is not 0 (stdout %s)", o.Status, o.ExitCode, shown(o.stdout))
	}
	o.trial.check(o.stderr != "", "stderr is empty; it must say what went wrong")
}

// execution is one that may still run.
type execution struct {
	*heard
	request sdk.ExecuteRequest
	cancel  context.CancelFunc
	done    chan struct{}
	result  sdk.ExecuteResult
	err     error
	scene   *scene
}

// execute runs code and fails if it was not taken on.
func (c *scene) execute(req sdk.ExecuteRequest) outcome {
	got := c.tried(req)
	c.must(got.err, "execute")
	return got
}

// tried runs code and returns the error too.
func (c *scene) tried(req sdk.ExecuteRequest) outcome {
	out := c.begin(c.ctx, req)
	limit := c.suite.within(callTimeout)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-out.done:
	case <-timer.C:
		out.cancel()
		<-out.done
		c.fail("Execute did not return within %v, although the code had %v", limit, req.Timeout)
	}
	return out.outcome()
}

// begin starts an execution and lets it run.
func (c *scene) begin(ctx context.Context, req sdk.ExecuteRequest) *execution {
	ctx, cancel := context.WithCancel(ctx)
	e := &execution{heard: newHeard(), request: req, cancel: cancel, done: make(chan struct{}), scene: c}
	c.later(func() { cancel(); <-e.done })
	go func() {
		defer close(e.done)
		e.result, e.err = c.Execute(ctx, req, e.heard)
	}()
	return e
}

// outcome may be called when done is closed.
func (e *execution) outcome() outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	return outcome{e.result, e.stdout.String(), e.stderr.String(), e.artifacts, e.tooLong, e.err, e.scene.trial}
}

// saying waits until the code has printed what shows that it runs.
func (e *execution) saying(word string) {
	limit := e.scene.suite.within(callTimeout)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !bytes.Contains([]byte(e.out()), []byte(word)) {
		select {
		case <-e.more:
		case <-e.done:
			got := e.outcome()
			if bytes.Contains([]byte(got.stdout), []byte(word)) {
				return
			}
			e.scene.fail("the code ended (%s, %v) before it had printed %q; stderr %s", got.Status, got.err, word, shown(got.stderr))
		case <-timer.C:
			e.scene.fail("%q did not arrive within %v while the code ran", word, limit)
		}
	}
}

// await waits for the end of an execution.
func (e *execution) await(limit time.Duration, after string) outcome {
	limit = e.scene.suite.within(limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.done:
	case <-timer.C:
		e.scene.fail("Execute did not return within %v after %s", limit, after)
	}
	return e.outcome()
}

// goesOn checks that nothing ends an execution. What ends it may need a moment: for
// one that shall not, that is waited out.
func (e *execution) goesOn(after string) {
	moment := time.NewTimer(2 * silence)
	defer moment.Stop()
	select {
	case <-e.done:
		got := e.outcome()
		e.scene.fail("%s ended an execution: %s, %v", after, got.Status, got.err)
	case <-moment.C:
	}
}

// interrupt has the provider interrupt it.
func (e *execution) interrupt() {
	e.scene.must(e.scene.call("Interrupt", func(ctx context.Context) error {
		return e.scene.Interrupt(ctx, e.request.InstanceID, e.request.ExecutionID)
	}), "interrupt")
}

// cancelled waits for the end of interrupted code.
func (e *execution) cancelled() outcome {
	got := e.await(settleTimeout, "it was interrupted")
	e.scene.must(got.err, "an execution that was interrupted")
	equal(e.scene, got.Status, sdk.StatusCancelled, "the status of interrupted code")
	equal(e.scene, got.stdout, "ready\n", "the output so far")
	return got
}

// isContextEnd reports whether an error is that of a context which ended.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
