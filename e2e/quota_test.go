package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// limitedMock is a configuration in which both tenants have these quotas.
func limitedMock(quotas, settings string) string {
	const unlimited = "quota { max_concurrent = 10000 }\n"
	return strings.Replace(harness.Tenants, unlimited, fmt.Sprintf("quota {\n%s\n}\n", quotas), 1) +
		fmt.Sprintf("provider \"mock\" {\n%s\n}\n", settings)
}

func startLimited(t *testing.T, quotas, settings string, prepare func(dir string)) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config: limitedMock(quotas, settings), Plugins: map[string]string{"mock": mockPlugin}, Prepare: prepare,
	})
}

func executeMock(b *harness.Broker, token string, fields map[string]any) harness.Answer {
	request := map[string]any{"language": "mock", "code": `{"stdout": "works"}`}
	for name, value := range fields {
		request[name] = value
	}
	return b.Do(http.MethodPost, "/api/v1/execute", token, request)
}

// used is what the tenant acme has used of a limit.
func used(t *testing.T, b *harness.Broker, limit string) float64 {
	t.Helper()
	var usage struct {
		Limits []struct {
			Name string
			Used float64
		}
	}
	b.Do(http.MethodGet, "/api/v1/usage", harness.Token, nil).Into(t, &usage)
	for _, line := range usage.Limits {
		if line.Name == limit {
			return line.Used
		}
	}
	t.Fatalf("no limit %s", limit)
	return 0
}

func wantsLimit(t *testing.T, answer harness.Answer, limit string) {
	t.Helper()
	harness.Refused(t, answer, http.StatusTooManyRequests, "SB008")
	var problem struct{ Quota struct{ Limit string } }
	answer.Into(t, &problem)
	assert.Equal(t, problem.Quota.Limit, limit)
}

func TestTheCountsOfADaySurviveAKilledBroker(t *testing.T) {
	t.Parallel()
	const quotas = "executions_per_day = 5\n money_per_month = 1"
	const settings = "persist = false\n cost_per_second = 0.001"
	b := startLimited(t, quotas, settings, nil)
	for range 3 {
		assert.Equal(t, executeMock(b, harness.Token, nil).Status, http.StatusOK)
	}
	assert.Equal(t, used(t, b, "executions_per_day"), 3.0)
	b.Kill()
	state, err := os.ReadFile(filepath.Join(b.Dir, "state", "state.db"))
	assert.NilError(t, err)

	b = startLimited(t, quotas, settings, func(dir string) {
		assert.NilError(t, os.MkdirAll(filepath.Join(dir, "state"), 0o700))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "state", "state.db"), state, 0o600))
		// What was reserved last is in the audit log, and not there yet.
		assert.NilError(t, os.CopyFS(filepath.Join(dir, "state", "audit"), os.DirFS(filepath.Join(b.Dir, "state", "audit"))))
		assert.NilError(t, os.Chmod(filepath.Join(dir, "state", "audit"), 0o700))
	})
	if day := used(t, b, "executions_per_day"); day == 0 && time.Now().UTC().Hour() == 0 {
		TestTheCountsOfADaySurviveAKilledBroker(t) // a day has begun meanwhile: once more, within one
		return
	}
	assert.Equal(t, used(t, b, "executions_per_day"), 3.0)
	assert.Equal(t, used(t, b, "max_concurrent"), 0.0)
	for range 2 {
		assert.Equal(t, executeMock(b, harness.Token, nil).Status, http.StatusOK)
	}
	wantsLimit(t, executeMock(b, harness.Token, nil), "executions_per_day")
	assert.Equal(t, executeMock(b, harness.OtherToken, nil).Status, http.StatusOK, "the other tenant has used nothing")
	assert.Assert(t, used(t, b, "money_per_month") > 0)
}

func TestQuotasChangeWhileTheyAreInUse(t *testing.T) {
	t.Parallel()
	b := startLimited(t, "max_concurrent = 1", "", nil)
	held := make(chan harness.Answer, 1)
	go func() {
		held <- executeMock(b, harness.Token, map[string]any{"code": `{"delay": "2s"}`, "session_id": "s"})
	}()
	running(t, b, "s")
	wantsLimit(t, executeMock(b, harness.Token, nil), "max_concurrent")
	waiting := make(chan harness.Answer, 1)
	go func() { waiting <- executeMock(b, harness.Token, map[string]any{"wait_ms": 60_000}) }()
	rewrite(t, b, with("max_concurrent = 1", "max_concurrent = 2"))
	awaitLog(t, b, inForce, 1)
	assert.Equal(t, (<-waiting).Status, http.StatusOK, "there is room under the new quota")
	assert.Equal(t, (<-held).Status, http.StatusOK)
	assert.Equal(t, used(t, b, "executions_per_day"), 2.0, "the count went on")
}

func TestThoseWhoWaitAreServedAndNobodyIsLost(t *testing.T) {
	t.Parallel()
	b := startLimited(t, "max_concurrent = 3\n max_instances = 2", "", nil)
	var group sync.WaitGroup
	for i := range 60 {
		token := harness.Token
		if i%6 == 0 {
			token = harness.OtherToken
		}
		group.Go(func() {
			answer := executeMock(b, token, map[string]any{"wait_ms": 60_000})
			assert.Check(t, answer.Status == http.StatusOK, "%s", answer.Body)
		})
	}
	group.Wait()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := used(t, b, "max_instances"); n != 0 {
			return poll.Continue("%v instances are left", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, used(t, b, "max_concurrent"), 0.0)
	assert.Equal(t, used(t, b, "executions_per_day"), 50.0)
}

func TestARequestWaitsForAProviderThatIsFull(t *testing.T) {
	t.Parallel()
	b := startLimited(t, "max_concurrent = 50", "", nil)
	steer := filepath.Join(stateOf(t, b, "mock"), "actions.json")
	assert.NilError(t, os.WriteFile(steer, []byte(`{"create": {"fail": "SB008", "message": "the account is full"}}`), 0o600))
	p := harness.Refused(t, executeMock(b, harness.Token, nil), http.StatusTooManyRequests, "SB008")
	assert.Equal(t, p.Detail, `provider "mock": the account is full`)
	answers := make(chan harness.Answer, 10)
	for range cap(answers) {
		go func() { answers <- executeMock(b, harness.Token, map[string]any{"wait_ms": 60_000}) }()
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var usage struct{ Waiting int }
		b.Do(http.MethodGet, "/api/v1/usage", harness.Token, nil).Into(t, &usage)
		if usage.Waiting != cap(answers) {
			return poll.Continue("%d wait", usage.Waiting)
		}
		return poll.Success()
	}, poll.WithDelay(10*time.Millisecond), poll.WithTimeout(2*time.Minute))
	wantsLimit(t, executeMock(b, harness.OtherToken, nil), "provider")
	assert.NilError(t, os.Remove(steer))
	for range cap(answers) {
		answer := <-answers
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	}
}

func TestInstancesThatAreLargerThanTheQuotaAreNotMade(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: strings.Replace(harness.Tenants, "max_concurrent = 10000", "max_memory_mb = 200", 1) +
		fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n  memory_mb = 256\n}\n", binaries.Runsc(t))})
	request := map[string]any{"language": "python", "code": "print(1)"}
	wantsLimit(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request), "max_memory_mb")
	rewrite(t, b, with("max_memory_mb = 200", "max_memory_mb = 256"))
	awaitLog(t, b, inForce, 1)
	assert.Equal(t, b.Execute(t, request).Stdout, "1\n")
}
