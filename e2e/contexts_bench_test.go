package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// BenchmarkContext is an execution in a context, through REST; p50-ms is what half
// of them stay below.
func BenchmarkContext(b *testing.B) {
	for language, code := range map[string]string{"python": "x + 1", "javascript": "x + 1"} {
		b.Run(language, func(b *testing.B) {
			broker := startReal(b, "")
			var made struct{ ID string }
			broker.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"language": language}).Into(b, &made)
			instance := "/api/v1/instances/" + made.ID
			broker.Do(http.MethodPost, instance+"/contexts", harness.Token, map[string]any{"language": language}).Into(b, &made)
			execute := func(code string) {
				answer := broker.Do(http.MethodPost, instance+"/execute", harness.Token, map[string]any{"context_id": made.ID, "code": code})
				assert.NilError(b, answer.Err)
				assert.Equal(b, answer.Status, http.StatusOK, "%s", answer.Body)
			}
			execute("x = 41")
			var times []time.Duration
			for b.Loop() {
				began := time.Now()
				execute(code)
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2].Seconds()*1e3, "p50-ms")
			b.ReportMetric(times[len(times)*99/100].Seconds()*1e3, "p99-ms")
		})
	}
}
