package provider_test

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// stateful is a context in which x is 5.
type stateful struct {
	t       *testing.T
	p       *provider.Provider
	request func(code string) sdk.ExecuteRequest
}

func newStateful(t *testing.T, p *provider.Provider) stateful {
	t.Helper()
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	s := stateful{t, p, func(code string) sdk.ExecuteRequest {
		req := request(id, sdk.Python, code)
		req.ContextID = made.ID
		return req
	}}
	_, err = p.Execute(t.Context(), s.request("x = 5"), &heard{})
	assert.NilError(t, err)
	return s
}

// stopped runs code until it prints "ready", stops it, and returns what became of it.
func (s stateful) stopped(code string, stop func(req sdk.ExecuteRequest, leave func())) (sdk.ExecuteResult, error) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	type end struct {
		sdk.ExecuteResult
		error
	}
	ended := make(chan end, 1)
	var out heard
	req := s.request(code)
	go func() {
		result, err := s.p.Execute(ctx, req, &out)
		ended <- end{result, err}
	}()
	poll.WaitOn(s.t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "ready\n")) }, poll.WithTimeout(2*time.Minute))
	stop(req, leave)
	got := <-ended
	return got.ExecuteResult, got.error
}

// x is the state that is left.
func (s stateful) x() string {
	s.t.Helper()
	var out heard
	result, err := s.p.Execute(s.t.Context(), s.request("print(globals().get('x'))"), &out)
	assert.NilError(s.t, err)
	assert.Equal(s.t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
	return out.out()
}

func TestAContextThatIsStoppedKeepsItsState(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	const waits, awaits = "import time; print('ready'); time.sleep(98765)", "import asyncio; print('ready'); await asyncio.sleep(98765)"
	interrupt := func(req sdk.ExecuteRequest, _ func()) {
		assert.NilError(t, p.Interrupt(t.Context(), req.InstanceID, req.ExecutionID))
	}
	for name, code := range map[string]string{"that waits": waits, "that awaits": awaits} {
		t.Run("code "+name+" is interrupted", func(t *testing.T) {
			s := newStateful(t, p)
			result, err := s.stopped(code, interrupt)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusCancelled)
			assert.Equal(t, result.ExitCode, 130)
			assert.Equal(t, result.Detail, "")
			assert.Equal(t, s.x(), "5\n")
		})
	}
	t.Run("its time is over", func(t *testing.T) {
		s := newStateful(t, p)
		req := s.request("import time; time.sleep(98765)")
		req.Timeout = time.Second
		result, err := p.Execute(t.Context(), req, &heard{})
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusTimeout)
		assert.Equal(t, result.Detail, "")
		assert.Equal(t, s.x(), "5\n")
	})
	t.Run("nobody waits for it any more", func(t *testing.T) {
		s := newStateful(t, p)
		_, err := s.stopped(waits, func(_ sdk.ExecuteRequest, leave func()) { leave() })
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, s.x(), "5\n")
	})
	t.Run("not if the code goes on", func(t *testing.T) {
		p := configured(t, server, nil)
		p.ExpectObedience(50 * time.Millisecond)
		s := newStateful(t, p)
		result, err := s.stopped("import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready'); time.sleep(98765)", func(req sdk.ExecuteRequest, _ func()) {
			assert.NilError(t, p.Interrupt(t.Context(), req.InstanceID, req.ExecutionID))
		})
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusCancelled)
		assert.Equal(t, result.Detail, "the context starts afresh: the code could not be stopped otherwise")
		assert.Equal(t, s.x(), "None\n")
	})
	t.Run("not if the kernel cannot be reached", func(t *testing.T) {
		s := newStateful(t, p)
		result, err := s.stopped(waits, func(req sdk.ExecuteRequest, _ func()) {
			inject(server, []string{"POST /process.Process/Start"}, e2bfake.Fault{Status: 500, Body: "x"}, 1)
			interrupt(req, nil)
		})
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusCancelled)
		assert.Equal(t, s.x(), "None\n")
	})
}
