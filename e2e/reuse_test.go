package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// Executions of a tenant have one sandbox after the other where provider and tenant want
// that, and a fresh one each where one of them does not. Which sandbox it is shows in the
// hash seed.
func TestOneShotsOfATenantHaveOneSandboxAfterTheOther(t *testing.T) {
	tenants := strings.Replace(harness.Tenants, `tenant "rival" { `, "tenant \"rival\" {\n  one_shot = \"fresh\"\n  ", 1)
	tenants = strings.TrimSuffix(strings.TrimSpace(tenants), "}") + "\n}\n"
	b := harness.Start(t, harness.Options{
		Config: tenants + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 2\n  queue_timeout = \"4m\"\n  one_shot = \"tenant\"\n}\n", binaries.Runsc(t)),
	})
	sandbox := func(token string) string {
		answer := b.Do(http.MethodPost, "/api/v1/execute", token, map[string]any{"language": "python", "code": "print(hash('sandbox'))"})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		var execution struct{ Stdout string }
		answer.Into(t, &execution)
		return execution.Stdout
	}
	seen := map[string]bool{}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		s := sandbox(harness.Token)
		if seen[s] {
			return poll.Success()
		}
		seen[s] = true
		return poll.Continue("%d sandboxes", len(seen))
	}, poll.WithDelay(100*time.Millisecond), poll.WithTimeout(2*time.Minute))
	fresh := map[string]bool{}
	for range 4 {
		s := sandbox(harness.OtherToken)
		assert.Assert(t, !fresh[s] && !seen[s])
		fresh[s] = true
	}
}
