package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestTheQuotasOfTenants(t *testing.T) {
	m := metrics.New(func() []metrics.Provider { return nil }, func() metrics.Configuration { return metrics.Configuration{} })
	m.ShowQuotas(func(most int) []metrics.Quota {
		assert.Check(t, most == metrics.MaxTenants)
		return []metrics.Quota{{
			Tenant: "acme", Used: map[string]float64{"max_instances": 2, "executions_per_day": 7},
			Limits: map[string]float64{"max_instances": 3}, Refused: map[string]int64{"max_instances": 5}, Waiting: 4,
		}}
	})
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, metrics.Path, nil))
	for _, want := range []string{
		`sandbox_broker_quota_used{limit="max_instances",tenant="acme"} 2`,
		`sandbox_broker_quota_used{limit="executions_per_day",tenant="acme"} 7`,
		`sandbox_broker_quota_limit{limit="max_instances",tenant="acme"} 3`,
		`sandbox_broker_quota_refusals_total{limit="max_instances",tenant="acme"} 5`,
		`sandbox_broker_quota_waiting{tenant="acme"} 4`,
	} {
		assert.Assert(t, strings.Contains(recorder.Body.String(), want+"\n"), "%s is missing", want)
	}
	assert.Assert(t, !strings.Contains(recorder.Body.String(), `sandbox_broker_quota_limit{limit="executions_per_day"`))
}
