package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

const (
	// kills is how often the plugin is killed, and runners how many executions run
	// in it each time: as often as costs no pauses.
	kills   = 20
	runners = 4
)

// Every caller is told at once, and the next call finds the next process.
func TestTheProviderIsBackAfterEachOfManyKills(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startMock(t, "")
	var recoveries, answers []time.Duration
	for i := range kills {
		hanging := make(chan harness.Answer, runners)
		for n := range runners {
			go func() {
				hanging <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
					"language": "mock", "code": `{"hang": true}`, "timeout": 100, "session_id": fmt.Sprint("s", n),
				})
			}()
		}
		for n := range runners {
			running(t, b, fmt.Sprint("s", n))
		}
		pid := b.Plugin("mock")
		killed := time.Now()
		assert.NilError(t, syscall.Kill(pid, syscall.SIGKILL))
		for range runners {
			select {
			case answer := <-hanging:
				p := harness.Refused(t, answer, http.StatusServiceUnavailable, "SB009")
				assert.Check(t, is.Contains(p.Detail, "the plugin ended"))
			case <-time.After(2 * time.Minute):
				t.Fatalf("kill %d: a caller waits although the plugin is dead", i)
			}
		}
		answers = append(answers, time.Since(killed))
		assert.Equal(t, b.Execute(t, map[string]any{"language": "mock", "code": `{"stdout": "next\n"}`}).Stdout, "next\n")
		recoveries = append(recoveries, time.Since(killed))
	}
	t.Logf("the callers of %d killed plugins were answered after p50 %v, p99 %v; the next execution was done after p50 %v, p99 %v, at most %v",
		kills, percentile(answers, 50), percentile(answers, 99), percentile(recoveries, 50), percentile(recoveries, 99), slices.Max(recoveries))
}

func percentile(times []time.Duration, p int) time.Duration {
	slices.Sort(times)
	return times[min(len(times)*p/100, len(times)-1)].Round(100 * time.Microsecond)
}

// A plugin that dies at each start is not started for ever, and who asks meanwhile
// is told when it is worth another try. It is tried again without being asked.
func TestACrashLoopOpensTheCircuitAndClosesByItself(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	steer := filepath.Join(stateOf(t, b, "mock"), "actions.json")
	assert.NilError(t, os.WriteFile(steer, []byte(`{"configure": {"crash": "before", "crash_with": "exit:9"}}`), 0o600))
	request := map[string]any{"language": "mock", "code": `{"stdout": "x"}`}
	assert.NilError(t, syscall.Kill(b.Plugin("mock"), syscall.SIGKILL))

	var refused harness.Answer
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		refused = b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
		return poll.Compare(is.Contains(string(refused.Body), "is unavailable"))
	}, poll.WithTimeout(2*time.Minute))
	p := harness.Refused(t, refused, http.StatusServiceUnavailable, "SB009")
	assert.Check(t, p.Retryable)
	assert.Check(t, is.Contains(p.Detail, `provider "mock": is unavailable: the plugin ended during the call`))
	after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	assert.NilError(t, err)
	assert.Check(t, after >= 0 && after <= 38, "%d seconds", after)

	// Nobody waits in the meantime, however many ask.
	var asking sync.WaitGroup
	began := time.Now()
	for range 50 {
		asking.Go(func() {
			answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request)
			var p harness.Problem
			assert.Check(t, json.Unmarshal(answer.Body, &p))
			assert.Check(t, is.Equal(p.Code, "SB009"), "%s", answer.Body)
		})
	}
	asking.Wait()
	assert.Check(t, time.Since(began) < time.Minute, "they waited")

	assert.NilError(t, os.Remove(steer))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		return poll.Compare(is.Equal(b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request).Status, http.StatusOK))
	}, poll.WithTimeout(2*time.Minute))
}

// stateOf is the state directory of a provider's process.
func stateOf(t *testing.T, b *harness.Broker, label string) string {
	t.Helper()
	dir := filepath.Join(b.Dir, "state", "providers", label)
	if numbered, err := filepath.Glob(filepath.Join(dir, "[0-9]*")); err == nil && len(numbered) > 0 {
		dir = numbered[len(numbered)-1]
	}
	_, err := os.Stat(dir)
	assert.NilError(t, err)
	return dir
}
