package metrics_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestInstancesAreCountedByProviderAndState(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowInstances(func() map[string]map[string]int {
		return map[string]map[string]int{"e2b": {"live": 3, "unclear": 1}, "pool": {"live": 0}}
	})
	_, text := get(t, http.MethodGet, serve(t, m))
	for _, line := range []string{
		`sandbox_broker_instances{provider="e2b",state="live"} 3`,
		`sandbox_broker_instances{provider="e2b",state="unclear"} 1`,
		`sandbox_broker_instances{provider="pool",state="live"} 0`,
	} {
		assert.Check(t, cmp.Contains(text, line+"\n"))
	}
}
