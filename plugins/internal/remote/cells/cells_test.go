package cells_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/cells"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/remotetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// service knows one sandbox.
type service struct {
	box   place.Box
	mu    sync.Mutex
	saved []contexts.Saved
}

func (s *service) Box(context.Context, string) (place.Box, error)       { return s.box, nil }
func (s *service) Worth(error) (time.Duration, bool)                    { return 0, false }
func (s *service) Refused(error) bool                                   { return false }
func (s *service) Explain(_ context.Context, err error, _ string) error { return err }
func (s *service) Lost(place.Box) error                                 { return nil }
func (s *service) Files(box place.Box) artifacts.Finder {
	return artifacts.Finder{Store: store{place.Store{Service: s}}, Instance: box.ID, Most: 100}
}

func (s *service) Load(context.Context, place.Box) ([]contexts.Saved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved, nil
}

func (s *service) Save(_ string, all []contexts.Saved) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = all
	return nil
}

// store is its files.
type store struct{ place.Store }

func (store) Open(_ context.Context, _, name string, _, _ int64) (io.ReadCloser, error) {
	return os.Open(name)
}

// session has contexts of one language.
type session struct {
	t   *testing.T
	s   *service
	all *cells.Contexts
	id  string
	sdk.Language
	running remote.Executions
}

func begin(t *testing.T, language sdk.Language) *session {
	t.Helper()
	if language == sdk.Python {
		binaries.Needs(t, "python3", "python3")
	} else {
		binaries.Needs(t, "node", "nodejs")
	}
	sandbox := remotetest.New(t)
	s := &service{box: place.Box{Runner: sandbox, ID: "box", Workspace: sandbox.Workspace(t)}}
	b := &session{t: t, s: s, all: cells.New(s, hclog.NewNullLogger()), Language: language}
	made, err := b.all.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: "box", Language: language, Env: map[string]string{"OF": "context"}})
	assert.NilError(t, err)
	b.id = made.ID
	t.Cleanup(func() { assert.Check(t, b.all.DeleteContext(context.WithoutCancel(t.Context()), "box", b.id)) })
	return b
}

// heard is what an execution has said.
type heard struct {
	sdk.ExecuteResult
	mu             sync.Mutex
	stdout, stderr strings.Builder
	values         map[string]string
}

func (h *heard) Stdout(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stdout.Write(p)
	return nil
}

func (h *heard) Stderr(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stderr.Write(p)
	return nil
}

func (h *heard) Artifact(a sdk.Artifact) error {
	h.values[string(a.Kind)+" "+a.MIMEType] = string(a.Data)
	return nil
}

func (b *session) run(code string, change ...func(*sdk.ExecuteRequest)) *heard {
	b.t.Helper()
	req := sdk.ExecuteRequest{InstanceID: "box", ExecutionID: "e", ContextID: b.id, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}
	for _, f := range change {
		f(&req)
	}
	h := &heard{values: map[string]string{}}
	var err error
	h.ExecuteResult, err = b.all.Execute(b.t.Context(), b.s.box, req, req.Timeout, &b.running, h)
	assert.NilError(b.t, err)
	return h
}

func TestAPythonInterpreterKeepsItsState(t *testing.T) {
	b := begin(t, sdk.Python)
	b.run("x = 20")
	assert.Equal(t, b.run("import sys; print(x, file=sys.stderr); print('é')").stderr.String(), "20\n")
	b.run("import asyncio\nawait asyncio.sleep(0)\ny = x + 22")
	assert.Equal(t, b.run("print(y, __name__, open(0).read() == '')").stdout.String(), "42 __main__ True\n")
	failed := b.run("def f():\n    return nope\nf()")
	assert.Equal(t, failed.ExitCode, 1)
	assert.Equal(t, failed.stderr.String(), "Traceback (most recent call last):\n  File \"<cell 5>\", line 3, in <module>\n    f()\n  File \"<cell 5>\", line 2, in f\n    return nope\n           ^^^^\nNameError: name 'nope' is not defined\n")
	assert.Equal(t, b.run("import sys; sys.exit(3)").ExitCode, 3)
	got := b.run("import os, subprocess\nprint(os.environ['OF'], os.environ['IN'])\nsubprocess.run(['echo', 'by a child'])", func(r *sdk.ExecuteRequest) { r.Env = map[string]string{"IN": "cell"} })
	assert.Equal(t, got.stdout.String(), "context cell\nby a child\n")
	assert.Equal(t, b.run("print(os.environ.get('IN'))").stdout.String(), "None\n")
}

func TestValuesAreShown(t *testing.T) {
	for language, tests := range map[sdk.Language]map[string]map[string]string{
		sdk.Python: {
			"6 * 7":  {"result text/plain": "42"},
			"[1, 2]": {"result text/plain": "[1, 2]", "result application/json": "[1, 2]"},
			"1;":     {},
			"None":   {},
			"class A:\n  def _repr_html_(self): return '<b>'\n  def __repr__(self): return 'A'\nA()": {"result text/plain": "A", "result text/html": "<b>"},
			"display(3)": {"display text/plain": "3"},
		},
		sdk.JavaScript: {
			"6 * 7":                    {"result text/plain": "42"},
			"let a = [1, 'x']; a":      {"result text/plain": "[ 1, 'x' ]", "result application/json": `[1,"x"]`},
			"await Promise.resolve(2)": {"result text/plain": "2"},
			"undefined":                {},
			"10n":                      {"result text/plain": "10n"},
		},
	} {
		t.Run(string(language), func(t *testing.T) {
			b := begin(t, language)
			for code, want := range tests {
				got := b.run(code, func(r *sdk.ExecuteRequest) {
					r.Artifacts = &sdk.ArtifactLimits{MaxCount: 10, MaxBytes: 1 << 20, MaxTotalBytes: 1 << 20}
				})
				assert.Check(t, is.DeepEqual(got.values, want), "%s: %s", code, got.stderr.String())
			}
		})
	}
}

func TestMainIsCalled(t *testing.T) {
	for language, code := range map[sdk.Language]string{
		sdk.Python:     "async def main(a, b):\n    print('called')\n    return {'sum': a + b}",
		sdk.JavaScript: "async function main({ a, b }) { console.log('called'); return { sum: a + b } }",
	} {
		t.Run(string(language), func(t *testing.T) {
			b := begin(t, language)
			got := b.run(code, func(r *sdk.ExecuteRequest) { r.Arguments = json.RawMessage(`{"a": 1, "b": 2}`) })
			assert.Equal(t, got.stdout.String(), "called\n", got.stderr.String())
			var value map[string]any
			assert.NilError(t, json.Unmarshal(got.Result, &value))
			assert.DeepEqual(t, value, map[string]any{"sum": 3.0})
			assert.Equal(t, b.run("1", func(r *sdk.ExecuteRequest) { r.Arguments = json.RawMessage(`{"c": 1}`) }).ExitCode, map[sdk.Language]int{sdk.Python: 1}[language])
		})
	}
}

func TestAJavaScriptInterpreterKeepsItsState(t *testing.T) {
	b := begin(t, sdk.JavaScript)
	b.run("const x = 20")
	b.run("const x = 21; process.stderr.write('e')")
	assert.Equal(t, b.run("console.log(x, require('os').EOL.length, process.env.OF)").stdout.String(), "21 1 context\n")
	failed := b.run("throw new TypeError('no')")
	assert.Equal(t, failed.ExitCode, 1)
	assert.Assert(t, strings.HasPrefix(failed.stderr.String(), "TypeError: no\n    at cell-4.js:1:7"), failed.stderr.String())
}

func TestWhatEndsAnInterpreterEndsItsCell(t *testing.T) {
	b := begin(t, sdk.Python)
	b.run("x = 1")
	got := b.run("import os; print('last', flush=True); os._exit(5)")
	assert.Equal(t, got.ExitCode, 5)
	assert.Equal(t, got.stdout.String(), "last\n")
	assert.Assert(t, got.Detail != "")
	assert.Equal(t, b.run("print('x' in globals())").stdout.String(), "False\n")
}

func TestCodeThatIsInterruptedKeepsTheState(t *testing.T) {
	b := begin(t, sdk.Python)
	b.run("x = 1")
	got := b.run("while True: pass", func(r *sdk.ExecuteRequest) { r.Timeout = 300 * time.Millisecond })
	assert.Equal(t, got.Status, sdk.StatusTimeout)
	assert.Equal(t, b.run("print(x)").stdout.String(), "1\n")
}

func TestAnotherProcessGoesOn(t *testing.T) {
	b := begin(t, sdk.Python)
	b.run("x = 7")
	b.all = cells.New(b.s, hclog.NewNullLogger())
	assert.Equal(t, b.run("print(x)").stdout.String(), "7\n")
	assert.NilError(t, place.Recover(t.Context(), b.s.box)) // the sandbox was stopped, they say
	assert.Equal(t, b.run("print('x' in globals())").stdout.String(), "False\n")
	states, err := place.States(t.Context(), b.s.box)
	assert.NilError(t, err)
	for _, s := range states {
		assert.Check(t, !strings.Contains(strings.Join(s.Argv, " "), "{}"), "an interpreter is listed as a command")
	}
}
