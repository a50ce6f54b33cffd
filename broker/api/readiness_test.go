package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// fallbackCatalog is a catalog whose first provider is active; others may be its
// fallback.
type fallbackCatalog struct {
	instancetest.Catalog
	fallback []string
	patience instance.Patience
}

func (c *fallbackCatalog) Offer(who tenant.Tenant) instance.Offer {
	offer := c.Catalog.Offer(who)
	offer.Fallback, offer.Patience = c.fallback, c.patience
	return offer
}

func TestABrokerIsReadyAsLongAsOneProviderCanServe(t *testing.T) {
	for name, test := range map[string]struct {
		first, second string // why they are down
		fallback      bool
		ready         bool
		notReady      []string
		detail        string
	}{
		"both are ready":                             {fallback: true, ready: true},
		"the active one is down":                     {first: "the runtime is missing", fallback: true, ready: true, notReady: []string{"first"}},
		"the fallback is down":                       {second: "the cloud is away", fallback: true, ready: true, notReady: []string{"second"}},
		"both are down":                              {first: "the runtime is missing", second: "the cloud is away", fallback: true, detail: "No provider is ready: first is unavailable: the runtime is missing; second is unavailable: the cloud is away"},
		"the active one is down and has no fallback": {first: "the runtime is missing", detail: "No provider is ready: first is unavailable: the runtime is missing"},
		"one that is no fallback is down":            {second: "the cloud is away", ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			if test.fallback {
				f.catalog.fallback = []string{"second"}
			}
			f.provider.Down, f.second.Down = test.first, test.second
			answer := f.do(http.MethodGet, "/readyz", "", "Authorization: ")
			if !test.ready {
				p := answer.problem(http.StatusServiceUnavailable, "SB009")
				assert.Equal(t, p.Detail, test.detail)
				assert.Equal(t, p.Provider, "first")
				assert.Equal(t, len(p.Tried) == 1, test.fallback, "%v", p.Tried)
				return
			}
			answer.wants(http.StatusOK)
			var health client.Health
			assert.NilError(t, json.Unmarshal([]byte(answer.text), &health))
			assert.Equal(t, health.Status, "ready")
			var notReady []string
			for _, p := range health.NotReady {
				notReady = append(notReady, p.Provider)
				assert.Equal(t, p.State, "unavailable")
				assert.Check(t, p.Reason != "")
			}
			assert.DeepEqual(t, notReady, test.notReady)
			assert.Check(t, cmp.Equal(len(test.notReady) == 0, answer.text == `{"status":"ready"}`))
		})
	}
}

func TestABrokerThatHasJustStartedIsReadyWhenTheActiveProviderIsOrHasHadItsTime(t *testing.T) {
	for name, test := range map[string]struct {
		state string // of the active provider, "" for ready
		grace time.Duration
		ready bool
	}{
		"it is starting":           {state: "starting", grace: time.Hour},
		"it is not well":           {state: "unhealthy", grace: time.Hour},
		"it has failed repeatedly": {state: "unavailable", grace: time.Hour, ready: true},
		"it is starting for long":  {state: "starting", ready: true},
		"it has started":           {grace: time.Hour, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.catalog.fallback, f.catalog.patience.Start = []string{"second"}, test.grace
			if test.state != "" {
				f.provider.Down, f.provider.State = "the runtime is not there yet", test.state
			}
			answer := f.do(http.MethodGet, "/readyz", "", "Authorization: ")
			if test.ready {
				answer.wants(http.StatusOK)
				return
			}
			p := answer.problem(http.StatusServiceUnavailable, "SB009")
			assert.Equal(t, p.Provider, "first")
			assert.Assert(t, p.Retryable)
			assert.Check(t, cmp.Contains(p.Detail, "provider first is "+test.state+": the runtime is not there yet. New work waits for it until 20"))
		})
	}
}
