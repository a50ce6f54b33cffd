package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
		o.Executed("one", sdk.Python, sdk.StatusSucceeded, "")
	}
	o.Executed("one", sdk.Python, sdk.StatusTimeout, sdk.CodeExecutionTimeout)
	o.Executed("one", "", instance.StatusError, sdk.CodeUnavailable)
	o.Created("one", instance.CreateMade, "")
	o.Created("two", instance.CreateUnclear, sdk.CodeConnectionFailed)
	o.FailedOver("two", "one", sdk.CodeConnectionFailed)
	text := outcomesOf(o)
	for _, want := range []string{
		`sandbox_broker_executions_total{code="",language="python",provider="one",status="succeeded"} 2`,
		`sandbox_broker_executions_total{code="SB005",language="python",provider="one",status="timeout"} 1`,
		`sandbox_broker_executions_total{code="SB009",language="",provider="one",status="error"} 1`,
		`sandbox_broker_creations_total{code="",outcome="made",provider="one"} 1`,
		`sandbox_broker_creations_total{code="SB003",outcome="unclear",provider="two"} 1`,
		`sandbox_broker_failovers_total{code="SB003",from="two",to="one"} 1`,
	} {
		assert.Check(t, is.Contains(text, want+"\n"))
	}
}

// What plugins say is the value of a label, and each costs memory for ever.
func TestValuesOfLabelsAreBounded(t *testing.T) {
	o := metrics.NewOutcomes()
	for i := range 1000 {
		o.Executed("one", sdk.Language(fmt.Sprintf("l%d", i)), "succeeded", "")
		o.Executed("one", sdk.Python, sdk.Status(fmt.Sprintf("s%d", i)), sdk.Code(fmt.Sprintf("SB%d", 1000+i)))
	}
	o.Executed("one", sdk.Language(strings.Repeat("x", 100_000)), sdk.StatusFailed, "")
	o.Executed("one", "\xff", sdk.StatusFailed, "")
	text := outcomesOf(o)
	assert.Check(t, strings.Count(text, "sandbox_broker_executions_total{") < 50)
	assert.Check(t, is.Contains(text, `{code="other",language="python",provider="one",status="other"} 1000`))
	assert.Check(t, is.Contains(text, `{code="",language="other",provider="one",status="failed"} 2`))
}
