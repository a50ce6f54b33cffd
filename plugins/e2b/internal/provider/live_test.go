//go:build live

package provider_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// listPrice of 2 vCPU and 2 GiB, in USD for a second.
const listPrice = 0.000037

// liveSettings are those of the environment, by the names that E2B's own SDKs use.
func liveSettings(t *testing.T) map[string]any {
	t.Helper()
	key := os.Getenv("E2B_API_KEY")
	if key == "" {
		t.Skip("E2B_API_KEY is not set")
	}
	values := map[string]any{"api_key": key, "timeout": "2m", "cost_per_second": listPrice}
	for name, variable := range map[string]string{"domain": "E2B_DOMAIN", "api_url": "E2B_API_URL", "sandbox_url": "E2B_SANDBOX_URL"} {
		if value := os.Getenv(variable); value != "" {
			values[name] = value
		}
	}
	return values
}

// TestLive runs the conformance suite against the real service, and says what it spent.
func TestLive(t *testing.T) {
	values := liveSettings(t)
	var made []*provider.Provider
	brokers := map[string]bool{}
	factory := func(logger hclog.Logger) sdk.Provider {
		p := provider.New(logger).(*provider.Provider)
		made = append(made, p)
		return recordingBroker{p, brokers}
	}
	t.Cleanup(func() { cleanUp(t, values, brokers) })
	providertest.Run(t, factory, providertest.WithSettings(values), providertest.WithPatience(5))
	var seconds, cost float64
	for _, p := range made {
		for _, m := range p.Usage() {
			switch m.Name {
			case "sandbox_seconds_total":
				seconds += m.Value
			case "cost_total":
				cost += m.Value
			}
		}
	}
	t.Logf("%.0f seconds of sandboxes, about %.4f USD at list price", seconds, cost)
}

// recordingBroker remembers under which brokers sandboxes were made.
type recordingBroker struct {
	*provider.Provider
	brokers map[string]bool
}

func (r recordingBroker) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	r.brokers[req.BrokerID] = true
	return r.Provider.Configure(ctx, req)
}

// cleanUp ends whatever the suite has left, and deletes its snapshots.
func cleanUp(t *testing.T, values map[string]any, brokers map[string]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for broker := range brokers {
		p := provider.New(hclog.NewNullLogger()).(*provider.Provider)
		settings, mistakes := p.Describe().Schema.Resolve(values)
		assert.Equal(t, len(mistakes), 0)
		if err := p.Configure(ctx, sdk.ConfigureRequest{Label: "e2b", BrokerID: broker, StateDir: t.TempDir(), Settings: settings}); err != nil {
			continue // one that was never accepted has made nothing
		}
		left, err := p.List(ctx)
		assert.Check(t, err)
		for _, instance := range left {
			t.Logf("ending %s, which was left", instance.ID)
			assert.Check(t, p.Destroy(ctx, instance.ID))
		}
		kept, err := p.ListSnapshots(ctx)
		assert.Check(t, err)
		for _, snapshot := range kept {
			t.Logf("deleting the snapshot %s, which was left", snapshot.ID)
			assert.Check(t, p.DeleteSnapshot(ctx, snapshot.ID))
		}
		assert.Check(t, p.Close(ctx))
	}
}

// TestLiveFirst is the smallest round, to see whether anything works at all.
func TestLiveFirst(t *testing.T) {
	p := provider.New(hclog.NewNullLogger()).(*provider.Provider)
	settings, mistakes := p.Describe().Schema.Resolve(liveSettings(t))
	assert.Equal(t, len(mistakes), 0)
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "e2b", BrokerID: "live" + strings.ToLower(rand.Text()), StateDir: t.TempDir(), Settings: settings}))
	defer func() { assert.Check(t, p.Close(context.Background())) }()
	id := create(t, p)
	defer func() { assert.NilError(t, p.Destroy(context.Background(), id)) }()
	assert.Equal(t, bash(t, p, id, "echo hello"), "hello\n")
}
