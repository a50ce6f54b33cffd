package pluginhost_test

import (
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
)

func TestAPluginFollowsTheBrokersLogLevel(t *testing.T) {
	h := newHost(t)
	h.logger.SetLevel(hclog.Error)
	process := h.configured(h.spec("mock"), nil)
	id := instance(t, process.Provider())
	says := func(text string) {
		t.Helper()
		_, _, err := execute(t.Context(), process.Provider(), id, `{"log_lines": 1, "stdout": "`+text+`"}`)
		assert.NilError(t, err)
	}
	says("nothing")
	h.logger.SetLevel(hclog.Debug)
	_, err := process.Provider().Health(t.Context())
	assert.NilError(t, err)
	says("something")
	lines := map[string]any{"@message": "mock log line", "provider": "box"}
	poll.WaitOn(t, h.log.has(lines), poll.WithTimeout(2*time.Minute))
	assert.Equal(t, len(h.log.entries(lines)), 1, "what it said before")

	// One that is started now begins with the level of now.
	later := h.configured(h.spec("mock"), nil)
	result, _, err := execute(t.Context(), later.Provider(), instance(t, later.Provider()), `{"echo": true}`)
	assert.NilError(t, err)
	assert.Equal(t, environmentOf(t, result)[wire.EnvLogLevel], "debug")
}

func TestAPluginWithALevelOfItsOwnKeepsIt(t *testing.T) {
	h := newHost(t, func(o *pluginhost.LauncherOptions) { o.LogLevel = "error" })
	process := h.configured(h.spec("mock"), nil)
	_, err := process.Provider().Health(t.Context())
	assert.NilError(t, err)
	result, _, err := execute(t.Context(), process.Provider(), instance(t, process.Provider()), `{"log_lines": 1, "echo": true}`)
	assert.NilError(t, err)
	assert.Equal(t, environmentOf(t, result)[wire.EnvLogLevel], "error")
	process.Stop(within(t, 30*time.Second)) // all that it said is there now
	assert.Equal(t, len(h.log.entries(map[string]any{"@message": "mock log line"})), 0)
}
