package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
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

// Variables of an interpreter are in forks, and in copies of a snapshot that the broker has
// outlived. What E2B does not delete while a copy is there is gone to the broker at once.
func TestSandboxesAtE2BAreKeptAndForked(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b, server := startE2B(t)
	in := func(id string) workbench { return workbench{t, b, "/api/v1/instances/" + id} }
	original := newWorkbench(t, b, map[string]any{"language": "python"})
	id := strings.TrimPrefix(original.path, "/api/v1/instances/")
	python := original.newContext(map[string]any{"language": "python"})
	says := func(w workbench, code string) string {
		t.Helper()
		return strings.TrimSpace(w.execute(map[string]any{"context_id": python, "code": code}).Stdout)
	}
	says(original, "n = 1")

	answer := original.do(http.MethodPost, "/fork", map[string]any{"count": 2})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var fork client.Fork
	answer.Into(t, &fork)
	assert.Assert(t, is.Len(fork.Instances, 2))
	for i, one := range fork.Instances {
		assert.Check(t, is.Equal(says(in(one.ID), fmt.Sprintf("n += %d; print(n)", i)), fmt.Sprint(1+i)))
	}
	kept := keep(t, b, id, map[string]any{"name": "before"})
	assert.Check(t, kept.Memory)
	assert.Assert(t, is.Len(server.Snapshots(), 2), "that of the fork is in use")
	for _, one := range fork.Instances {
		assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+one.ID, harness.Token, nil).Status, http.StatusNoContent)
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(server.Snapshots(), 1)) }, poll.WithTimeout(time.Minute))
	b.Kill()
	b.WaitGone()
	b.Restart()
	made := create(t, b, harness.Token, map[string]any{"snapshot": kept.ID, "session_id": "s"})
	assert.Check(t, is.Equal(says(in(made.ID), "n += 1; print(n)"), "2"))
	assert.Check(t, is.Equal(says(original, "print(n)"), "1"))
	deleted := b.Do(http.MethodDelete, "/api/v1/snapshots/"+kept.ID, harness.Token, nil)
	assert.Equal(t, deleted.Status, http.StatusNoContent, "%s", deleted.Body)
	refused := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"snapshot": kept.ID, "session_id": "t"})
	assert.Equal(t, refused.Status, http.StatusNotFound, "%s", refused.Body)
}
