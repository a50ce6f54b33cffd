package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func outcomesOf(o *metrics.Outcomes) string {
	m := metrics.New(func() []metrics.Provider { return nil }, unchanged)
	m.ShowOutcomes(o)
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, metrics.Path, nil))
	return recorder.Body.String()
}

func TestWhatBecomesOfExecutionsAndCreations(t *testing.T) {
	o := metrics.NewOutcomes()
	for range 2 {
		o.Executed(t.Context(), instance.ExecutionOutcome{
			Provider: "one", Language: sdk.Python, Status: sdk.StatusSucceeded, Took: 40 * time.Millisecond, PeakMemoryBytes: 5 << 20,
		})
	}
	o.Executed(t.Context(), instance.ExecutionOutcome{
		Provider: "one", Language: sdk.Python, Status: sdk.StatusTimeout, Code: sdk.CodeExecutionTimeout, Took: 3 * time.Second,
	})
	o.Executed(t.Context(), instance.ExecutionOutcome{Provider: "one", Status: instance.StatusError, Code: sdk.CodeUnavailable})
	o.Created(t.Context(), "one", instance.CreateMade, "", 3*time.Millisecond)
	o.Admitted(t.Context(), instance.AdmitGranted, 2*time.Second)
	o.Admitted(t.Context(), instance.AdmitLeft, 0)
	o.Created(t.Context(), "two", instance.CreateUnclear, sdk.CodeConnectionFailed, time.Minute)
	o.FailedOver("two", "one", sdk.CodeConnectionFailed)
	text := outcomesOf(o)
	for _, want := range []string{
		`sandbox_broker_executions_total{code="",language="python",provider="one",status="succeeded"} 2`,
		`sandbox_broker_executions_total{code="SB005",language="python",provider="one",status="timeout"} 1`,
		`sandbox_broker_executions_total{code="SB009",language="",provider="one",status="error"} 1`,
		`sandbox_broker_creations_total{code="",outcome="made",provider="one"} 1`,
		`sandbox_broker_creations_total{code="SB003",outcome="unclear",provider="two"} 1`,
		`sandbox_broker_failovers_total{code="SB003",from="two",to="one"} 1`,
		`sandbox_broker_execution_duration_seconds_bucket{language="python",provider="one",le="0.05"} 2`,
		`sandbox_broker_execution_duration_seconds_count{language="python",provider="one"} 3`,
		`sandbox_broker_execution_peak_memory_bytes_bucket{language="python",provider="one",le="8.388608e+06"} 2`,
		`sandbox_broker_creation_duration_seconds_bucket{outcome="made",provider="one",le="0.005"} 1`,
		`sandbox_broker_creation_duration_seconds_sum{outcome="unclear",provider="two"} 60`,
		`sandbox_broker_queue_wait_seconds_bucket{outcome="granted",le="2.5"} 1`,
		`sandbox_broker_queue_wait_seconds_count{outcome="left"} 1`,
	} {
		assert.Check(t, is.Contains(text, want+"\n"))
	}
}

// What plugins say is the value of a label, and each costs memory for ever.
func TestValuesOfLabelsAreBounded(t *testing.T) {
	o := metrics.NewOutcomes()
	ended := func(language sdk.Language, status sdk.Status, code sdk.Code) {
		o.Executed(t.Context(), instance.ExecutionOutcome{Provider: "one", Language: language, Status: status, Code: code})
	}
	for i := range 1000 {
		ended(sdk.Language(fmt.Sprintf("l%d", i)), sdk.StatusSucceeded, "")
		ended(sdk.Python, sdk.Status(fmt.Sprintf("s%d", i)), sdk.Code(fmt.Sprintf("SB%d", 1000+i)))
	}
	ended(sdk.Language(strings.Repeat("x", 100_000)), sdk.StatusFailed, "")
	ended("\xff", sdk.StatusFailed, "")
	text := outcomesOf(o)
	assert.Check(t, strings.Count(text, "sandbox_broker_executions_total{") < 50)
	assert.Check(t, is.Contains(text, `{code="other",language="python",provider="one",status="other"} 1000`))
	assert.Check(t, is.Contains(text, `{code="",language="other",provider="one",status="failed"} 2`))
}
