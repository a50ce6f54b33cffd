package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// running waits until an execution in a session has begun.
func running(t *testing.T, b *harness.Broker, session string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var list struct {
			Instances []struct {
				SessionID  string `json:"session_id"`
				Executions int    `json:"executions"`
			} `json:"instances"`
		}
		b.Do(http.MethodGet, "/api/v1/instances", harness.Token, nil).Into(t, &list)
		for _, i := range list.Instances {
			if i.SessionID == session && i.Executions > 0 {
				return poll.Success()
			}
		}
		return poll.Continue("%+v", list)
	}, poll.WithDelay(20*time.Millisecond), poll.WithTimeout(2*time.Minute))
}

func TestKillingThePluginAnswersItsCallersAndTheNextRequestWorks(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]struct {
		broker  func(testing.TB, string) *harness.Broker
		plugin  string
		forever map[string]any
		next    map[string]any
	}{
		"self_managed": {
			startReal, "self_managed",
			map[string]any{"language": "python", "code": "while True: pass", "session_id": "s"},
			map[string]any{"language": "python", "code": "print('next')"},
		},
		"mock": {
			startMock, "mock",
			map[string]any{"language": "mock", "code": `{"hang": true}`, "session_id": "s"},
			map[string]any{"language": "mock", "code": `{"stdout": "next\n"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := start.broker(t, "")
			start.forever["timeout"] = 60
			answers := make(chan harness.Answer, 1)
			go func() { answers <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, start.forever) }()
			running(t, b, "s")
			pid := b.Plugin(start.plugin)
			assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
			select {
			case answer := <-answers:
				p := harness.Refused(t, answer, http.StatusServiceUnavailable, "SB009")
				assert.Check(t, p.Retryable)
				assert.Check(t, is.Contains(p.Detail, start.plugin))
			case <-time.After(2 * time.Minute):
				t.Fatal("the caller waits although the plugin is dead")
			}
			assert.Equal(t, b.Execute(t, start.next).Stdout, "next\n")
			assert.Check(t, b.Plugin(start.plugin) != pid)
		})
	}
}

func TestKillingTheBrokerLeavesNothing(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": "while True: pass", "session_id": fmt.Sprint("s", i), "timeout": 60})
		})
	}
	for i := range 3 {
		running(t, b, fmt.Sprint("s", i))
	}
	assert.Check(t, len(b.Left()) > 3, "there are processes to be cleared away")
	b.Kill()
	b.WaitGone()
	wg.Wait()
	// The plugin had the time to clear up.
	assert.Check(t, is.Len(b.Groups(), 0))
	left, err := os.ReadDir(filepath.Join(b.Dir, "state", "providers", "self_managed", "1"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(left, 0))
}

func TestKillingBrokerAndPluginAtOnceLeavesNothing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startReal(t, "")
	b.Execute(t, map[string]any{"language": "python", "code": "1", "session_id": "s"})
	assert.NilError(t, syscall.Kill(b.Plugin("self_managed"), syscall.SIGKILL))
	b.Kill()
	b.WaitGone()
}

func TestAStopLetsRunningExecutionsFinish(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	answers := make(chan harness.Answer, 1)
	go func() {
		answers <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": "sleep 2; echo finished", "session_id": "s"})
	}()
	running(t, b, "s")
	assert.Equal(t, b.Stop(), 0)
	answer := <-answers
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	assert.Check(t, is.Contains(string(answer.Body), `"stdout":"finished\n"`))
	assert.Check(t, is.Len(b.Left(), 0))
}

func TestASandboxThatIsKilledIsGoneAndItsSessionGetsANewOne(t *testing.T) {
	t.Parallel()
	b := startReal(t, "")
	request := map[string]any{"language": "bash", "code": "echo up", "session_id": "s"}
	first := b.Execute(t, request)
	for _, p := range b.Left() { // every sandbox, ready ones too
		if filepath.Base(p.Executable) == "runsc" {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
		if answer.Status != http.StatusOK {
			var p harness.Problem
			answer.Into(t, &p)
			assert.Check(t, p.Code == "SB009" || p.Code == "SB013", "%s", answer.Body)
			return poll.Continue("%s", answer.Body)
		}
		var e harness.Execution
		answer.Into(t, &e)
		assert.Check(t, e.InstanceID != first.InstanceID)
		return poll.Compare(is.Equal(e.Stdout, "up\n"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestHundredsOfExecutionsLeaveNothingBehind(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	executions := 500
	if testing.Short() {
		executions = 200
	}
	b := startReal(t, "")
	plugin := b.Plugin("self_managed")
	// Most run in a session each worker has for itself: a new one every tenth time.
	batch := func(n int) {
		t.Helper()
		var wg sync.WaitGroup
		for worker := range 10 {
			wg.Go(func() {
				for i := range n / 10 {
					request := map[string]any{"language": "bash", "code": "echo x", "session_id": fmt.Sprint("s", worker)}
					if i%10 == 9 || i == n/10-1 {
						request["keep"] = false
					}
					answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
					assert.Check(t, is.Equal(answer.Status, http.StatusOK), "%s", answer.Body)
				}
			})
		}
		wg.Wait()
	}
	type holdings struct{ brokerFDs, pluginFDs, sandboxes, bundles, groups int }
	count := func() holdings {
		bundles, err := filepath.Glob(filepath.Join(b.Dir, "state", "*", "*", "*", "bundles", "*"))
		assert.NilError(t, err)
		return holdings{
			harness.Descriptors(t, b.PID), harness.Descriptors(t, plugin),
			len(b.Left()), len(bundles), len(b.Groups()),
		}
	}
	idle := func() {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			var list struct {
				Providers []struct {
					Details map[string]string `json:"details"`
				} `json:"providers"`
			}
			b.Do(http.MethodGet, "/api/v1/providers", harness.Token, nil).Into(t, &list)
			details := list.Providers[0].Details
			return poll.Compare(is.Contains("making="+details["making"]+" in_use="+details["in_use"], "making=0 in_use=0 of "))
		}, poll.WithTimeout(2*time.Minute))
	}
	batch(50) // what is made once is made now
	idle()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(count().bundles, 4)) }, poll.WithTimeout(2*time.Minute))
	before := count()
	batch(executions)
	idle()
	// Connections and sandboxes end a moment after their answers.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		after := count()
		if after.brokerFDs > before.brokerFDs+12 || after.pluginFDs > before.pluginFDs || after.sandboxes > before.sandboxes || after.bundles > before.bundles || after.groups > before.groups {
			return poll.Continue("before %+v, after %+v", before, after)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	t.Logf("before %+v, after %+v", before, count())
}
