package provider_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAnInterpreterThatWasKilledForMemoryIsToldFromOneThatEnded(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	run := func(code string) sdk.ExecuteResult {
		t.Helper()
		req := request(id, sdk.Python, code)
		req.ContextID = made.ID
		result, err := p.Execute(t.Context(), req, &heard{})
		assert.NilError(t, err)
		return result
	}
	const dies = "import os; os._exit(1)"
	assert.Equal(t, run(dies).Status, sdk.StatusFailed)
	assert.NilError(t, server.KillForMemory(id))
	got := run(dies)
	assert.Equal(t, got.Status, sdk.StatusOutOfMemory)
	assert.Equal(t, got.ExitCode, 137)
	assert.Equal(t, got.Detail, "the interpreter was killed for want of memory; the context starts afresh")
	assert.Equal(t, run(dies).Status, sdk.StatusFailed, "one kill is told once")
	assert.Equal(t, run("raise MemoryError").Status, sdk.StatusOutOfMemory)
	assert.Equal(t, run("1").Status, sdk.StatusSucceeded)
}

func TestAProcessThatWasKilledForMemoryIsToldFromOneThatWasKilled(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	for name, c := range map[string]struct {
		memory bool
		want   sdk.Status
	}{"by the kernel": {true, sdk.StatusOutOfMemory}, "by itself": {false, sdk.StatusFailed}} {
		t.Run(name, func(t *testing.T) {
			var out heard
			done := make(chan sdk.ExecuteResult, 1)
			go func() {
				result, err := p.Execute(t.Context(), request(id, sdk.Bash, "echo ready; until [ -e /tmp/go ]; do sleep 0.02; done; rm /tmp/go; kill -9 $$"), &out)
				assert.Check(t, err)
				done <- result
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(out.out(), "ready\n")) }, poll.WithTimeout(2*time.Minute))
			if c.memory {
				assert.NilError(t, server.KillForMemory(id))
			}
			bash(t, p, id, "touch /tmp/go")
			got := <-done
			assert.Equal(t, got.Status, c.want)
			assert.Equal(t, got.ExitCode, 137)
		})
	}
}
