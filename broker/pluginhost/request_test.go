package pluginhost_test

import (
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestAPluginLogsWhichRequestACallIsFor(t *testing.T) {
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	id := instance(t, process.Provider())
	_, _, err := execute(t.Context(), process.Provider(), id, `{"log_lines": 1}`)
	assert.NilError(t, err)
	asked := origin.With(t.Context(), origin.Origin{Cause: origin.Request, RequestID: "request-7"})
	_, _, err = execute(asked, process.Provider(), id, `{"log_lines": 1}`)
	assert.NilError(t, err)
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "mock log line", "request_id": "request-7"}), poll.WithTimeout(2*time.Minute))
	lines := h.log.entries(map[string]any{"@message": "mock log line"})
	assert.Equal(t, len(lines), 2)
	_, has := lines[0]["request_id"]
	assert.Assert(t, !has, "the broker's own call is for no request: %v", lines[0])
}

// A call may last longer than the lease did when it began.
func TestAPluginHearsOfTheLeaseDuringACall(t *testing.T) {
	var left atomic.Int64
	h := newHost(t, func(o *pluginhost.LauncherOptions) {
		o.Lease = func() string { return wire.LeaseText("a", 1, time.Duration(left.Load())) }
	})
	s := h.supervise(h.spec("mock"), nil, func(o *pluginhost.SuperviseOptions) { o.HealthInterval = time.Hour })
	p := ready(t, s)
	id := instance(t, p)
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the only probe is over
		if s.State().ProbedAt.IsZero() {
			return poll.Continue("%+v", s.State())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	done := make(chan error, 1)
	go func() {
		_, _, err := execute(within(t, time.Minute), p, id, `{"log_lines": 1, "await_lease": true}`)
		done <- err
	}()
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "mock log line"}), poll.WithTimeout(2*time.Minute))
	left.Store(int64(time.Hour))
	assert.NilError(t, <-done)
}
