package metrics_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestWhatIsKeptIsCountedByProvider(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowSnapshots(func() map[string]metrics.Snapshots {
		return map[string]metrics.Snapshots{"pool": {Count: 2, Bytes: 4096}}
	})
	m.ShowVolumes(func() map[string]metrics.Volumes {
		return map[string]metrics.Volumes{"pool": {Count: 3, Bytes: 8192}, "other": {Count: 1, Bytes: 16}}
	})
	_, text := get(t, http.MethodGet, serve(t, m))
	for _, line := range []string{
		`sandbox_broker_snapshots{provider="pool"} 2`,
		`sandbox_broker_snapshot_bytes{provider="pool"} 4096`,
		`sandbox_broker_volumes{provider="pool"} 3`,
		`sandbox_broker_volume_bytes{provider="pool"} 8192`,
		`sandbox_broker_volumes{provider="other"} 1`,
	} {
		assert.Check(t, cmp.Contains(text, line+"\n"))
	}
}
