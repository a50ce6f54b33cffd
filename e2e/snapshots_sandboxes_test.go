package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Variables of an interpreter are in forks and, when the plugin and then the broker have been
// killed, in copies of a snapshot, which nobody can read on the disk.
func TestSandboxesAreForkedAndOutliveTheirPlugin(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "runsc makes checkpoints for root only")
	}
	b := harness.Start(t, harness.Options{Config: harness.Tenants + fmt.Sprintf(
		"provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n}\n", binaries.Runsc(t),
	)})
	in := func(id string) workbench { return workbench{t, b, "/api/v1/instances/" + id} }
	original := newWorkbench(t, b, map[string]any{"language": "python"})
	id := strings.TrimPrefix(original.path, "/api/v1/instances/")
	python := original.newContext(map[string]any{"language": "python"})
	says := func(w workbench, code string) string {
		t.Helper()
		return strings.TrimSpace(w.execute(map[string]any{"context_id": python, "code": code}).Stdout)
	}
	says(original, "n = 1; secret = 'x'.join(['of', 'the', 'original'])")

	answer := original.do(http.MethodPost, "/fork", map[string]any{"count": 3})
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	var fork client.Fork
	answer.Into(t, &fork)
	assert.Assert(t, is.Len(fork.Instances, 3))
	for i, one := range fork.Instances {
		assert.Check(t, is.Equal(says(in(one.ID), fmt.Sprintf("n += %d; print(n)", i)), fmt.Sprint(1+i)))
	}
	assert.Check(t, is.Equal(says(original, "print(n)"), "1"))

	kept := keep(t, b, id, map[string]any{"name": "before"})
	assert.Check(t, kept.Memory)
	assert.NilError(t, syscall.Kill(b.Plugin("self_managed"), syscall.SIGKILL))
	goesOn := func(session string) {
		t.Helper()
		made := create(t, b, harness.Token, map[string]any{"snapshot": kept.ID, "session_id": session})
		assert.Check(t, is.Equal(says(in(made.ID), "n += 1; print(n, secret)"), "2 ofxthexoriginal"))
		destroyAfter(t, b, made.ID)
	}
	// The next plugin finds it, and that of the next broker.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": "true"})
		if answer.Status != http.StatusOK {
			return poll.Continue("%s", answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	goesOn("one")
	b.Kill()
	b.WaitGone()
	b.Restart()
	goesOn("two")
	// Two processes at once: the one has the instance, the other makes the next.
	rewrite(t, b, with("pool_size = 1", "pool_size = 2"))
	awaitLog(t, b, "an earlier process of the provider serves its instances to their end", 1)
	goesOn("three")
	deleted := b.Do(http.MethodDelete, "/api/v1/snapshots/"+kept.ID, harness.Token, nil)
	assert.Equal(t, deleted.Status, http.StatusNoContent, "%s", deleted.Body)
}
