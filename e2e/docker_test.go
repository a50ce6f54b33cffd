package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// The whole on a Docker Engine, and nothing of it outlives the broker.
func TestTheDockerRuntime(t *testing.T) {
	t.Parallel()
	engine := dockerengine.Find(t)
	b := startReal(t, fmt.Sprintf("runtime = \"docker\"\n  docker_host = %q", engine.Host))
	id, err := os.ReadFile(filepath.Join(b.Dir, "state", "broker_id"))
	assert.NilError(t, err)
	containers := func() []dockerengine.Container { return engine.Containers(t, strings.TrimSpace(string(id))) }

	for language, code := range map[string]string{
		"python": "import os; print(os.uname().release)", "javascript": "console.log(require('os').release())", "bash": "uname -r",
	} {
		e := b.Execute(t, map[string]any{"language": language, "code": code})
		assert.Check(t, is.Equal(e.Stdout, "4.19.0-gvisor\n"), "%+v", e)
	}
	e := b.Execute(t, map[string]any{"language": "python", "code": "def main(a): return a + 1", "arguments": map[string]any{"a": 1}})
	assert.Check(t, is.Equal(string(e.Result), "2"))
	e = b.Execute(t, map[string]any{"language": "python", "code": "x = b'x' * (2 << 30)"})
	assert.Check(t, is.Equal(e.Status, "out_of_memory"))
	assert.Check(t, is.Contains(string(b.Do(http.MethodGet, "/api/v1/providers", harness.Token, nil).Body), "self_managed"))
	assert.Check(t, len(containers()) > 0)

	b.Kill()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for _, c := range containers() {
			if c.State != "created" {
				return poll.Continue("a container is left: %v", c)
			}
			// One that was made and not started has no process, and waits for the
			// next start of this broker, which will not come. It cannot be removed
			// so if the engine still starts it.
			if err := engine.Do(http.MethodDelete, "/containers/"+c.ID, nil, nil); err != nil {
				return poll.Continue("%v", err)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
