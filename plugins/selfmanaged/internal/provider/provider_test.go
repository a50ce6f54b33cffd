package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// recorder keeps what an execution writes.
type recorder struct {
	mu        sync.Mutex
	out, err  bytes.Buffer
	artifacts []sdk.Artifact
}

func (r *recorder) Stdout(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Write(p)
	return nil
}

func (r *recorder) Artifact(a sdk.Artifact) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.artifacts = append(r.artifacts, a)
	return nil
}

func (r *recorder) Stderr(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err.Write(p)
	return nil
}

// testProvider is a provider with what a test needs to know of it.
type testProvider struct {
	*Provider
	dir, brokerID string
}

// newProvider returns a provider that is configured and closed with the test,
// which fails if anything is left of it.
func newProvider(t *testing.T, given map[string]any) testProvider {
	t.Helper()
	// Below it, for one that a test removes and the provider makes anew would be nobody's
	// to other tests.
	dir, brokerID := filepath.Join(scratch.Dir(t), "p"), "test"+newID()
	assert.NilError(t, os.Mkdir(dir, 0o700))
	p := configured(t, dir, brokerID, given)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 4*time.Minute)
		defer cancel()
		assert.Check(t, p.Close(ctx))
		nothingLeft(t, dir, brokerID)
	})
	return testProvider{p, dir, brokerID}
}

func configured(t *testing.T, dir, brokerID string, given map[string]any) *Provider {
	t.Helper()
	all := map[string]any{
		"pool_size": 0, "runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest"),
		"memory_mb": 256, "workspace_mb": 64,
	}
	maps.Copy(all, given)
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, problems := p.Describe().Schema.Resolve(all)
	assert.Assert(t, is.Len(problems, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	assert.NilError(t, p.Configure(ctx, sdk.ConfigureRequest{Label: "self_managed", BrokerID: brokerID, StateDir: dir, KeepDir: dir + "-keep", Settings: settings}))
	return p
}

func nothingLeft(t *testing.T, dir, brokerID string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	assert.Check(t, err)
	assert.Check(t, is.Len(left, 0), "files are left: %v", left)
	groups, err := filepath.Glob("/sys/fs/cgroup/*/sandbox-broker/" + brokerID + "*")
	assert.Check(t, err)
	assert.Check(t, is.Len(groups, 0), "cgroups are left: %v", groups)
	assert.Check(t, is.Len(processesNaming(dir), 0), "processes are left")
}

// processesNaming finds the processes whose command line has a text.
func processesNaming(text string) map[int]string {
	found := map[int]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && bytes.Contains(line, []byte(text)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
	return found
}

func create(t *testing.T, p testProvider, template string) string {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: template})
	assert.NilError(t, err)
	return i.ID
}

type outcome struct {
	sdk.ExecuteResult
	stdout, stderr string
	artifacts      []sdk.Artifact
}

func execute(t *testing.T, p testProvider, req sdk.ExecuteRequest) (outcome, error) {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	if req.OutputLimit == 0 {
		req.OutputLimit = 1 << 20
	}
	var r recorder
	result, err := p.Execute(t.Context(), req, &r)
	r.mu.Lock()
	defer r.mu.Unlock()
	return outcome{result, r.out.String(), r.err.String(), r.artifacts}, err
}

// untilItShows runs something that ends at a time limit, and gives it twice as long
// if that was too short to print anything: how far programs come in a while is the
// machine's matter.
func untilItShows(t *testing.T, limit time.Duration, run func(limit time.Duration) (stdout string)) {
	t.Helper()
	for ; run(limit) == ""; limit *= 2 {
		assert.Assert(t, limit < time.Minute, "nothing was printed in %s", limit)
	}
}

// The contract of an execution, as the SDK's package documentation states it.
func TestExecution(t *testing.T) { onEachRuntime(t, testExecution) }

func testExecution(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	ids := map[sdk.Language]string{
		sdk.Python: create(t, p, templatePython), sdk.JavaScript: create(t, p, templateNode), sdk.Bash: create(t, p, templateBash),
	}
	cases := []struct {
		name      string
		language  sdk.Language
		code      string
		arguments string
		env       map[string]string
		status    sdk.Status
		exit      int
		result    string
		stdout    string
		stderr    string // a part of it
	}{
		{
			name: "python main gets its arguments", language: sdk.Python, arguments: `{"name": "World", "count": 3}`,
			code:   `def main(name: str, count: int) -> dict: return {"message": f"Hello {name}!" * count}`,
			result: `{"message": "Hello World!Hello World!Hello World!"}`,
		},
		{
			name: "javascript main gets its arguments", language: sdk.JavaScript, arguments: `{"name": "World", "count": 3}`,
			code:   "function main(args) { return {message: `Hello ${args.name}!`.repeat(args.count)} }",
			result: `{"message":"Hello World!Hello World!Hello World!"}`,
		},
		{name: "a python script prints", language: sdk.Python, code: "print('hi', 1 + 1)", stdout: "hi 2\n"},
		{name: "a javascript script prints", language: sdk.JavaScript, code: "console.log('hi', 1 + 1)", stdout: "hi 2\n"},
		{name: "a bash script prints", language: sdk.Bash, code: "echo hi $((1 + 1))", stdout: "hi 2\n"},
		{name: "python exit code", language: sdk.Python, code: "print('x'); import sys; sys.exit(3)", status: sdk.StatusFailed, exit: 3, stdout: "x\n"},
		{name: "javascript exit code", language: sdk.JavaScript, code: "console.log('x'); process.exit(3)", status: sdk.StatusFailed, exit: 3, stdout: "x\n"},
		{name: "bash exit code", language: sdk.Bash, code: "echo x; exit 3", status: sdk.StatusFailed, exit: 3, stdout: "x\n"},
		{name: "exit 137 is not out of memory", language: sdk.Python, code: "raise SystemExit(137)", status: sdk.StatusFailed, exit: 137},
		{name: "a signal of its own", language: sdk.Python, code: "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", status: sdk.StatusFailed, exit: 143},
		{
			name: "a python exception has a traceback with its source", language: sdk.Python, code: "def f():\n    raise ValueError('boom')\nf()", status: sdk.StatusFailed, exit: 1,
			stderr: "Traceback (most recent call last):\n  File \"/workspace/main.py\", line 3, in <module>\n    f()\n  File \"/workspace/main.py\", line 2, in f\n    raise ValueError('boom')\nValueError: boom\n",
		},
		{name: "a python syntax error", language: sdk.Python, code: "print(", status: sdk.StatusFailed, exit: 1, stderr: "SyntaxError"},
		{
			name: "a javascript exception has a stack without the runner", language: sdk.JavaScript, code: "function f() { throw new Error('boom') }\nf()", status: sdk.StatusFailed, exit: 1,
			stderr: "Error: boom\n    at f (/workspace/main.js:1:22)\n    at Object.<anonymous> (/workspace/main.js:2:1)\n",
		},
		{name: "a javascript syntax error", language: sdk.JavaScript, code: "let x = ;", status: sdk.StatusFailed, exit: 1, stderr: "SyntaxError"},
		{name: "main is called without arguments if nothing else does", language: sdk.Python, code: "def main():\n    return 7", result: "7"},
		{name: "javascript main is called without arguments if nothing else does", language: sdk.JavaScript, code: "const main = () => 7", result: "7"},
		{name: "main is not called twice", language: sdk.Python, code: "def main():\n    print('once')\nmain()", stdout: "once\n"},
		{name: "javascript main is not called twice", language: sdk.JavaScript, code: "function main() { console.log('once') }\nmain()", stdout: "once\n"},
		{name: "a guard is a plain script", language: sdk.Python, code: "def main():\n    print('once')\nif __name__ == '__main__':\n    main()", stdout: "once\n"},
		{name: "a guard does not call main when arguments do", language: sdk.Python, arguments: `{"x": 1}`, code: "def main(x):\n    return x\nif __name__ == '__main__':\n    main(5)", result: "1"},
		{name: "an async python main is awaited", language: sdk.Python, arguments: `{}`, code: "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return [1, None, True]", result: "[1, null, true]"},
		{name: "a javascript promise is awaited", language: sdk.JavaScript, arguments: `{}`, code: "async function main() { await null; return [1, null, true] }", result: "[1,null,true]"},
		{name: "javascript modules work", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "import path from 'node:path';\nconst two = await Promise.resolve(2);\nexport function main({a}) { return path.join(String(a * two), 'x') }", result: `"4/x"`},
		{name: "javascript exports work", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "module.exports = ({a}) => a * 2", result: "4"},
		{name: "an exported main that no other name has", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "module.exports = { main: async ({a}) => a * 2 }", result: "4"},
		{name: "an exported default with a main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "exports.default = { main: ({a}) => a * 2 }", result: "4"},
		{name: "a main at the top level comes before an exported one", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "const main = ({a}) => a * 2\nmodule.exports = { main: () => 5 }", result: "4"},
		{name: "a module's default has a main", language: sdk.JavaScript, arguments: `{"a": 2}`, code: "export default { main: async ({a}) => a * 2 }", result: "4"},
		{name: "exports without a main", language: sdk.JavaScript, arguments: `{}`, code: "module.exports = { double: (a) => a * 2 }", status: sdk.StatusFailed, exit: 1, stderr: "must define a function main"},
		{name: "javascript output before an exit is whole", language: sdk.JavaScript, code: "console.log('x'.repeat(900000)); process.exit()", stdout: strings.Repeat("x", 900000) + "\n"},
		{name: "javascript output before a result is whole", language: sdk.JavaScript, arguments: `{}`, code: "function main() { console.log('x'.repeat(900000)); return 1 }", result: "1", stdout: strings.Repeat("x", 900000) + "\n"},
		{name: "a promise that nothing settles is a failure", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return new Promise(() => {}) }", status: sdk.StatusFailed, exit: 13, stderr: "awaits something that never comes"},
		{name: "a top-level await that nothing settles is a failure", language: sdk.JavaScript, code: "await new Promise(() => {})", status: sdk.StatusFailed, exit: 13, stderr: "awaits something that never comes"},
		{name: "an exit while a promise is open is an exit", language: sdk.JavaScript, arguments: `{}`, code: "async function main() { await null; process.exit() }"},
		{name: "a javascript error shows its cause", language: sdk.JavaScript, arguments: `{}`, code: "function main() { throw new Error('outer', {cause: new Error('inner')}) }", status: sdk.StatusFailed, exit: 1, stderr: "Error: outer\n    at main (/workspace/main.js:1:25) {\n  [cause]: Error: inner\n      at main"},
		{name: "a javascript error shows although console.error is gone", language: sdk.JavaScript, arguments: `{}`, code: "function main() { console.error = null; throw new Error('boom') }", status: sdk.StatusFailed, exit: 1, stderr: "Error: boom\n    at main"},
		{name: "an unfinished script shows nothing that is not its own", language: sdk.JavaScript, code: "function main() {\n", status: sdk.StatusFailed, exit: 1, stderr: "/workspace/main.js:2\n\n\n\nSyntaxError: Unexpected end of input\n"},
		{name: "a module shows where it does not compile", language: sdk.JavaScript, code: "import fs from 'fs';\nlet x = ;", status: sdk.StatusFailed, exit: 1, stderr: "let x = ;\n        ^\n"},
		{name: "a module knows that it is the main one", language: sdk.JavaScript, code: "function main() { console.log('called') }\nif (import.meta.url === `file://${process.argv[1]}`) main()", stdout: "called\n"},
		{name: "a module leaves no file", language: sdk.JavaScript, code: "console.log(require('fs').readdirSync('/workspace'))", stdout: "[ 'artifacts' ]\n"},
		{name: "an exit event of the code's own ends nothing", language: sdk.JavaScript, code: "process.emit('exit', 3); console.log('still here')", stdout: "still here\n"},
		{name: "what sys.exit says is no output, even without sys.stderr", language: sdk.Python, code: "import sys\nsys.stderr = None\nsys.exit('bye')", status: sdk.StatusFailed, exit: 1, stderr: "bye\n"},
		{name: "process.exit may be replaced", language: sdk.JavaScript, arguments: `{}`, code: "process.exit = () => console.log('mine')\nfunction main() { setInterval(() => {}, 1000); return 1 }", result: "1"},
		{name: "a python error in an async main shows the code's frames alone", language: sdk.Python, arguments: `{}`, code: "async def main():\n    raise ValueError('boom')", status: sdk.StatusFailed, exit: 1, stderr: "Traceback (most recent call last):\n  File \"/workspace/main.py\", line 2, in main\n    raise ValueError('boom')\nValueError: boom\n"},
		{name: "a python syntax error of the compiler shows its line", language: sdk.Python, code: "x = 1\nawait x", status: sdk.StatusFailed, exit: 1, stderr: "line 2\n    await x\n"},
		{name: "a traceback is no output, even without sys.stderr", language: sdk.Python, code: "import sys\nsys.stderr = None\nraise ValueError('boom')", status: sdk.StatusFailed, exit: 1, stderr: "ValueError: boom\n"},
		{name: "arguments that nest deeper than python can", language: sdk.Python, arguments: `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}", code: "def main(a): pass", status: sdk.StatusFailed, exit: 1, stderr: "RecursionError"},
		{name: "python classes can be pickled", language: sdk.Python, arguments: `{}`, code: "import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\ndef main(): return pickle.loads(pickle.dumps(P(3))).x", result: "3"},
		{name: "python processes share work", language: sdk.Python, code: "import multiprocessing\ndef square(x): return x * x\ndef main():\n    with multiprocessing.get_context('fork').Pool(2) as p: return p.map(square, range(4))", result: "[0, 1, 4, 9]"},
		{name: "None is null", language: sdk.Python, arguments: `{}`, code: "def main(): pass", result: "null"},
		{name: "undefined is null", language: sdk.JavaScript, arguments: `{}`, code: "function main() {}", result: "null"},
		{name: "a timer left behind does not hold back the result", language: sdk.JavaScript, arguments: `{}`, code: "function main() { setInterval(() => {}, 1000); return 1 }", result: "1"},
		{name: "what main prints is not its result", language: sdk.Python, arguments: `{}`, code: "def main():\n    print('{\"forged\": true}')\n    return 1", result: "1", stdout: "{\"forged\": true}\n"},
		{name: "python returns what is not JSON", language: sdk.Python, arguments: `{}`, code: "def main(): return {1, 2}", status: sdk.StatusFailed, exit: 1, stderr: "TypeError: main must return something that JSON can express"},
		{name: "python returns NaN", language: sdk.Python, arguments: `{}`, code: "def main(): return {'a': [float('nan'), 1.5]}", result: `{"a": [null, 1.5]}`, stderr: "they are null in the result\n"},
		{name: "javascript returns what is not JSON", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return 10n }", status: sdk.StatusFailed, exit: 1, stderr: "TypeError: main must return something that JSON can express"},
		{name: "javascript returns NaN", language: sdk.JavaScript, arguments: `{}`, code: "function main() { return {a: NaN} }", result: `{"a":null}`, stderr: "they are null in the result\n"},
		{name: "python lacks main", language: sdk.Python, arguments: `{}`, code: "x = 1", status: sdk.StatusFailed, exit: 1, stderr: "must define a function main"},
		{name: "javascript lacks main", language: sdk.JavaScript, arguments: `{}`, code: "let x = 1", status: sdk.StatusFailed, exit: 1, stderr: "must define a function main"},
		{name: "wrong arguments", language: sdk.Python, arguments: `{"b": 1}`, code: "def main(a): return a", status: sdk.StatusFailed, exit: 1, stderr: "TypeError: main() got an unexpected keyword argument 'b'"},
		{name: "sys.exit in main", language: sdk.Python, arguments: `{}`, code: "import sys\ndef main(): sys.exit(4)", status: sdk.StatusFailed, exit: 4},
		{name: "exit hooks run", language: sdk.Python, code: "import atexit\natexit.register(print, 'bye')\nprint('hi')", stdout: "hi\nbye\n"},
		{name: "javascript exit hooks run", language: sdk.JavaScript, code: "process.on('exit', (c) => console.log('bye', c))\nconsole.log('hi')\nprocess.exitCode = 4", status: sdk.StatusFailed, exit: 4, stdout: "hi\nbye 4\n"},
		{name: "an exit hook changes the exit code", language: sdk.JavaScript, code: "process.on('exit', () => { process.exitCode = 9 })", status: sdk.StatusFailed, exit: 9},
		{name: "threads are waited for", language: sdk.Python, code: "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()\nprint('early')", stdout: "early\nlate\n"},
		{name: "finalizers run", language: sdk.Python, code: "class A:\n    def __del__(self): print('gone')\na = A()\nb = A(); b.b = b", stdout: "gone\ngone\n"},
		{name: "a file that nobody closed is written", language: sdk.Python, code: "import os\nf = open('unclosed', 'w')\nf.write('kept')\nclass K: pass\nk = K(); k.k = k; k.f = open('unclosed2', 'w'); k.f.write('kept')\nimport sys; sys.hidden = open('unclosed3', 'w'); sys.hidden.write('kept')"},
		{name: "and its text is there", language: sdk.Python, code: "print(*(open(n).read() for n in ('unclosed', 'unclosed2', 'unclosed3')))", stdout: "kept kept kept\n"},
		{name: "a message as the exit code", language: sdk.Python, code: "raise SystemExit('sorry')", status: sdk.StatusFailed, exit: 1, stderr: "sorry\n"},
		{name: "an exit code above 255", language: sdk.Python, code: "raise SystemExit(256 + 7)", status: sdk.StatusFailed, exit: 7},
		{name: "a None exit code", language: sdk.Python, code: "raise SystemExit(None)"},
		{name: "pickling what main defines", language: sdk.Python, arguments: `{}`, code: "import pickle\nclass P:\n    x = 1\ndef main(): return pickle.loads(pickle.dumps(P())).x", result: "1"},
		{name: "quotes and line ends in variables of bash", language: sdk.Bash, env: map[string]string{"A": "it's\n\"x\" $y \\n `z`", "UID": "5"}, code: "echo \"$A\"\nnosuch", status: sdk.StatusFailed, exit: 127, stdout: "it's\n\"x\" $y \\n `z`\n", stderr: "line 2: nosuch"},
		{name: "unicode comes through", language: sdk.Python, arguments: `{"s": "héllo 世界 🎉"}`, code: "def main(s):\n    print(s)\n    return s", result: `"héllo 世界 🎉"`, stdout: "héllo 世界 🎉\n"},
		{name: "lone surrogates are escaped", language: sdk.Python, arguments: `{}`, code: `def main(): return "\ud800"`, result: `"\ud800"`},
		{name: "NUL bytes come through", language: sdk.Python, code: `print("a\0b")`, stdout: "a\x00b\n"},
		{name: "bytes that are no UTF-8 come through", language: sdk.Bash, code: `printf '\xff\xfe'`, stdout: "\xff\xfe"},
		{name: "no output", language: sdk.Python, code: "pass"},
		{name: "empty code", language: sdk.Python, code: ""},
		{name: "standard input is empty", language: sdk.Python, code: "import sys; print(repr(sys.stdin.read()))", stdout: "''\n"},
		{name: "environment in python", language: sdk.Python, env: map[string]string{"K": "v $x 'q'"}, code: "import os; print(os.environ['K'])", stdout: "v $x 'q'\n"},
		{name: "environment in javascript", language: sdk.JavaScript, env: map[string]string{"K": "v"}, code: "console.log(process.env.K)", stdout: "v\n"},
		{name: "environment in bash", language: sdk.Bash, env: map[string]string{"K": "v $x 'q'"}, code: `echo "$K"`, stdout: "v $x 'q'\n"},
		{name: "bash runs whatever PATH there is", language: sdk.Bash, env: map[string]string{"PATH": "/nowhere"}, code: "echo hi", stdout: "hi\n"},
		{name: "a long bash script", language: sdk.Bash, code: ": " + strings.Repeat("x", 1<<20) + "\necho hi", stdout: "hi\n"},
		{name: "the sandbox's /proc is not merely covered", language: sdk.Bash, code: "grep -c ' /proc ' /proc/mounts", stdout: "1\n"},
		{name: "a child that holds stdout open does not hold back the answer", language: sdk.Bash, code: "(trap '' HUP TERM; sleep 1000) & echo done", stdout: "done\n"},
		{name: "a daemon does not hold back the answer", language: sdk.Python, code: "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint('done')", stdout: "done\n"},
		{name: "code runs as nobody in particular", language: sdk.Bash, code: "id -u; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status", stdout: "1000\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"},
		{name: "the guest cannot be seen", language: sdk.Bash, code: "ls /proc/1/fd; kill -9 1; cat /proc/1/environ", status: sdk.StatusFailed, exit: 1, stderr: "Permission denied"},
		{name: "nothing outside of the execution can be signalled", language: sdk.Python, code: "import os\nfor pid in [-1, *range(2000)]:\n    try:\n        if pid not in (0, os.getpid()): os.kill(pid, 0); print(pid)\n    except OSError: pass"},
		{name: "the descriptors of the guest are closed", language: sdk.Bash, code: "ls /proc/$$/fd | tr '\\n' ' '", stdout: "0 1 2 "},
		{name: "it is gVisor", language: sdk.Bash, code: "uname -r | grep -o gvisor", stdout: "gvisor\n"},
		{name: "there is no network but loopback", language: sdk.Python, code: "import socket\nprint([n for _, n in socket.if_nameindex()])\ns = socket.socket(); s.settimeout(2)\nprint(s.connect_ex(('169.254.169.254', 80)) != 0)", stdout: "['lo']\nTrue\n"},
		{name: "the root file system is read-only", language: sdk.Bash, code: "touch /usr/x /etc/x /x /run/x /opt/x", status: sdk.StatusFailed, exit: 1, stderr: "touch: cannot touch '/usr/x'"},
		{name: "git trusts the workspace, which is root's", language: sdk.Bash, code: "cat /etc/gitconfig; stat -c %U /workspace", stdout: "[safe]\n\tdirectory = *\nroot\n"},
		{name: "users of the host are not known", language: sdk.Bash, code: "wc -l < /etc/passwd; test -e /etc/shadow || echo none; test -e /root || echo none", stdout: "3\nnone\nnone\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			req := sdk.ExecuteRequest{InstanceID: ids[c.language], Language: c.language, Code: c.code, Env: c.env}
			if c.arguments != "" {
				req.Arguments = json.RawMessage(c.arguments)
			}
			if c.status == "" {
				c.status = sdk.StatusSucceeded
			}
			got, err := execute(t, p, req)
			assert.NilError(t, err)
			assert.Check(t, is.Equal(got.Status, c.status), "stderr: %s", got.stderr)
			assert.Check(t, is.Equal(got.ExitCode, c.exit))
			assert.Check(t, is.Equal(string(got.Result), c.result))
			assert.Check(t, is.Equal(got.stdout, c.stdout))
			if c.stderr == "" {
				assert.Check(t, is.Equal(got.stderr, ""))
			}
			assert.Check(t, is.Contains(got.stderr, c.stderr))
			assert.Check(t, !got.Truncated)
		})
	}
}

func TestAnInstanceKeepsFilesAndForgetsVariables(t *testing.T) {
	onEachRuntime(t, testAnInstanceKeepsFilesAndForgetsVariables)
}

func testAnInstanceKeepsFilesAndForgetsVariables(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "open('f', 'w').write('kept'); x = 1"})
	assert.NilError(t, err)
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(open('/workspace/f').read(), 'x' in globals())"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "kept False\n")
	got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Bash, Code: "ls -A /workspace /tmp /dev/shm"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "/dev/shm:\n\n/tmp:\n\n/workspace:\nartifacts\n", "another instance sees nothing of it")
}

func TestWhatCannotBeGivenToCodeIsRefused(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "def main(a): pass", Arguments: json.RawMessage(`{"a":` + deep + `}`)})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	assert.ErrorContains(t, err, "arguments")
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo ${#A} ${#B}", Env: map[string]string{"A": strings.Repeat("x", 90<<10), "B": strings.Repeat("x", 90<<10)}})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "92160 92160\n")
}

func TestBashTakesNoArguments(t *testing.T) {
	p := newProvider(t, nil)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templateBash), Language: sdk.Bash, Code: "true", Arguments: json.RawMessage(`{}`)})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}

func TestUnknownInstancesAreNotFound(t *testing.T) {
	p := newProvider(t, nil)
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: newID(), Language: sdk.Python, Code: ""})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	assert.NilError(t, p.Destroy(t.Context(), newID()), "destroy is idempotent")
}

func TestCancellingStopsTheCode(t *testing.T) { inTheGuest(t, testCancellingStopsTheCode) }

func testCancellingStopsTheCode(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	ctx, cancel := context.WithCancel(t.Context())
	var r recorder
	done := make(chan error, 1)
	go func() {
		_, err := p.Execute(ctx, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print('up')\nwhile True: open('beat', 'a').write('x')", Timeout: time.Minute, OutputLimit: 1 << 10}, &r)
		done <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.out.Len() > 0 {
			return poll.Success()
		}
		return poll.Continue("not started")
	}, poll.WithTimeout(2*time.Minute))
	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "before=$(stat -c %s beat); sleep 0.2; test $before = $(stat -c %s beat) && echo still"})
		if err != nil {
			return poll.Error(err)
		}
		return poll.Compare(is.Equal(got.stdout, "still\n"))
	}, poll.WithTimeout(2*time.Minute))
}

func TestOneKeyMakesOneInstance(t *testing.T) { onEachRuntime(t, testOneKeyMakesOneInstance) }

func testOneKeyMakesOneInstance(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	var wg sync.WaitGroup
	ids := make([]string, 4)
	for i := range ids {
		wg.Go(func() {
			instance, err := p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, IdempotencyKey: "k"})
			if assert.Check(t, err) {
				ids[i] = instance.ID
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, id, ids[0])
	}
	list, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list, 1))
}

func TestAnInstanceEndsWithItsTTL(t *testing.T) { onEachRuntime(t, testAnInstanceEndsWithItsTTL) }

func testAnInstanceEndsWithItsTTL(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, TTL: 10 * time.Millisecond})
	assert.NilError(t, err)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		list, err := p.List(t.Context())
		if err != nil {
			return poll.Error(err)
		}
		return poll.Compare(is.Len(list, 0))
	}, poll.WithTimeout(2*time.Minute))
}

func TestMoreThanThePoolWait(t *testing.T) { onEachRuntime(t, testMoreThanThePoolWait) }

func testMoreThanThePoolWait(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, map[string]any{"pool_size": 1, "max_sandboxes": 3})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			instance, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython})
			if !assert.Check(t, err) {
				return
			}
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: instance.ID, Language: sdk.Python, Code: fmt.Sprintf("print(%d)", i)})
			assert.Check(t, err)
			assert.Check(t, is.Equal(strings.TrimSpace(got.stdout), fmt.Sprint(i)))
			assert.Check(t, p.Destroy(t.Context(), instance.ID))
		})
	}
	wg.Wait()
	assert.Check(t, p.pool.Stats().InUse == 0)
}

func TestPatienceEnds(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 1, "max_sandboxes": 1, "queue_timeout": 0.01})
	var kept string
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython})
		kept = i.ID
		return poll.Compare(is.Nil(err))
	}, poll.WithTimeout(2*time.Minute))
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeCreateFailed})
	assert.ErrorContains(t, err, "0 requests were waiting")
	hurry := time.Duration(0)
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, MaxQueue: &hurry})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
	assert.NilError(t, p.Destroy(t.Context(), kept))
}

// What is missing on a host is tried in host_test.go.
func TestConfigureRefusesSettingsThatDoNotFitTogether(t *testing.T) {
	cases := map[string]struct {
		given map[string]any
		field string
		want  string
	}{
		"a pool above the bound":             {map[string]any{"pool_size": 5, "max_sandboxes": 2}, "pool_size", "must not be above max_sandboxes (2)"},
		"an age at which nothing would last": {map[string]any{"max_age": 59}, "max_age", "must be at least 1m0s, or 0 for no end"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := New(hclog.NewNullLogger()).(*Provider)
			settings, problems := p.Describe().Schema.Resolve(c.given)
			assert.Assert(t, is.Len(problems, 0))
			err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "b", StateDir: t.TempDir(), Settings: settings})
			refused, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Check(t, is.Equal(refused.Code, sdk.CodeInvalidConfig))
			assert.Check(t, is.Equal(refused.Field, c.field))
			assert.Check(t, is.Equal(refused.Message, c.want))
		})
	}
}

// What a pool counts is tried in its own package.
func TestHealthHasTheMetricsOfThePool(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 1})
	assert.NilError(t, p.Destroy(t.Context(), create(t, p, templateBash)))
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, wire.CheckMetrics(health.Metrics))
	values := map[string]float64{}
	for _, m := range health.Metrics {
		values[m.Name+m.Labels["template"]+m.Labels["result"]] += m.Value
	}
	assert.Check(t, is.Equal(values["pool_requests_totalhit"]+values["pool_requests_totalwait"], 1.0))
	assert.Check(t, values["pool_made_total"] >= 1, "%v", values)
	assert.Check(t, values["pool_make_seconds_total"] >= values["pool_make_seconds_max"])
	assert.Check(t, values["pool_make_seconds_max"] > 0)
	assert.Check(t, is.Equal(values["pool_make_failures_total"], 0.0))
	for _, template := range []string{templatePython, templateNode, templateBash} {
		_, ok := values["pool_ready_sandboxes"+template]
		assert.Check(t, ok, template)
	}
}

func TestASandboxAnswersItsCheckUntilItHangs(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 0})
	s, err := p.sandboxes.make(t.Context(), templatePython)
	assert.NilError(t, err)
	defer func() { assert.Check(t, s.Destroy(t.Context())) }()
	for range 3 {
		assert.NilError(t, s.guest.Check(t.Context()))
	}
	for pid := range processesNaming(s.ID) {
		assert.NilError(t, unix.Kill(pid, unix.SIGSTOP))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.ErrorContains(t, s.guest.Check(ctx), "check the guest")
}
