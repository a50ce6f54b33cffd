package pluginhost_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func environmentOf(t *testing.T, result sdk.ExecuteResult) map[string]string {
	t.Helper()
	var echo struct{ Environment []string }
	assert.NilError(t, json.Unmarshal(result.Result, &echo))
	env := map[string]string{}
	for _, entry := range echo.Environment {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

func processEnds(pid int) func(poll.LogT) poll.Result {
	return func(poll.LogT) poll.Result {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return poll.Success()
		}
		return poll.Continue("process %d is there", pid)
	}
}

func TestAProcessWorksAndStopsInOrder(t *testing.T) {
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	p := process.Provider()
	result, out, err := execute(t.Context(), p, instance(t, p), `{"stdout": "hi", "stderr": "ho", "exit_code": 3}`)
	assert.NilError(t, err)
	assert.Equal(t, out.stdout.String()+out.stderr.String(), "hiho")
	assert.Equal(t, result.Status, sdk.StatusFailed)
	assert.Equal(t, result.ExitCode, 3)
	assert.NilError(t, process.Err())

	process.Stop(within(t, time.Minute))
	<-process.Done()
	assert.NilError(t, process.Err())
	assert.NilError(t, syscall.Access(filepath.Join(h.stateDir, "closed"), 0), "Close was not called")
	_, err = p.Health(t.Context())
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)
}

func TestAnUnconfiguredProcessIsNotClosed(t *testing.T) {
	h := newHost(t)
	process := h.launch(h.spec("mock"))
	process.Stop(within(t, time.Minute))
	assert.ErrorIs(t, syscall.Access(filepath.Join(h.stateDir, "closed"), 0), syscall.ENOENT)
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	t.Run("a plugin that does not watch its standard input", func(t *testing.T) {
		h := newHost(t)
		process := h.configured(h.spec("mock_deaf"), nil)
		process.Stop(within(t, time.Second))
		assert.NilError(t, process.Err())
		poll.WaitOn(t, processEnds(process.PID()), poll.WithTimeout(2*time.Minute))
	})
	t.Run("a plugin that is stopped by a signal", func(t *testing.T) {
		h := newHost(t)
		process := h.configured(h.spec("mock"), nil)
		assert.NilError(t, syscall.Kill(process.PID(), syscall.SIGSTOP))
		process.Stop(within(t, time.Second))
		poll.WaitOn(t, processEnds(process.PID()), poll.WithTimeout(2*time.Minute))
	})
}

func TestADeathEndsRunningCalls(t *testing.T) {
	deaths := map[string]struct{ action, status string }{
		"by SIGKILL":                               {`{"crash": "before", "crash_with": "kill"}`, "was killed by signal SIGKILL"},
		"by exit":                                  {`{"crash": "after", "crash_with": "exit:9"}`, "exited with status 9"},
		"by a panic outside of a call":             {`{"crash": "before", "crash_with": "panic"}`, "exited with status 2"},
		"while a child of its group holds pipes":   {`{"grandchild": "10m", "crash": "before"}`, "exited with status 7"},
		"while an escaped child holds its outputs": {`{"grandchild": "10m", "escape": true, "crash": "before"}`, "exited with status 7"},
	}
	for name, death := range deaths {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			process := h.configured(h.spec("mock"), nil)
			p := process.Provider()
			id := instance(t, p)

			// A second call hangs in the plugin and knows nothing.
			hanging := make(chan error, 1)
			entered := filepath.Join(h.stateDir, "grandchild.pid")
			go func() {
				_, _, err := execute(t.Context(), p, id, `{"grandchild": "10m", "hang": true}`)
				hanging <- err
			}()
			poll.WaitOn(t, poll.FileExists(entered), poll.WithTimeout(2*time.Minute))
			assert.NilError(t, os.Remove(entered))

			started := time.Now()
			_, _, err := execute(t.Context(), p, id, death.action)
			assertPublic(t, err, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)
			assertPublic(t, <-hanging, sdk.CodeUnavailable, `provider "box": the plugin ended during the call`)
			<-process.Done()
			assert.Check(t, time.Since(started) < time.Minute, "death was seen after %v", time.Since(started))

			exit, ok := errors.AsType[*pluginhost.ExitError](process.Err())
			assert.Assert(t, ok)
			assert.Equal(t, exit.Status, death.status)
			if strings.Contains(death.action, `"panic"`) {
				assert.Assert(t, is.Contains(exit.Stderr, "panic: the mock provider was told to crash"))
				assert.Assert(t, is.Contains(exit.Stderr, "goroutine "))
			}
			if strings.Contains(death.action, "grandchild") {
				assert.ErrorIs(t, syscall.Kill(pidIn(t, entered), 0), syscall.ESRCH)
			}
		})
	}
}

func pidIn(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	pid, err := strconv.Atoi(string(text))
	assert.NilError(t, err)
	return pid
}

// processGoneOrZombie takes an orphan that nobody reaps for gone.
func processGoneOrZombie(pid int) func(poll.LogT) poll.Result {
	return func(poll.LogT) poll.Result {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return poll.Success()
		}
		return poll.Continue("process %d is there", pid)
	}
}

func TestErrorsNameTheProviderUnlessTheySpeakOfTheRequestAndKeepTheirCode(t *testing.T) {
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	p := process.Provider()
	id := instance(t, p)
	for _, info := range sdk.CodeTable() {
		_, _, err := execute(t.Context(), p, id, fmt.Sprintf(`{"fail": %q, "message": "no luck", "field": "f", "retry_after": "7s"}`, info.Code))
		e, ok := errors.AsType[*sdk.Error](err)
		assert.Assert(t, ok, "%v", err)
		assert.Equal(t, e.Code, info.Code)
		want := `provider "box": no luck`
		switch info.Code {
		case sdk.CodeInvalidRequest, sdk.CodeNotAllowed, sdk.CodeNotFound, sdk.CodeConflict, sdk.CodeNotSupported:
			want = "no luck" // of what the caller asked for
		}
		assert.Equal(t, e.Message, want, info.Code)
		assert.Equal(t, e.Field, "f")
		assert.Equal(t, e.RetryAfter, 7*time.Second)
	}
	_, _, err := execute(t.Context(), p, id, `{"panic": true}`)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
	_, err = p.Health(t.Context())
	assert.NilError(t, err, "a panic in one call ended the plugin")
}

func TestLiesOfAPluginAreItsOwnFault(t *testing.T) {
	lies := map[string]struct{ action, message string }{
		"a result that is not JSON":   {`{"lie": "bad_json"}`, "the plugin answered a result that is not JSON"},
		"a status that is unknown":    {`{"status": "splendid"}`, `the plugin answered the unknown status "splendid"`},
		"no result at all":            {`{"lie": "no_result"}`, "the plugin ended an execution without a result"},
		"more output than was wanted": {`{"lie": "too_much"}`, "the plugin sent more output than the limit"},
	}
	h := newHost(t)
	process := h.configured(h.spec("mock_liar"), nil)
	p := process.Provider()
	id := instance(t, p)
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			_, _, err := execute(t.Context(), p, id, lie.action)
			assertPublic(t, err, sdk.CodeInternal, `provider "box": `+lie.message)
		})
	}
	h.act(map[string]any{"create": map[string]any{"lie": "bad_id"}})
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "mock"})
	assert.ErrorContains(t, err, "which is not of the form")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
}

func TestSecretsStayOutOfWhatAPluginSays(t *testing.T) {
	h := newHost(t)
	p := h.configured(h.spec("mock"), sdk.Settings{"secret": "hunter2-hunter2", "unhealthy": "the key hunter2-hunter2 was refused"}).Provider()
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, health.Reason, "the key (secret) was refused")
	id := instance(t, p)
	result, _, err := execute(t.Context(), p, id, `{"status": "blocked", "detail": "hunter2-hunter2", "findings": [{"Line": 1, "Rule": "r", "Message": "use of hunter2-hunter2"}]}`)
	assert.NilError(t, err)
	assert.Equal(t, result.Detail, "(secret)")
	assert.DeepEqual(t, result.Findings, []sdk.Finding{{Line: 1, Rule: "r", Message: "use of (secret)"}})
	_, _, err = execute(t.Context(), p, id, `{"fail": "SB009", "message": "hunter2-hunter2"}`)
	assertPublic(t, err, sdk.CodeUnavailable, `provider "box": (secret)`)
}

func TestOutputAboveTheLimitIsCut(t *testing.T) {
	h := newHost(t)
	p := h.configured(h.spec("mock"), nil).Provider()
	result, out, err := execute(t.Context(), p, instance(t, p), `{"stdout_bytes": 10000000, "stderr": "end"}`)
	assert.NilError(t, err)
	assert.Equal(t, out.stdout.Len(), 1<<20)
	assert.Equal(t, out.stderr.String(), "end")
	assert.Assert(t, result.Truncated)
}

// stderrOfExit returns the last words of a process that died.
func stderrOfExit(t *testing.T, process *pluginhost.Process) string {
	t.Helper()
	exit, ok := errors.AsType[*pluginhost.ExitError](process.Err())
	assert.Assert(t, ok)
	return exit.Stderr
}
