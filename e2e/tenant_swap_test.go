package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// A tenant's only provider becomes another one, again and again, and every request
// is served by the one before or by the one after.
func TestATenantsOnlyProviderIsSwappedUnderLoad(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	tenants := func(provider string) string {
		return fmt.Sprintf("tenant \"acme\" {\n  token_sha256 = [\"80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936\"]\n  providers = [%q]\n  quota { max_concurrent = 100 }\n}\nprovider %q {\n  plugin = \"mock\"\n}\n", provider, provider)
	}
	b := harness.Start(t, harness.Options{Config: tenants("mock_0"), Plugins: map[string]string{"mock": mockPlugin}})
	stop := make(chan struct{})
	var load sync.WaitGroup
	var done atomic.Int64
	for range 20 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "mock", "code": `{"stdout": "works"}`})
				if !assert.Check(t, is.Equal(answer.Status, http.StatusOK), "%s %v", answer.Body, answer.Err) {
					return
				}
				done.Add(1)
			}
		})
	}
	for n := 1; n <= 20; n++ {
		at := done.Load()
		rewrite(t, b, with(tenants(fmt.Sprintf("mock_%d", n-1)), tenants(fmt.Sprintf("mock_%d", n))))
		awaitLog(t, b, inForce, n)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if done.Load() < at+50 && !t.Failed() {
				return poll.Continue("%d", done.Load()-at)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	close(stop)
	load.Wait()
	awaitPlugins(t, b, "mock", 0)
}
