package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// keeping makes a server that keeps its answers.
func keeping(t *testing.T) func(*api.Options, *fixture) {
	t.Helper()
	s, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return keepingIn(t, s)
}

func keepingIn(t *testing.T, s *store.Store) func(*api.Options, *fixture) {
	t.Helper()
	answers, err := idempotency.Open(s)
	assert.NilError(t, err)
	return func(o *api.Options, _ *fixture) { o.Answers = answers }
}

const keyed = "Idempotency-Key: my-key"

func TestTheSameRequestWithTheSameKeyIsCarriedOutOnce(t *testing.T) {
	f := start(t, keeping(t))
	for name, request := range map[string]struct {
		path, body string
		status     int
	}{
		"create":  {"/api/v1/instances", `{"template": "python"}`, http.StatusCreated},
		"execute": {"/api/v1/execute", `{"code": "1", "language": "python"}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			header := "Idempotency-Key: " + name
			first := f.do(http.MethodPost, request.path, request.body, header)
			first.wants(request.status)
			assert.Equal(t, first.Header.Get("Idempotency-Replayed"), "")
			made := len(f.provider.Created())
			for range 3 {
				again := f.do(http.MethodPost, request.path, request.body, header, "X-Request-Id: other")
				again.wants(request.status)
				assert.Equal(t, again.text, first.text)
				assert.Equal(t, again.Header.Get("Content-Type"), first.Header.Get("Content-Type"))
				assert.Equal(t, again.Header.Get("Idempotency-Replayed"), "true")
			}
			assert.Equal(t, len(f.provider.Created()), made)

			// To others the key means nothing.
			f.do(http.MethodPost, request.path, request.body, header, "Authorization: Bearer umbrella-token").wants(request.status)
			assert.Equal(t, len(f.provider.Created()), made+1)
		})
	}
}

func TestAKeyGoesWithOneRequest(t *testing.T) {
	f := start(t, keeping(t))
	f.do(http.MethodPost, "/api/v1/instances", `{"session_id": "s"}`, keyed).wants(http.StatusCreated)
	for name, request := range map[string][2]string{
		"another body":  {"/api/v1/instances", `{"session_id": "t"}`},
		"another path":  {"/api/v1/execute", `{"session_id": "s"}`},
		"another query": {"/api/v1/instances/x/renew", ``},
	} {
		t.Run(name, func(t *testing.T) {
			p := f.do(http.MethodPost, request[0], request[1], keyed).problem(http.StatusUnprocessableEntity, "SB014")
			assert.Equal(t, p.Field, "Idempotency-Key")
		})
	}
	assert.Equal(t, len(f.provider.Created()), 1)
}

func TestAKeyThatCannotBe(t *testing.T) {
	f := start(t, keeping(t))
	for name, header := range map[string]string{
		"empty":       "Idempotency-Key: ",
		"long":        "Idempotency-Key: " + strings.Repeat("x", 256),
		"with spaces": "Idempotency-Key: a b",
	} {
		t.Run(name, func(t *testing.T) {
			f.do(http.MethodPost, "/api/v1/instances", `{}`, header).problem(http.StatusUnprocessableEntity, "SB010")
		})
	}
	t.Run("for a stream", func(t *testing.T) {
		p := f.do(http.MethodPost, "/api/v1/execute", `{"code": "1", "language": "python"}`, keyed, "Accept: text/event-stream").problem(http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, cmp.Contains(p.Detail, "streams"))
	})
	t.Run("for what is no POST", func(t *testing.T) {
		f.do(http.MethodGet, "/api/v1/instances", "", "Idempotency-Key: ").wants(http.StatusOK)
	})
	assert.Check(t, cmp.Len(f.provider.Created(), 0))
	t.Run("where none are kept", func(t *testing.T) {
		start(t).do(http.MethodPost, "/api/v1/instances", `{}`, keyed).problem(http.StatusUnprocessableEntity, "SB010")
	})
}

func TestWhatIsBeingCarriedOutIsNotBegunAgain(t *testing.T) {
	f := start(t, keeping(t))
	began, release := make(chan struct{}), make(chan struct{})
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		close(began)
		select {
		case <-release:
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		case <-ctx.Done():
			return sdk.ExecuteResult{}, ctx.Err()
		}
	}
	const body = `{"code": "1", "language": "python"}`
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := f.client.Do(f.request(ctx, http.MethodPost, "/api/v1/execute", body, keyed)) //nolint:bodyclose // there is no answer
		gone <- err
	}()
	<-began
	busy := f.do(http.MethodPost, "/api/v1/execute", body, keyed)
	p := busy.problem(http.StatusConflict, "SB014")
	assert.Assert(t, p.Retryable)
	assert.Equal(t, busy.Header.Get("Retry-After"), "1")

	// The client goes away, and comes back for its answer.
	leave()
	assert.ErrorIs(t, <-gone, context.Canceled)
	close(release)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		again := f.do(http.MethodPost, "/api/v1/execute", body, keyed)
		if again.StatusCode == http.StatusConflict {
			return poll.Continue("it runs")
		}
		again.wants(http.StatusOK)
		return poll.Compare(cmp.Contains(again.text, `"status":"succeeded"`))
	}, poll.WithDelay(10*time.Millisecond), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, len(f.provider.Executions()), 1)
}

func TestARefusalBeforeAnythingBeganFreesTheKey(t *testing.T) {
	f := start(t, keeping(t))
	f.provider.OnCreate = func(context.Context, sdk.CreateRequest) error {
		return sdk.Errorf(sdk.CodeCreateFailed, "there is no room")
	}
	for range 2 {
		f.do(http.MethodPost, "/api/v1/instances", `{}`, keyed).problem(http.StatusServiceUnavailable, "SB004")
	}
	f.do(http.MethodPost, "/api/v1/instances", `{"ttl": -1}`, keyed).problem(http.StatusUnprocessableEntity, "SB010")
	f.provider.OnCreate = nil
	f.do(http.MethodPost, "/api/v1/instances", `{}`, keyed).wants(http.StatusCreated)
}

func TestAnExecutionOfUnknownOutcomeIsNotRepeated(t *testing.T) {
	f := start(t, keeping(t))
	f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		return sdk.ExecuteResult{}, errors.New("the connection broke")
	}
	const body = `{"code": "1", "language": "python"}`
	first := f.do(http.MethodPost, "/api/v1/execute", body, keyed)
	first.problem(http.StatusInternalServerError, "SB000")
	again := f.do(http.MethodPost, "/api/v1/execute", body, keyed)
	again.problem(http.StatusInternalServerError, "SB000")
	assert.Equal(t, again.text, first.text)
	assert.Equal(t, len(f.provider.Executions()), 1)
}

func TestALargeAnswerIsNotKeptButNotRepeatedEither(t *testing.T) {
	f := start(t, keeping(t))
	f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: []byte(`"` + strings.Repeat("x", idempotency.MaxBody) + `"`)}, nil
	}
	const body = `{"code": "1", "language": "python"}`
	f.do(http.MethodPost, "/api/v1/execute", body, keyed).wants(http.StatusOK)
	p := f.do(http.MethodPost, "/api/v1/execute", body, keyed).problem(http.StatusBadRequest, "SB010")
	assert.Check(t, cmp.Contains(p.Detail, "too large"))
	assert.Equal(t, len(f.provider.Executions()), 1)
}

// TestAfterACrashARequestThatWasCarriedOutHasOneEnd has a process that begins and
// never ends.
func TestAfterACrashARequestThatWasCarriedOutHasOneEnd(t *testing.T) {
	s, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	for _, path := range []string{"/api/v1/instances", "/api/v1/execute"} {
		t.Run(path, func(t *testing.T) {
			f := start(t, keepingIn(t, s))
			header := "Idempotency-Key: " + path
			body := fmt.Sprintf(`{"session_id": %q}`, strings.ReplaceAll(path, "/", "."))
			if path == "/api/v1/execute" {
				body = `{"code": "1", "language": "python"}`
			}
			began, never := make(chan struct{}), make(chan struct{})
			hang := func(context.Context) error {
				close(began)
				<-never
				return errors.New("too late")
			}
			f.provider.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error { return hang(ctx) }
			left := make(chan struct{})
			go func() {
				defer close(left)
				f.do(http.MethodPost, path, body, header)
			}()
			<-began

			next := start(t, keepingIn(t, s))
			again := next.do(http.MethodPost, path, body, header)
			if path == "/api/v1/instances" {
				again.wants(http.StatusCreated)
				third := next.do(http.MethodPost, path, body, header)
				third.wants(http.StatusCreated)
				assert.Equal(t, third.text, again.text)
			} else {
				p := again.problem(http.StatusServiceUnavailable, "SB009")
				assert.Check(t, cmp.Contains(p.Detail, "whether it had effects is unknown"))
				next.do(http.MethodPost, path, body, header).problem(http.StatusServiceUnavailable, "SB009")
			}
			close(never)
			<-left
		})
	}
}
