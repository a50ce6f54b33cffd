package pluginhost_test

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
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
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "mock log line", "request_id": "request-7"}))
	lines := h.log.entries(map[string]any{"@message": "mock log line"})
	assert.Equal(t, len(lines), 2)
	_, has := lines[0]["request_id"]
	assert.Assert(t, !has, "the broker's own call is for no request: %v", lines[0])
}
