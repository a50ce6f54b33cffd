package ragflow_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// endedBy is a check that a run was ended by a limit, or by what the program was told of it.
func endedBy(limit string, told ...string) func(t *testing.T, o outcome) {
	return func(t *testing.T, o outcome) {
		if o.Status == "resource_limit_exceeded" {
			assert.Check(t, is.Equal(o.Limit, limit))
			return
		}
		assert.Check(t, is.Equal(o.Status, "program_error"))
		for _, text := range told {
			if strings.Contains(o.Stderr, text) {
				return
			}
		}
		t.Errorf("it was ended by nothing that is known: %+v", o)
	}
}

// returns is a check that a run goes well and finds what a sandbox has.
func returns(want any) func(t *testing.T, o outcome) {
	return func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "success"), o.Stderr)
		assert.Check(t, is.DeepEqual(o.Result, want))
	}
}

// attacks are of the seventeen kinds that RAGFlow's own suite for its executor manager
// sends. There a list of forbidden words refuses most of them; here they run, and reach
// nothing.
var attacks = []struct {
	name, language, code string
	check                func(t *testing.T, o outcome)
}{
	{"an endless loop", "python", "def main():\n    while True:\n        pass", endedBy("time")},
	{"an endless loop of JavaScript", "javascript", "function main() { for (;;); }", endedBy("time")},
	{"a sleep beyond the limit", "python", "import time\ndef main():\n    time.sleep(3600)", endedBy("time")},
	{"all of the memory", "python", "def main():\n    kept = []\n    while True:\n        kept.append(bytearray(1 << 24))", endedBy("memory", "MemoryError")},
	{"all of the memory, by JavaScript", "javascript", "function main() { const kept = []; for (;;) kept.push(Buffer.alloc(1 << 24, 1)); }", endedBy("memory", "heap", "allocat")},
	{"processes without end", "python", "import os, sys\ndef main():\n    n = 0\n    while n < 100000:\n        try:\n            if os.fork() == 0:\n                import time\n                time.sleep(3600)\n            n += 1\n        except OSError:\n            return n < 10000", func(t *testing.T, o outcome) {
		if o.Status == "success" {
			assert.Check(t, is.Equal(o.Result, true), "as many as it may have, and no more")
			return
		}
		endedBy("memory", "MemoryError")(t, o)
	}},
	{"recursion without end", "python", "def main():\n    return main()", endedBy("memory", "RecursionError")},
	{"the host's secrets", "python", "def main():\n    found = []\n    for path in ['/etc/shadow', '/root/.ssh/id_rsa', '/proc/1/environ', '/sandbox.hcl', '/state']:\n        try:\n            found += [path] if 'token' in open(path).read() or path == '/etc/shadow' else []\n        except OSError:\n            pass\n    return found", returns([]any{})},
	{"a file of the system", "python", "def main():\n    try:\n        open('/usr/bin/python3', 'r+b')\n        return 'written'\n    except OSError:\n        return 'refused'", returns("refused")},
	{"all of the disk", "python", "def main():\n    with open('/tmp/full', 'wb') as f:\n        for n in range(1 << 14):\n            f.write(bytes(1 << 20))\n    return 'written'", endedBy("memory", "No space left", "OSError", "MemoryError", "Killed")},
	{"a connection to the outside", "python", "import socket\ndef main():\n    try:\n        socket.create_connection(('1.1.1.1', 80), 3)\n        return 'connected'\n    except OSError:\n        return 'refused'", returns("refused")},
	{"a connection to the machine itself", "python", "import socket\ndef main():\n    reached = []\n    for port in (22, 80, 9385, 9386):\n        try:\n            socket.create_connection(('127.0.0.1', port), 1)\n            reached.append(port)\n        except OSError:\n            pass\n    return reached", returns([]any{})},
	{"a program of the system", "python", "import subprocess\ndef main():\n    return subprocess.run(['cat', '/proc/version'], capture_output=True, text=True).stdout.split()[0:3:2]", func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "success"), o.Stderr) // it runs, and sees the sandbox's kernel
	}},
	{"code from a text", "python", "def main():\n    exec(\"import os\\nleft = os.path.exists('/host')\", globals())\n    return eval('left')", returns(false)},
	{"an object that runs when it is read", "python", "import pickle, os\nclass Bad:\n    def __reduce__(self):\n        return os.path.exists, ('/etc/sandbox-broker',)\ndef main():\n    return pickle.loads(pickle.dumps(Bad()))", returns(false)},
	{"a write to no address", "python", "import ctypes\ndef main():\n    ctypes.memset(0, 1, 1)", func(t *testing.T, o outcome) {
		assert.Check(t, is.Equal(o.Status, "program_error"))
		assert.Check(t, o.ExitCode != 0)
	}},
	{
		"a shell of JavaScript", "javascript", "const { execSync } = require('child_process');\nconst fs = require('fs');\nfunction main() { let shadow = true; try { fs.readFileSync('/etc/shadow'); } catch { shadow = false; } return { echo: execSync('echo in the sandbox').toString(), shadow }; }",
		returns(map[string]any{"echo": "in the sandbox\n", "shadow": false}),
	},
}

func TestRAGFlowsSecurityCases(t *testing.T) {
	assert.Equal(t, len(attacks), 17)
	b := frontdoor.Real(t, "front_door \"ragflow\" {\n  tenant = \"acme\"\n  timeout = \"10s\"\n}\n")
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			o := run(t, b.URL+"/ragflow", "", code{attack.language, attack.code, nil})[0]
			assert.Equal(t, o.Error, "")
			attack.check(t, o)
			for _, secret := range []string{harness.Token, harness.OtherToken, b.Dir} {
				assert.Check(t, !strings.Contains(o.Stdout+o.Stderr, secret), "%+v", o)
			}
			// The next one has a sandbox as if nothing had been.
			after := run(t, b.URL+"/ragflow", "", code{"python", "import os\ndef main():\n    return sorted(os.listdir('/tmp'))", nil})[0]
			assert.Check(t, is.Equal(after.Status, "success"), after.Stderr)
			assert.Check(t, is.DeepEqual(after.Result, []any{}))
		})
	}
}
