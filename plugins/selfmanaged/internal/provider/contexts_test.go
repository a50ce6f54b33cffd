package provider

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// inContext is a context of an instance, for a test.
type inContext struct {
	t        *testing.T
	provider testProvider
	instance string
	sdk.CodeContext
}

func newContext(t *testing.T, p testProvider, instance string, language sdk.Language) inContext {
	t.Helper()
	c, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: instance, Language: language})
	assert.NilError(t, err)
	return inContext{t, p, instance, c}
}

// run runs code in the context; change may change the request.
func (c inContext) run(code string, change ...func(*sdk.ExecuteRequest)) outcome {
	c.t.Helper()
	req := sdk.ExecuteRequest{
		InstanceID: c.instance, ContextID: c.ID, Code: code,
		Artifacts: &sdk.ArtifactLimits{MaxCount: 20, MaxBytes: 4 << 20, MaxTotalBytes: 16 << 20},
	}
	for _, f := range change {
		f(&req)
	}
	o, err := execute(c.t, c.provider, req)
	assert.NilError(c.t, err)
	return o
}

// value is the text of the result of the last expression.
func (o outcome) value() string {
	for _, a := range o.artifacts {
		if a.Kind == sdk.ArtifactResult && a.MIMEType == "text/plain" {
			return string(a.Data)
		}
	}
	return ""
}

func TestAContextKeepsItsState(t *testing.T) { inTheGuest(t, testContextState) }

func testContextState(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templatePython)
	c := newContext(t, p, instance, sdk.Python)
	for _, step := range []struct{ code, value, stdout, stderr string }{
		{code: "x = 40\nimport math", value: ""},
		{code: "x + 2", value: "42"},
		{code: "x + 2;", value: ""},
		{code: "print('a'); print('b', file=__import__('sys').stderr); math.floor(2.5)", value: "2", stdout: "a\n", stderr: "b\n"},
		{code: "None", value: ""},
		{code: "def main(): return 7", value: ""},
		{code: "import asyncio\nawait asyncio.sleep(0, result='waited')", value: "'waited'"},
		{code: "async def later(): return x\ny = await later()\ny", value: "40"},
		{code: "input()", stderr: "EOFError"},
		{code: "'äöü'", value: "'äöü'"},
		{code: "print('x' * 200_000)", stdout: strings.Repeat("x", 200_000) + "\n"},
		{code: "import os; os.getcwd()", value: "'/workspace'"},
		{code: "import sys\nsys.modules['__main__'].x", value: "40"},
		{code: "f = 1/0", stderr: "Traceback (most recent call last):\n  File \"/workspace/cell-14.py\", line 1, in <module>\n    f = 1/0\n        ~^~\nZeroDivisionError: division by zero\n"},
		{code: "def f(): raise KeyError(x)", value: ""},
		{code: "f()", stderr: "cell-15.py\", line 1, in f\n    def f(): raise KeyError(x)\n"},
		{code: "import inspect; inspect.getsource(f)", value: `'def f(): raise KeyError(x)'`},
		{code: "from __future__ import annotations"},
		{code: "def g(a: nonsense): pass"},
		{code: "x = ", stderr: "    x = \n        ^\nSyntaxError: invalid syntax\n"},
		{code: "async def fails():\n    raise ValueError(1)\nawait fails()", stderr: "Traceback (most recent call last):\n  File \"/workspace/cell-21.py\", line 3, in <module>\n"},
	} {
		o := c.run(step.code)
		assert.Check(t, is.Equal(o.value(), step.value), step.code)
		assert.Check(t, is.Equal(o.stdout, step.stdout), step.code)
		assert.Check(t, is.Contains(o.stderr, step.stderr), step.code)
		assert.Check(t, is.Equal(o.Status == sdk.StatusSucceeded, step.stderr == "" || o.ExitCode == 0), "%s: %+v", step.code, o)
		if step.stderr == "" {
			assert.Check(t, is.Equal(o.stderr, ""), step.code)
		}
	}
	o := c.run("", func(r *sdk.ExecuteRequest) { r.Arguments = []byte("{}") })
	assert.Equal(t, string(o.Result), "7")
	assert.Assert(t, o.PeakMemoryBytes > 1<<20)
}

func TestTheEndsOfAContext(t *testing.T) { inTheGuest(t, testContextEnds) }

func testContextEnds(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templatePython)
	other := newContext(t, p, instance, sdk.Python)
	other.run("kept = 1")
	c := newContext(t, p, instance, sdk.Python)
	c.run("x = 1")

	o := c.run("import sys; sys.exit('bye')")
	assert.Equal(t, o.Status, sdk.StatusFailed)
	assert.Equal(t, o.ExitCode, 1)
	assert.Equal(t, o.stderr, "bye\n")
	assert.Equal(t, c.run("x").value(), "1", "SystemExit does not end a context")

	var limit time.Duration
	untilItShows(t, 300*time.Millisecond, func(given time.Duration) string {
		limit = given
		o = c.run("print('so far', flush=True)\nwhile True: pass", func(r *sdk.ExecuteRequest) { r.Timeout = limit })
		return o.stdout
	})
	assert.Equal(t, o.Status, sdk.StatusTimeout)
	assert.Equal(t, o.ExitCode, 130)
	assert.Equal(t, o.stdout, "so far\n")
	assert.Check(t, is.Contains(o.stderr, "line 2, in <module>\n    while True: pass\nKeyboardInterrupt\n"))
	assert.Equal(t, o.Detail, guest.TimeoutDetail(limit)+"; the state of the context was kept")
	assert.Equal(t, c.run("x").value(), "1", "an interrupt keeps the state")
	o = c.run("import asyncio\nawait asyncio.sleep(100)", func(r *sdk.ExecuteRequest) { r.Timeout = 300 * time.Millisecond })
	assert.Equal(t, o.ExitCode, 130)
	assert.Equal(t, c.run("x").value(), "1")

	o = c.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", func(r *sdk.ExecuteRequest) { r.Timeout = 300 * time.Millisecond })
	assert.Equal(t, o.Status, sdk.StatusTimeout)
	assert.Equal(t, o.ExitCode, 137, "%+v", o)
	assert.Check(t, is.Contains(o.Detail, "so its interpreter was killed; the context starts afresh, without its state"))
	o = c.run("'x' in globals()")
	assert.Equal(t, o.value(), "False")
	assert.Equal(t, o.Detail, "")

	for code, want := range map[string]outcome{
		"import os; os._exit(3)":                                   {ExecuteResult: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 3}},
		"import os; os._exit(0)":                                   {ExecuteResult: sdk.ExecuteResult{Status: sdk.StatusSucceeded}},
		"import ctypes; ctypes.string_at(0)":                       {ExecuteResult: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 139}},
		"import os; os.kill(os.getpid(), 9)":                       {ExecuteResult: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 137}},
		"import os; os.write(4, b'nonsense\\n')\nwhile True: pass": {ExecuteResult: sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: 137}},
	} {
		c.run("x = 1")
		o = c.run(code)
		assert.Check(t, is.Equal(o.Status, want.Status), code)
		assert.Check(t, is.Equal(o.ExitCode, want.ExitCode), code)
		assert.Check(t, is.Contains(o.Detail, "; the context starts afresh, without its state"), code)
		assert.Check(t, is.Equal(c.run("'x' in globals()").value(), "False"), code)
	}
	assert.Equal(t, other.run("kept").value(), "1", "nothing of this concerned another context")
}

func TestAJavaScriptContextKeepsItsState(t *testing.T) {
	inTheGuest(t, testJavaScriptContext)
}

func testJavaScriptContext(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templateNode)
	c := newContext(t, p, instance, sdk.JavaScript)
	for _, step := range []struct{ code, value, stdout, stderr string }{
		{code: "const x = 40"},
		{code: "x + 2", value: "42"},
		{code: "const x = 41; x", value: "41"},
		{code: "x;", value: ""},
		{code: "let y = await Promise.resolve(x); y", value: "41"},
		{code: "class A { f() { return y } }; new A().f()", value: "41"},
		{code: "function main({n}) { return n + x }"},
		{code: "console.log('a'); console.error('b')", stdout: "a\n", stderr: "b\n"},
		{code: "console.log('x'.repeat(200_000))", stdout: strings.Repeat("x", 200_000) + "\n"},
		{code: "({a: 1, b: [1, 2]})", value: "{ a: 1, b: [ 1, 2 ] }"},
		{code: "'äöü'", value: "'äöü'"},
		{code: "10n", value: "10n"},
		{code: "-0", value: "-0"},
		{code: "null", value: "null"},
		{code: "Symbol('s')", value: "Symbol(s)"},
		{code: "import path, { join as j } from 'node:path'\nj('a', path.basename('/x/b'))", value: "'a/b'"},
		{code: "const os = await import('node:os'); typeof os.cpus", value: "'function'"},
		{code: "require('fs').writeFileSync('m.mjs', 'export const five = 5')"},
		{code: "import { five } from './m.mjs'\nfive", value: "5"},
		{code: "export const z = 3"},
		{code: "z", value: "3"},
		{code: "for await (const v of [1, 2]) console.log(v)", stdout: "1\n2\n"},
		{code: "process.cwd()", value: "'/workspace'"},
		{code: "throw new Error('boom')", stderr: "/workspace/cell-24.js:1\nthrow new Error('boom')\n      ^\n\nError: boom\n    at /workspace/cell-24.js:1:7\n"},
		{code: "function f() { throw new TypeError('t') }"},
		{code: "f()", stderr: "/workspace/cell-25.js:1\nfunction f() { throw new TypeError('t') }\n                     ^\n\nTypeError: t\n    at f (/workspace/cell-25.js:1:22)\n    at /workspace/cell-26.js:1:1\n"},
		{code: "let q = ;", stderr: "/workspace/cell-27.js:1\nlet q = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n"},
		{code: "throw 3", stderr: "Uncaught 3\n"},
		{code: "await Promise.reject(new Error('async'))", stderr: "Error: async"},
		{code: "nope", stderr: "ReferenceError: nope is not defined"},
		{code: "setTimeout(() => { throw new Error('later') }, 1); await new Promise((r) => setTimeout(r, 50)); 'lives'", value: "'lives'", stderr: "Error: later"},
		{code: "globalThis.__sandbox_enter", value: ""},
	} {
		o := c.run(step.code)
		assert.Check(t, is.Equal(o.value(), step.value), step.code)
		assert.Check(t, is.Equal(o.stdout, step.stdout), step.code)
		assert.Check(t, is.Contains(o.stderr, step.stderr), step.code)
		assert.Check(t, !strings.Contains(o.stderr, "/run/sandbox") && !strings.Contains(o.stderr, "node:"), o.stderr)
		if step.stderr == "" {
			assert.Check(t, is.Equal(o.stderr, ""), step.code)
			assert.Check(t, is.Equal(o.ExitCode, 0), step.code)
		}
	}
	o := c.run("0", func(r *sdk.ExecuteRequest) { r.Arguments = []byte(`{"n": 1}`) })
	assert.Equal(t, string(o.Result), "42", "%+v", o)

	short := func(r *sdk.ExecuteRequest) { r.Timeout = 300 * time.Millisecond }
	for _, code := range []string{"while (true);", "await new Promise(() => {})", "(() => { for (;;) {} })()"} {
		o = c.run(code, short)
		assert.Check(t, is.Equal(o.Status, sdk.StatusTimeout), code)
		assert.Check(t, is.Equal(o.ExitCode, 130), "%s: %+v", code, o)
		assert.Check(t, is.Equal(c.run("x").value(), "41"), code)
	}
	o = c.run("await null; while (true);", short)
	assert.Equal(t, o.ExitCode, 137)
	assert.Equal(t, c.run("typeof x").value(), "'undefined'")
	o = c.run("console.log('bye'); process.exit(3)")
	assert.Equal(t, o.stdout, "bye\n")
	assert.Equal(t, o.ExitCode, 3)
	assert.Equal(t, o.Detail, "the interpreter of the context ended with exit code 3; the context starts afresh, without its state")
}

func TestAnInterruptKeepsTheStateOfAContext(t *testing.T) {
	inTheGuest(t, testContextInterrupt)
}

func testContextInterrupt(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	instance := create(t, p, templatePython)
	c := newContext(t, p, instance, sdk.Python)
	c.run("x = 1")
	interrupt := func(id string) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if err := p.Interrupt(t.Context(), instance, id); err != nil {
				return poll.Continue("%v", err)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	began := listener{wrote: make(chan struct{})}
	first := make(chan sdk.ExecuteResult, 1)
	go func() {
		r, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: instance, ContextID: c.ID, ExecutionID: "first", Timeout: time.Minute, OutputLimit: 100, Code: "print('began')\nwhile True: pass"}, &began)
		assert.Check(t, err)
		first <- r
	}()
	<-began.wrote
	list, err := p.ListContexts(t.Context(), instance)
	assert.NilError(t, err)
	assert.Assert(t, list[0].Busy)

	second := make(chan sdk.ExecuteResult, 1)
	go func() {
		r, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: instance, ContextID: c.ID, ExecutionID: "second", Timeout: time.Minute, OutputLimit: 100, Code: "x = 2"}, &recorder{})
		assert.Check(t, err)
		second <- r
	}()
	interrupt("second")
	r := <-second
	assert.Equal(t, r.Status, sdk.StatusCancelled, "it waited for its turn")
	assert.Equal(t, r.Detail, "the execution was interrupted; it had not begun")
	interrupt("first")
	r = <-first
	assert.Equal(t, r.Status, sdk.StatusCancelled)
	assert.Equal(t, r.ExitCode, 130)
	assert.Equal(t, r.Detail, "the execution was interrupted; the state of the context was kept")
	assert.Equal(t, c.run("x").value(), "1")

	// A caller that goes away.
	ctx, cancel := context.WithCancel(t.Context())
	began = listener{wrote: make(chan struct{})}
	gone := make(chan error, 1)
	go func() {
		_, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: instance, ContextID: c.ID, Timeout: time.Minute, OutputLimit: 100, Code: "print('began')\nwhile True: pass"}, &began)
		gone <- err
	}()
	<-began.wrote
	cancel()
	assert.ErrorIs(t, <-gone, context.Canceled)
	assert.Equal(t, c.run("x").value(), "1")
}

// An interrupt in the middle of a write must not end all writing.
func TestWhatIsInterruptedWhilePrintingCanPrintAgain(t *testing.T) {
	p := newProvider(t, nil)
	instance := create(t, p, templateNode)
	c := newContext(t, p, instance, sdk.JavaScript)
	for _, stream := range []string{"log", "error", "log", "error"} {
		ctx, cancel := context.WithCancel(t.Context())
		began := listener{wrote: make(chan struct{})}
		gone := make(chan error, 1)
		go func() {
			_, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: instance, ContextID: c.ID, Timeout: time.Minute, OutputLimit: 1 << 30, Code: "console.log('began'); for (;;) console." + stream + "('more')"}, &began)
			gone <- err
		}()
		<-began.wrote
		cancel()
		assert.ErrorIs(t, <-gone, context.Canceled)
		o := c.run("console.log('out'); console.error('err')")
		assert.Equal(t, o.stdout, "out\n", "%+v", o)
		assert.Equal(t, o.stderr, "err\n", "%+v", o)
	}
}

// listener says when something was printed.
type listener struct {
	recorder
	wrote chan struct{}
	once  sync.Once
}

func (l *listener) Stdout(p []byte) error {
	l.once.Do(func() { close(l.wrote) })
	return l.recorder.Stdout(p)
}

func TestContextsAreMadeListedRestartedAndDeleted(t *testing.T) {
	inTheGuest(t, testContextLife)
}

func testContextLife(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Env: map[string]string{"A": "instance", "B": "instance"}})
	assert.NilError(t, err)
	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: i.ID, Language: sdk.Bash, Code: "mkdir sub; echo six=6 > sub/six.py"})
	assert.NilError(t, err)
	made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: i.ID, Language: sdk.Python, Cwd: "sub", Env: map[string]string{"B": "context"}})
	assert.NilError(t, err)
	assert.Equal(t, made.Cwd, "/workspace/sub")
	c := inContext{t, p, i.ID, made}
	environment := "import os; [os.environ.get(n) for n in 'ABC']"
	assert.Equal(t, c.run(environment).value(), "['instance', 'context', None]")
	given := func(r *sdk.ExecuteRequest) { r.Env = map[string]string{"B": "execution", "C": "execution"} }
	assert.Equal(t, c.run(environment, given).value(), "['instance', 'execution', 'execution']")
	assert.Equal(t, c.run("os.environ['C'] = 'code'", given).value(), "")
	assert.Equal(t, c.run(environment).value(), "['instance', 'context', 'code']", "what the code sets stays")
	assert.Equal(t, c.run("from six import six; six, os.getcwd()").value(), "(6, '/workspace/sub')")

	assert.NilError(t, p.RestartContext(t.Context(), i.ID, c.ID))
	assert.Equal(t, c.run("import os; os.getcwd(), os.environ['B'], 'six' in globals()").value(), "('/workspace/sub', 'context', False)")
	list, err := p.ListContexts(t.Context(), i.ID)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list, 1))
	assert.Equal(t, list[0].ID, made.ID)
	assert.Assert(t, list[0].CreatedAt.Equal(made.CreatedAt))
	assert.Assert(t, !list[0].Busy)

	for _, id := range []string{made.ID, made.ID, "never-made"} {
		assert.NilError(t, p.DeleteContext(t.Context(), i.ID, id))
	}
	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: i.ID, ContextID: made.ID, Code: "1"})
	assert.Error(t, err, "SB013: context_id: no such context; it was never made or has been deleted")
	assert.Error(t, p.RestartContext(t.Context(), i.ID, made.ID), "SB013: context_id: no such context; it was never made or has been deleted")
	assert.Error(t, p.RestartContext(t.Context(), "no-such", made.ID), "SB013: no such instance")

	for want, req := range map[string]sdk.CreateContextRequest{
		"SB010: language: contexts are for python, javascript and bash":              {Language: sdk.R},
		`SB010: cwd: "/nowhere/a" cannot be entered: No such file or directory`:      {Language: sdk.Bash, Cwd: "/nowhere/a"},
		`SB010: cwd: "/nowhere" cannot be entered: No such file or directory`:        {Language: sdk.Python, Cwd: "/nowhere"},
		`SB010: cwd: "/workspace/none" cannot be entered: No such file or directory`: {Language: sdk.JavaScript, Cwd: "none"},
		`SB010: cwd: "/root" cannot be entered: Permission denied`:                   {Language: sdk.Python, Cwd: "/root"},
	} {
		req.InstanceID = i.ID
		_, err := p.CreateContext(t.Context(), req)
		if req.Cwd == "/root" && err != nil && strings.Contains(err.Error(), "No such file") {
			continue // not every root file system has it
		}
		assert.Check(t, is.Error(err, want))
	}
	list, err = p.ListContexts(t.Context(), i.ID)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list, 0))
	c = newContext(t, p, i.ID, sdk.Python)
	_, err = execute(t, p, sdk.ExecuteRequest{InstanceID: i.ID, ContextID: c.ID, Language: sdk.JavaScript, Code: "1"})
	assert.Error(t, err, "SB010: language: the context is for python")
	for range 15 {
		newContext(t, p, i.ID, sdk.Python)
	}
	_, err = p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: i.ID, Language: sdk.Python})
	assert.Error(t, err, "SB008: this instance has 16 contexts, which is the most; delete one")
}
