package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestWhatAnAdministratorChangesIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	b := startChangeable(t, commented)
	changed(t, change(t, b, http.MethodPost, "/config", "", map[string]any{
		"provider_type": "mock", "config": map[string]any{"persist": true, "secret": "hunter2-and-more"},
	}))
	lines, text := auditLines(t, auditDir(b))
	changes := ends(lines, "change_configuration")
	assert.Assert(t, is.Len(changes, 1))
	assert.Equal(t, changes[0].Cause, "admin")
	assert.Equal(t, changes[0].Status, "succeeded")
	assert.Equal(t, changes[0].Change, "provider mock: restart")
	assert.Check(t, changes[0].RequestID != "" && strings.HasPrefix(changes[0].Remote, "127.0.0.1:"), "%+v", changes[0])
	assert.Check(t, !strings.Contains(text, "hunter2"), "never a value")
	assert.Check(t, verifyAudit(t, auditDir(b)).OK)
}
