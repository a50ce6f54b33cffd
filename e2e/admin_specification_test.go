package e2e_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// What the specification of RAGFlow's sandboxes says of an admin API: paths, bodies, and
// the fields that its page reads.
func TestTheAdminAPIOfTheSpecification(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	var list struct {
		Data []struct {
			ID, Name string
			Schema   map[string]struct {
				Type     string
				Required *bool
			} `json:"config_schema"`
		}
	}
	b.Do(http.MethodGet, adminAPI+"/providers", adminToken, nil).Into(t, &list)
	assert.Assert(t, len(list.Data) > 0)
	assert.Equal(t, list.Data[0].ID, "mock")
	assert.Equal(t, list.Data[0].Name, "Mock")
	assert.Equal(t, list.Data[0].Schema["persist"].Type, "boolean")
	assert.Assert(t, list.Data[0].Schema["persist"].Required != nil)

	var config struct {
		Data struct {
			Active string
			Mock   map[string]any
		}
	}
	b.Do(http.MethodGet, adminAPI+"/config", adminToken, nil).Into(t, &config)
	assert.Equal(t, config.Data.Active, "mock")
	assert.Equal(t, config.Data.Mock["persist"], false)

	for _, test := range []struct {
		method, path, message string
		body                  map[string]any
	}{
		{http.MethodPost, "/config", "Configuration saved", map[string]any{
			"provider_type": "mock", "config": map[string]any{"persist": true}, "test_connection": true, "set_active": true,
		}},
		{http.MethodPut, "/active", "Active provider updated", map[string]any{"provider": "mock"}},
	} {
		answer := b.Do(test.method, adminAPI+test.path, adminToken, test.body)
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		var said struct{ Message string }
		answer.Into(t, &said)
		assert.Equal(t, said.Message, test.message)
	}
	var trial struct {
		Success *bool
		Message *string
		Latency *float64 `json:"latency_ms"`
	}
	b.Do(http.MethodPost, adminAPI+"/test", adminToken, map[string]any{"provider_type": "mock", "config": map[string]any{}}).Into(t, &trial)
	assert.Assert(t, trial.Success != nil && *trial.Success && trial.Message != nil && trial.Latency != nil)
	harness.Refused(t, b.Do(http.MethodPut, adminAPI+"/active", adminToken, map[string]any{"provider": "nobody"}), http.StatusBadRequest, "SB002")
}
