package pluginhost_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// watched takes down the calls that it is told of.
type watched struct {
	mu    sync.Mutex
	calls []pluginhost.Call
	told  []string
}

func (w *watched) Called(ctx context.Context, c pluginhost.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	w.told = append(w.told, fmt.Sprintf("%s %s %s for %s", c.Provider, c.Operation, c.Code, origin.Of(ctx).RequestID))
}

func (w *watched) saw(line string) poll.Check {
	return func(poll.LogT) poll.Result {
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.Contains(w.told, line) {
			return poll.Success()
		}
		return poll.Continue("no %q in %q", line, w.told)
	}
}

func TestCallsOfAPluginAreObserved(t *testing.T) {
	w := &watched{}
	h := newHost(t, func(o *pluginhost.LauncherOptions) { o.Calls = w })
	process := h.configured(h.spec("mock"), nil)
	ctx := origin.With(t.Context(), origin.Origin{Cause: origin.Request, RequestID: "request-7"})
	id := instance(t, process.Provider())
	_, _, err := execute(ctx, process.Provider(), id, `{"stdout": "hello"}`)
	assert.NilError(t, err)
	poll.WaitOn(t, w.saw("box Create  for "), poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, w.saw("box Execute  for request-7"), poll.WithTimeout(2*time.Minute))
	_, _, err = execute(ctx, process.Provider(), "no-such-instance", `{}`)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	poll.WaitOn(t, w.saw("box Execute SB013 for request-7"), poll.WithTimeout(2*time.Minute))
	left, leave := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, _, err := execute(left, process.Provider(), id, `{"log_lines": 1, "hang": true}`)
		ended <- err
	}()
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "mock log line"}), poll.WithTimeout(2*time.Minute))
	leave()
	assert.ErrorIs(t, <-ended, context.Canceled)
	poll.WaitOn(t, w.saw("box Execute canceled for request-7"), poll.WithTimeout(2*time.Minute))

	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.Operation == "Execute" && c.Code == "" {
			assert.Assert(t, c.Took > 0 && c.Sent > 10 && c.Received > 5, "%+v", c)
		}
	}
}
