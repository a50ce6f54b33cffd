package e2e_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestASandboxAtE2BOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	b, server := startE2B(t)
	kept := create(t, b, harness.Token, map[string]any{"session_id": "s", "ttl": 600})
	wrote := b.Execute(t, map[string]any{"language": "bash", "code": "echo mine > /workspace/file", "session_id": "s"})
	assert.Equal(t, wrote.InstanceID, kept.ID)
	promised := look(t, b, harness.Token, kept.ID).ExpiresAt
	for range 2 {
		b.Kill()
		b.WaitGone()
		b.Restart()
		assert.Check(t, !look(t, b, harness.Token, kept.ID).ExpiresAt.Before(promised))
		read := b.Execute(t, map[string]any{"language": "bash", "code": "cat /workspace/file", "session_id": "s"})
		assert.Equal(t, read.InstanceID, kept.ID)
		assert.Equal(t, read.Stdout, "mine\n", "%s", read.Stderr)
		assert.Check(t, is.Len(server.Sandboxes(), 1))
	}
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+kept.ID, harness.Token, nil).Status, http.StatusNoContent)
	assert.Check(t, is.Len(server.Sandboxes(), 0))
}
