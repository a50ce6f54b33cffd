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
}

// request is one for code in the case's language.
func (c *scene) request(instance, code string) sdk.ExecuteRequest {
	return sdk.ExecuteRequest{
		InstanceID: instance, ExecutionID: randomWord(), Language: c.language, Code: code,
		Timeout: c.suite.within(codeTimeout), OutputLimit: outputLimit,
	}
}

// lasting is one for code that waits until it is stopped: its own timeout shall not
// be what ends it.
func (c *scene) lasting(instance, sample string) sdk.ExecuteRequest {
	req := c.request(instance, c.code(sample))
	req.Timeout = c.suite.within(caseTimeout)
	return req
}

// code is the sample of the case's language; without one the case is skipped.
func (c *scene) code(sample string) string {
	if sample == "" {
		c.skip("there is no code for this in %s", c.language)
	}
	return sample
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

// run executes a sample in an instance.
func (c *scene) run(instance, sample string) outcome {
	return c.execute(c.request(instance, c.code(sample)))
}

// prints runs a sample and checks that it succeeds and what it prints.
func (c *scene) prints(instance, sample, want string) {
	got := c.run(instance, sample)
	c.succeeded(got)
	equal(c, got.stdout, want, "stdout")
}

func (c *scene) succeeded(got outcome) {
	if got.Status != sdk.StatusSucceeded || got.ExitCode != 0 {
		c.fail("the status is %s with exit code %d and not succeeded; detail %q, stderr %s", got.Status, got.ExitCode, got.Detail, shown(got.stderr))
	}
}

// failedInCode checks that the code failed, by its own fault, and says why.
func (c *scene) failedInCode(got outcome) {
	if got.Status != sdk.StatusFailed || got.ExitCode == 0 {
		c.fail("the status is %s with exit code %d; it must be failed, with an exit code that is not 0 (stdout %s)", got.Status, got.ExitCode, shown(got.stdout))
	}
	c.check(got.stderr != "", "stderr is empty; it must say what went wrong")
}

// execution is one that may still run.
type execution struct {
	*heard
	request sdk.ExecuteRequest
	cancel  context.CancelFunc
	done    chan struct{}
	result  sdk.ExecuteResult
	err     error
}

// begin starts an execution and lets it run.
func (c *scene) begin(ctx context.Context, req sdk.ExecuteRequest) *execution {
	return c.beginOn(ctx, c.session, req)
}

func (c *scene) beginOn(ctx context.Context, s *session, req sdk.ExecuteRequest) *execution {
	ctx, cancel := context.WithCancel(ctx)
	e := &execution{heard: newHeard(), request: req, cancel: cancel, done: make(chan struct{})}
	c.later(func() { cancel(); <-e.done })
	go func() {
		defer close(e.done)
		e.result, e.err = s.Execute(ctx, req, e.heard)
	}()
	return e
}

// outcome may be called when done is closed.
func (e *execution) outcome() outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	return outcome{e.result, e.stdout.String(), e.stderr.String(), e.artifacts, e.tooLong, e.err}
}

// saying waits until the code has printed what shows that it runs.
func (c *scene) saying(e *execution, word string) {
	limit := c.suite.within(callTimeout)
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
			c.fail("the code ended (%s, %v) before it had printed %q; stderr %s", got.Status, got.err, word, shown(got.stderr))
		case <-timer.C:
			c.fail("%q did not arrive within %v while the code ran", word, limit)
		}
	}
}

// await waits for the end of an execution.
func (c *scene) await(e *execution, limit time.Duration, after string) outcome {
	limit = c.suite.within(limit)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.done:
	case <-timer.C:
		c.fail("Execute did not return within %v after %s", limit, after)
	}
	return e.outcome()
}

// isContextEnd reports whether an error is that of a context which ended.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
