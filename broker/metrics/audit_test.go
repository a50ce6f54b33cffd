package metrics_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestTheAuditLogIsShown(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowAudit(func() metrics.Audit {
		return metrics.Audit{Lines: 7, Refused: 2, Late: 1, Behind: map[string]uint64{"webhook": 3}}
	})
	status, text := get(t, http.MethodGet, serve(t, m))
	assert.Equal(t, status, http.StatusOK)
	for _, line := range []string{
		"sandbox_broker_audit_writable 0\n", "sandbox_broker_audit_lines_total 7\n", "sandbox_broker_audit_refused_total 2\n",
		"sandbox_broker_audit_late_total 1\n", "sandbox_broker_audit_sink_behind{sink=\"webhook\"} 3\n",
	} {
		assert.Check(t, is.Contains(text, line))
	}
}
