package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestAnInstanceIsFoundFrozenAndMeasured(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		created := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "frozen", "labels": map[string]any{"team": "x"}})
		assert.Equal(t, created.Status, http.StatusCreated, "%s", created.Body)
		var page struct {
			Instances []struct{ ID, State string }
		}
		b.Do(http.MethodGet, "/api/v1/instances?label=team=x", harness.Token, nil).Into(t, &page)
		assert.Assert(t, is.Len(page.Instances, 1))
		path := "/api/v1/instances/" + page.Instances[0].ID

		e := b.Execute(t, map[string]any{"session_id": "frozen", "language": "python", "code": "open('kept', 'w').write('x' * (5 << 20))"})
		assert.Equal(t, e.Status, "succeeded", "%+v", e)
		assert.Equal(t, b.Do(http.MethodPost, path+"/pause", harness.Token, nil).Status, http.StatusOK)
		refused := b.Do(http.MethodPost, path+"/execute", harness.Token, map[string]any{"language": "python", "code": "1"})
		assert.Equal(t, refused.Status, http.StatusConflict, "%s", refused.Body)
		var metrics struct {
			DiskMB    float64 `json:"disk_mb"`
			Processes int
		}
		b.Do(http.MethodGet, path+"/metrics", harness.Token, nil).Into(t, &metrics)
		assert.Check(t, metrics.DiskMB >= 5, "%+v", metrics)
		watch, err := b.Watch(t.Context(), path+"/metrics?interval_ms=100")
		assert.NilError(t, err)
		defer watch.Close()
		assert.NilError(t, untilMetrics(watch, func(m map[string]any) bool { return m["disk_mb"].(float64) >= 5 }), "as it was before it was frozen")
		assert.Equal(t, b.Do(http.MethodPost, path+"/resume", harness.Token, nil).Status, http.StatusOK)
		e = b.Execute(t, map[string]any{"session_id": "frozen", "language": "python", "code": "print(len(open('kept').read()))"})
		assert.Equal(t, e.Stdout, "5242880\n")
		b.Execute(t, map[string]any{"session_id": "frozen", "language": "bash", "code": "rm kept"})
		assert.NilError(t, untilMetrics(watch, func(m map[string]any) bool { return m["disk_mb"].(float64) < 5 }), "the stream outlives pause and resume")
		assert.Equal(t, b.Do(http.MethodPost, path+"/pause", harness.Token, nil).Status, http.StatusOK)
		assert.Equal(t, b.Do(http.MethodDelete, path, harness.Token, nil).Status, http.StatusNoContent, "frozen as it is")
		assert.ErrorContains(t, untilMetrics(watch, func(map[string]any) bool { return false }), `"code":"SB013"`)
	})
}

// untilMetrics reads events until what they tell is as wanted.
func untilMetrics(s *harness.Stream, wanted func(map[string]any) bool) error {
	for {
		name, data, err := s.Next()
		if err != nil {
			return err
		}
		if name != "metrics" {
			return fmt.Errorf("event %s: %s", name, data)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		if wanted(m) {
			return nil
		}
	}
}
