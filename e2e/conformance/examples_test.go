package conformance_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// examples are the providers of third parties, with what builds them into a file.
var examples = []struct {
	name   string
	needs  map[string]string // packages of Debian by program
	build  func(file string) icmd.Cmd
	cases  string // an expression for those of the conformance suite that are run here
	passes int    // at least so many of them
	// The same with -short: "" if there is no difference.
	some       string
	somePasses int
}{
	{
		// Its own tests run all of the suite; this is what a process of its own can change.
		name: "bubblewrap", needs: map[string]string{"bwrap": "bubblewrap"}, cases: "^(description|schema|configure|process|labels|lifecycle|execute|concurrency)/", passes: 90,
		build: func(file string) icmd.Cmd {
			return icmd.Command("go", "build", "-C", "../../examples/bubblewrap-provider", "-o", file, ".")
		},
	},
	{
		name: "python_example", needs: map[string]string{"bwrap": "bubblewrap", "protoc": "protobuf-compiler libprotobuf-dev python3-grpcio"}, cases: ".", passes: 170,
		some: "^(description|schema|configure|process|labels|lifecycle|isolation|execute/python|streams/bash)/", somePasses: 60,
		build: func(file string) icmd.Cmd { return icmd.Command("../../examples/python-provider/build", file) },
	},
}

// buildExample returns the path of a provider that was built.
func buildExample(t *testing.T, i int) string {
	t.Helper()
	example := examples[i]
	for program, debianPackage := range example.needs {
		binaries.Needs(t, program, debianPackage)
	}
	if example.name == "python_example" && exec.Command("/usr/bin/python3", "-c", "import grpc").Run() != nil {
		binaries.Missing(t, "there is no gRPC for Python: apt-get install python3-grpcio")
	}
	file := filepath.Join(t.TempDir(), example.name)
	result := icmd.RunCmd(example.build(file))
	assert.NilError(t, result.Error, result.Combined())
	return file
}

var summary = regexp.MustCompile(`(?m)^(\d+) passed, 0 failed, (\d+) skipped$`)

func TestTheExamplesKeepTheContract(t *testing.T) {
	t.Parallel()
	broker := filepath.Join(binaries.Dir(t), "sandbox-broker")
	for i, example := range examples {
		t.Run(example.name, func(t *testing.T) {
			t.Parallel()
			file := buildExample(t, i)
			cases, passes := example.cases, example.passes
			if testing.Short() && example.some != "" {
				cases, passes = example.some, example.somePasses
			}
			result := icmd.RunCommand(broker, "plugin", "verify", file, "--patience", "6", "--run", cases)
			assert.NilError(t, result.Error, result.Combined())
			counts := summary.FindStringSubmatch(result.Stdout())
			assert.Assert(t, counts != nil, result.Combined())
			passed, err := strconv.Atoi(counts[1])
			assert.NilError(t, err)
			assert.Check(t, passed >= passes, "%s: a capability or a language is missing", counts[0])
		})
	}
}

// What the suite cannot see: agents use them, and nothing is left when the broker is
// killed.
func TestTheExamplesServeAgents(t *testing.T) {
	for i, example := range examples {
		t.Run(example.name, func(t *testing.T) {
			file := buildExample(t, i)
			b := harness.Start(t, harness.Options{
				Config:  harness.Tenants + "provider \"" + example.name + "\" {}\n",
				Plugins: map[string]string{example.name: file},
			})
			e := b.Execute(t, map[string]any{
				"language": "python", "code": "def main(name): return f'Hello {name}!'", "arguments": map[string]any{"name": "World"},
			})
			assert.Check(t, is.Equal(string(e.Result), `"Hello World!"`), "%+v", e)
			e = b.Execute(t, map[string]any{"language": "bash", "code": "sleep 1000", "timeout": 1})
			assert.Check(t, is.Equal(e.Status, "timeout"))

			// A name by which the harness knows it for one of this broker's.
			name := b.Dir + "-code"
			gone := make(chan harness.Answer, 1)
			go func() {
				gone <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "bash", "code": "exec -a " + name + " sleep 1000"})
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				for _, p := range b.Left() {
					if strings.HasPrefix(p.Command, name) {
						return poll.Success()
					}
				}
				return poll.Continue("it does not run yet")
			}, poll.WithTimeout(2*time.Minute))
			b.Kill()
			assert.Check(t, (<-gone).Err != nil)
			b.WaitGone()
		})
	}
}
