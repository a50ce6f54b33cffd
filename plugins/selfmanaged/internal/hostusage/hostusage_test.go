package hostusage_test

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/hostusage"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func byName(metrics []sdk.Metric) map[string]float64 {
	values := map[string]float64{}
	for _, m := range metrics {
		values[m.Name] = m.Value
	}
	return values
}

func TestWhatTheMachineHasIsTold(t *testing.T) {
	all, err := hostusage.Metrics(t.TempDir())
	assert.NilError(t, err)
	assert.NilError(t, wire.CheckMetrics(all))
	v := byName(all)
	assert.Assert(t, v["host_cpus"] >= 1, "%v", v)
	assert.Assert(t, v["host_cpu_busy_seconds_total"] > 0, "%v", v)
	assert.Assert(t, v["host_memory_available_bytes"] > 0 && v["host_memory_available_bytes"] <= v["host_memory_bytes"], "%v", v)
	assert.Assert(t, v["host_disk_available_bytes"] > 0 && v["host_disk_available_bytes"] <= v["host_disk_bytes"], "%v", v)
}

func TestTheRestIsToldWithoutADisk(t *testing.T) {
	all, err := hostusage.Metrics(filepath.Join(t.TempDir(), "missing"))
	assert.ErrorContains(t, err, "size of the disk")
	v := byName(all)
	assert.Assert(t, v["host_cpus"] >= 1 && v["host_memory_bytes"] > 0, "%v", v)
	_, told := v["host_disk_bytes"]
	assert.Assert(t, !told)
}
