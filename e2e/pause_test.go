package e2e_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
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

// pausedFiles are what paused instances take on the disk of a broker.
func pausedFiles(t *testing.T, b *harness.Broker) (files []string) {
	t.Helper()
	assert.NilError(t, filepath.WalkDir(b.Dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(filepath.Dir(path)) == "paused" {
			files = append(files, path)
		}
		return nil // what goes while somebody looks is no failure
	}))
	return files
}

// A paused instance gives back its place and its memory, goes on when there is a place again,
// and ends with the plugin that has it.
func TestAPausedInstanceGivesItsPlaceToAnother(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "runsc makes checkpoints for root only")
	}
	config := strings.Replace(harness.Tenants, "quota {", "quota {\n  max_instances = 1\n  max_paused = 1\n ", 1)
	config = strings.Replace(config, "max_concurrent = 10000 }", "max_concurrent = 10000\n}", 1)
	b := harness.Start(t, harness.Options{Config: config + fmt.Sprintf(
		"provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 0\n  max_sandboxes = 1\n}\n", binaries.Runsc(t),
	)})
	counts := func(instances, paused float64) {
		t.Helper()
		assert.Check(t, is.Equal(used(t, b, "max_instances"), instances), "instances")
		assert.Check(t, is.Equal(used(t, b, "max_paused"), paused), "paused")
	}
	first := newWorkbench(t, b, map[string]any{"language": "python"})
	python := first.newContext(map[string]any{"language": "python"})
	says := func(code string) string {
		t.Helper()
		return strings.TrimSpace(first.execute(map[string]any{"context_id": python, "code": code}).Stdout)
	}
	says("import os; data = os.urandom(20 << 20); secret = 'x'.join(['of', 'the', 'instance']); open('kept', 'w').write('a file')")
	before := says("print(sum(data[::4096]))")
	answer := first.do(http.MethodPost, "/commands", map[string]any{"argv": []string{"bash", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"}, "background": true})
	assert.Check(t, answer.Status < 300, "%s", answer.Body)
	var command client.Command
	answer.Into(t, &command)

	var shown struct{ State string }
	answer = first.do(http.MethodPost, "/pause", nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &shown)
	assert.Equal(t, shown.State, "paused")
	counts(0, 1)
	files := pausedFiles(t, b)
	assert.Assert(t, is.Len(files, 1))
	content, err := os.ReadFile(files[0])
	assert.NilError(t, err)
	assert.Check(t, len(content) > 20<<20)
	assert.Check(t, !bytes.Contains(content, []byte("ofxthexinstance")), "it is readable on the disk")

	second := newWorkbench(t, b, map[string]any{"language": "bash"})
	counts(1, 1)
	problem := harness.Refused(t, first.do(http.MethodPost, "/resume", nil), http.StatusTooManyRequests, "SB008")
	assert.Check(t, is.Contains(problem.Detail, "max_instances = 1"))
	problem = harness.Refused(t, second.do(http.MethodPost, "/pause", nil), http.StatusTooManyRequests, "SB008")
	assert.Check(t, is.Contains(problem.Detail, "max_paused = 1"))
	assert.Equal(t, second.execute(map[string]any{"language": "bash", "code": "echo goes on"}).Stdout, "goes on\n")
	harness.Refused(t, first.do(http.MethodPost, "/execute", map[string]any{"language": "bash", "code": "true"}), http.StatusConflict, "SB014")
	assert.Equal(t, second.do(http.MethodDelete, "", nil).Status, http.StatusNoContent)

	answer = first.do(http.MethodPost, "/resume", nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	counts(1, 0)
	assert.Equal(t, says("print(sum(data[::4096]))"), before)
	assert.Equal(t, says("print(secret, open('kept').read())"), "ofxthexinstance a file")
	printed := func() int64 {
		var c client.Command
		first.do(http.MethodGet, "/commands/"+command.ID, nil).Into(t, &c)
		assert.Equal(t, string(c.State), "running")
		return c.StdoutBytes
	}
	last := printed()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if printed() <= last {
			return poll.Continue("the command stands still")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Check(t, is.Len(pausedFiles(t, b), 0))

	assert.Equal(t, first.do(http.MethodPost, "/pause", nil).Status, http.StatusOK)
	counts(0, 1)
	assert.NilError(t, syscall.Kill(b.Plugin("self_managed"), syscall.SIGKILL))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if answer := first.do(http.MethodGet, "", nil); answer.Status != http.StatusNotFound {
			return poll.Continue("%s", answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": "true"})
		if answer.Status != http.StatusOK {
			return poll.Continue("%s", answer.Body)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	assert.Check(t, is.Len(pausedFiles(t, b), 0), "the next process has removed them")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := used(t, b, "max_instances") + used(t, b, "max_paused"); n > 0 {
			return poll.Continue("%v count", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
