package provider_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// awkward are values that the code interpreter cannot paste.
var awkward = map[string]string{
	"QUOTES":     `it's "here"` + " `now` ${HOME}",
	"LINES":      "one\ntwo\r\nthree",
	"BACKSLASH":  `C:\temp\new\`,
	"LONG":       strings.Repeat("0123456789", 10_000),
	"TOKEN":      "hunter2",
	"UNICODE":    "naïve ☃ 𝄞",
	"INJECTION":  "'; raise SystemExit(3) #",
	"INJECTION2": "'; process.exit(3); //",
}

func createWith(t *testing.T, p *provider.Provider, env map[string]string) string {
	t.Helper()
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: rand.Text(), TTL: time.Hour, Env: env})
	assert.NilError(t, err)
	return made.ID
}

// inContext runs code and returns all that was heard.
func inContext(t *testing.T, p *provider.Provider, c sdk.CodeContext, id, code string) (sdk.ExecuteResult, *heard) {
	t.Helper()
	req := request(id, c.Language, code)
	req.ContextID, req.Artifacts = c.ID, &sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20}
	out := &heard{}
	result, err := p.Execute(t.Context(), req, out)
	assert.NilError(t, err)
	return result, out
}

func TestTheEnvironmentReachesTheCodeWholeAndNothingElse(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := createWith(t, p, awkward)
	for language, code := range map[sdk.Language]struct{ declares, shows string }{
		sdk.Python:     {"q = 1", "import os, sys\nsys.stdout.write(os.environ[%q])"},
		sdk.JavaScript: {"const q = 1", "process.stdout.write(process.env[%q])"},
		sdk.TypeScript: {"const q = 1", "process.stdout.write(process.env[%q])"},
	} {
		if testing.Short() && language == sdk.TypeScript {
			continue // it is JavaScript's kernel
		}
		for _, own := range []map[string]string{nil, {"QUOTES": `its 'own'`, "MORE": `\'`}} {
			t.Run(fmt.Sprintf("%s, %d of its own", language, len(own)), func(t *testing.T) {
				c, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language, Env: own})
				assert.NilError(t, err)
				for range 2 { // the second time in another kernel
					result, out := inContext(t, p, c, id, code.declares)
					assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
					assert.Check(t, is.Len(out.artifacts, 0))
					assert.Check(t, is.Equal(out.out()+out.stderr.String(), ""))
					for name, value := range awkward {
						if _, other := own[name]; other {
							value = own[name]
						}
						result, out := inContext(t, p, c, id, fmt.Sprintf(code.shows, name))
						assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
						assert.Check(t, out.out() == value, "%s: %.100q", name, out.out())
					}
					assert.NilError(t, p.RestartContext(t.Context(), id, c.ID))
				}
			})
		}
	}
	for _, code := range []string{"const q = 1", "function main() { return process.env.LINES; }"} {
		req := request(id, sdk.TypeScript, code)
		req.Artifacts = &sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20}
		var out heard
		result, err := p.Execute(t.Context(), req, &out)
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s", out.stderr.String())
		assert.Check(t, is.Len(out.artifacts, 0))
	}
}

func TestAContextKeepsItsDirectoryWhateverEndsItsKernel(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	p.ExpectObedience(50 * time.Millisecond)
	id := createWith(t, p, map[string]string{"A": "it's"})
	for language, c := range map[sdk.Language]struct{ where, dies, hangs string }{
		sdk.Python: {
			"import os; print(os.getcwd(), os.environ['A'], os.environ['B'])", "import os; os._exit(3)",
			"import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(98765)",
		},
		sdk.JavaScript: {"console.log(process.cwd(), process.env.A, process.env.B)", "process.exit(3)", "for (;;);"},
	} {
		t.Run(string(language), func(t *testing.T) {
			made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: language, Cwd: "/tmp", Env: map[string]string{"B": "b"}})
			assert.NilError(t, err)
			where := func(after string) {
				t.Helper()
				_, out := inContext(t, p, made, id, c.where)
				assert.Equal(t, out.out(), "/tmp it's b\n", after)
			}
			where("its creation")
			assert.NilError(t, p.RestartContext(t.Context(), id, made.ID))
			where("a restart")
			result, _ := inContext(t, p, made, id, c.dies)
			assert.Equal(t, result.Status, sdk.StatusFailed)
			where("a crash")
			req := request(id, language, c.hangs)
			req.ContextID, req.Timeout = made.ID, time.Second
			result, err = p.Execute(t.Context(), req, &heard{})
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusTimeout)
			where("a time limit")
		})
	}
}

func TestTheEndOfAJavaScriptInterpreterIsTold(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.JavaScript})
	assert.NilError(t, err)
	for code, want := range map[string]sdk.ExecuteResult{
		"process.exit(3)": {Status: sdk.StatusFailed, ExitCode: 3},
		"process.exit()":  {Status: sdk.StatusSucceeded},
		"await new Promise((resolve) => setTimeout(resolve, 1500)); process.kill(process.pid, 'SIGKILL')": {Status: sdk.StatusFailed, ExitCode: 137},
	} {
		result, out := inContext(t, p, made, id, "console.log('before'); "+code)
		assert.Equal(t, result.Status, want.Status, code)
		assert.Equal(t, result.ExitCode, want.ExitCode, code)
		assert.Equal(t, result.Detail, "the interpreter has ended; the context starts afresh")
		assert.Equal(t, out.out(), "before\n")
		_, out = inContext(t, p, made, id, "console.log('after')")
		assert.Equal(t, out.out(), "after\n")
	}
	assert.NilError(t, server.KillForMemory(id))
	result, _ := inContext(t, p, made, id, "process.kill(process.pid, 'SIGKILL')")
	assert.Equal(t, result.Status, sdk.StatusOutOfMemory)
	assert.Equal(t, bash(t, p, id, "pgrep -f heap.out.of || true"), "", "nobody waits any more")
}
