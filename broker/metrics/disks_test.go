package metrics_test

import (
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestWaitsForTheDiskAreShown(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowDisks(func() map[string]disk.State {
		return map[string]disk.State{
			"audit": {Waiting: 7 * time.Second, Count: 3, Sum: 2500 * time.Millisecond, Buckets: map[float64]uint64{1: 2, 5: 3}},
		}
	})
	status, text := get(t, http.MethodGet, serve(t, m))
	assert.Equal(t, status, http.StatusOK)
	for _, line := range []string{
		"sandbox_broker_disk_waiting_seconds{of=\"audit\"} 7\n", "sandbox_broker_disk_write_seconds_bucket{of=\"audit\",le=\"1\"} 2\n",
		"sandbox_broker_disk_write_seconds_sum{of=\"audit\"} 2.5\n", "sandbox_broker_disk_write_seconds_count{of=\"audit\"} 3\n",
	} {
		assert.Check(t, is.Contains(text, line))
	}
}
