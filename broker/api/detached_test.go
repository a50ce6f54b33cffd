package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const detachedX = `{"language": "python", "code": "1", "detached": true, "execution_id": "x"}`

// wantsState waits until an execution stands so.
func (f *fixture) wantsState(id, state string) (info client.ExecutionInfo) {
	f.t.Helper()
	poll.WaitOn(f.t, func(poll.LogT) poll.Result {
		info = client.ExecutionInfo{}
		a := f.do(http.MethodGet, "/api/v1/executions/"+id, "")
		if a.StatusCode != http.StatusOK {
			return poll.Continue("%s", a.text)
		}
		if err := json.Unmarshal([]byte(a.text), &info); err != nil {
			return poll.Error(err)
		}
		if info.State != state {
			return poll.Continue("it is %s", info.State)
		}
		return poll.Success()
	}, poll.WithDelay(5*time.Millisecond), poll.WithTimeout(time.Minute))
	return info
}

func TestWhatIsWrongWithADetachedExecutionIsToldAtOnce(t *testing.T) {
	f := start(t)
	for name, test := range map[string]struct {
		body   string
		status int
	}{
		"a language that there is not":     {`{"language": "cobol", "code": "1", "detached": true, "execution_id": "x"}`, http.StatusUnprocessableEntity},
		"a time limit above the longest":   {`{"language": "python", "code": "1", "detached": true, "execution_id": "x", "timeout": 1e9}`, http.StatusUnprocessableEntity},
		"a provider that is not one's own": {`{"language": "python", "code": "1", "detached": true, "execution_id": "x", "provider": "nobody"}`, http.StatusForbidden},
		"a webhook where there are none":   {`{"language": "python", "code": "1", "detached": true, "execution_id": "x", "webhook": {"url": "https://a.example"}}`, http.StatusForbidden},
		"a webhook of who waits":           {`{"language": "python", "code": "1", "webhook": {"url": "https://a.example"}}`, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			a := f.do(http.MethodPost, "/api/v1/execute", test.body)
			assert.Check(t, a.StatusCode == test.status || a.StatusCode == http.StatusUnprocessableEntity, "%d %s", a.StatusCode, a.text)
			assert.Equal(t, f.do(http.MethodGet, "/api/v1/executions", "").wants(http.StatusOK).text, `{"executions":[]}`)
			f.do(http.MethodGet, "/api/v1/executions/x", "").wants(http.StatusNotFound)
		})
	}
}

func TestADetachedExecutionOutlivesItsCaller(t *testing.T) {
	f := start(t)
	release := make(chan struct{})
	f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		if err := out.Stdout([]byte("one")); err != nil {
			return sdk.ExecuteResult{}, err
		}
		select {
		case <-release:
		case <-ctx.Done():
			return sdk.ExecuteResult{}, ctx.Err()
		}
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded, Result: []byte(`{"a": 1}`)}, nil
	}
	// Its caller reads the first event of a stream, and leaves.
	ctx, leave := context.WithCancel(t.Context())
	resp, err := f.client.Do(f.request(ctx, http.MethodPost, "/api/v1/execute", detachedX, wantsEvents))
	assert.NilError(t, err)
	defer resp.Body.Close()
	events := client.NewEvents(resp.Body)
	assert.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream", "%s", resp.Status)
	first, err := events.Next()
	assert.NilError(t, err)
	assert.Equal(t, first.Name, client.EventStarted)
	leave()
	assert.NilError(t, events.Close())

	f.do(http.MethodPost, "/api/v1/execute", detachedX).wants(http.StatusConflict)
	f.do(http.MethodDelete, "/api/v1/executions/x?forget=true", "").wants(http.StatusConflict)
	close(release)
	info := f.wantsState("x", client.ExecutionSucceeded)
	assert.Equal(t, info.Execution.Stdout, "one")
	assert.Equal(t, string(info.Execution.Result), `{"a": 1}`)
	f.do(http.MethodDelete, "/api/v1/executions/x?forget=true", "").wants(http.StatusAccepted)
	f.do(http.MethodGet, "/api/v1/executions/x", "").wants(http.StatusNotFound)
}

func TestHowExecutionsEndThatHaveNoResult(t *testing.T) {
	t.Run("interrupted before it has begun", func(t *testing.T) {
		f := start(t)
		f.provider.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
			<-ctx.Done()
			return ctx.Err()
		}
		a := f.do(http.MethodPost, "/api/v1/execute", detachedX).wants(http.StatusAccepted)
		assert.Equal(t, a.Header.Get("Location"), "/api/v1/executions/x")
		f.do(http.MethodDelete, "/api/v1/executions/x", "").wants(http.StatusAccepted)
		info := f.wantsState("x", client.ExecutionInterrupted)
		assert.Equal(t, info.Execution.Status, string(sdk.StatusCancelled))
	})
	t.Run("no instance could be made", func(t *testing.T) {
		f := start(t)
		refuse := func(context.Context, sdk.CreateRequest) error { return sdk.Errorf(sdk.CodeCreateFailed, "no") }
		f.provider.OnCreate, f.second.OnCreate = refuse, refuse
		f.do(http.MethodPost, "/api/v1/execute", detachedX).wants(http.StatusAccepted)
		info := f.wantsState("x", client.ExecutionFailed)
		assert.Equal(t, info.Error.Code, "SB004")
	})
	t.Run("who waits has left", func(t *testing.T) {
		f := start(t)
		began := make(chan struct{})
		f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			close(began)
			<-ctx.Done()
			return sdk.ExecuteResult{}, ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			resp, err := f.client.Do(f.request(ctx, http.MethodPost, "/api/v1/execute", `{"language": "python", "code": "1", "execution_id": "y"}`))
			if err == nil {
				_ = resp.Body.Close()
			}
		}()
		<-began
		leave()
		<-done
		info := f.wantsState("y", client.ExecutionInterrupted)
		assert.Equal(t, info.Execution.Detail, "who had asked for it has left")
	})
	t.Run("its provider has ended", func(t *testing.T) {
		f := start(t)
		f.provider.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the plugin is gone")
		}
		f.do(http.MethodPost, "/api/v1/execute", detachedX).wants(http.StatusAccepted)
		info := f.wantsState("x", client.ExecutionUnknown)
		assert.Equal(t, info.Error.Code, "SB009")
	})
}
