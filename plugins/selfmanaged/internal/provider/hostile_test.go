package provider

import (
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// hostile programs must end in an answer, and leave the instance usable.
func TestHostilePrograms(t *testing.T) { onEachRuntime(t, testHostilePrograms) }

func testHostilePrograms(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	cases := []struct {
		name     string
		language sdk.Language
		code     string
		timeout  time.Duration
		status   sdk.Status
		check    func(t *testing.T, got outcome)
		mayEnd   bool // the host's kernel may be quicker than the guest
	}{
		{
			name: "an endless loop keeps its output", language: sdk.Python, timeout: time.Second, status: sdk.StatusTimeout,
			code:  "print('so far', end='')\nwhile True: pass",
			check: func(t *testing.T, got outcome) { assert.Check(t, is.Equal(got.stdout, "so far")) },
		},
		{name: "an endless loop in javascript", language: sdk.JavaScript, timeout: time.Second, status: sdk.StatusTimeout, code: "for (;;) {}"},
		{name: "code that ignores every signal", language: sdk.Bash, timeout: time.Second, status: sdk.StatusTimeout, code: "trap '' HUP INT TERM QUIT; while :; do :; done"},
		{name: "a fork bomb", language: sdk.Bash, timeout: 2 * time.Second, status: sdk.StatusTimeout, code: ":() { : | : & }; :; while :; do sleep 1; done"},
		{name: "a fork bomb that needs memory", language: sdk.Python, timeout: 20 * time.Second, status: sdk.StatusOutOfMemory, mayEnd: true, code: "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"},
		{name: "2 GB in python", language: sdk.Python, status: sdk.StatusOutOfMemory, code: "x = b'x' * (2 << 30)"},
		{name: "memory that no process holds", language: sdk.Python, status: sdk.StatusOutOfMemory, code: "import os, time\nfor i in range(1000):\n    os.write(os.memfd_create('x'), b'x' * (10 << 20)); time.sleep(0.01)"},
		{name: "memory in the kernel", language: sdk.Python, status: sdk.StatusOutOfMemory, mayEnd: true, code: "import fcntl, os, time\nfor i in range(500):\n    w = os.pipe()[1]; fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 1 << 20); os.write(w, b'x' * (1 << 20))\ntime.sleep(10)"},
		{name: "2 GB in small pieces", language: sdk.JavaScript, status: sdk.StatusOutOfMemory, code: "const a = []; for (let i = 0; i < 2048; i++) a.push(Buffer.alloc(1 << 20, 1))"},
		{
			name: "10 MB of output are cut", language: sdk.Python, status: sdk.StatusSucceeded, code: "import sys\nsys.stdout.write('x' * (10 << 20))\nsys.stderr.write('done')",
			check: func(t *testing.T, got outcome) {
				assert.Check(t, is.Equal(len(got.stdout), 1<<20))
				assert.Check(t, got.Truncated)
				assert.Check(t, is.Equal(got.stderr, "done"))
			},
		},
		{
			name: "output without end", language: sdk.Bash, timeout: time.Second, status: sdk.StatusTimeout, code: "yes",
			check: func(t *testing.T, got outcome) { assert.Check(t, got.Truncated) },
		},
		{name: "a disk that fills", language: sdk.Bash, status: sdk.StatusFailed, code: "head -c 1G /dev/zero > /workspace/f; rc=$?; rm -f /workspace/f; exit $rc"},
		{
			name: "a result forged on the result's descriptor is not JSON", language: sdk.Python, status: sdk.StatusSucceeded, code: "import os\nos.write(4, b'{forged')",
			check: func(t *testing.T, got outcome) { assert.Check(t, is.Len(got.Result, 0)) },
		},
		{name: "kill everything", language: sdk.Bash, status: sdk.StatusSucceeded, code: "kill -9 -1; exit 0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			template := map[sdk.Language]string{sdk.Python: templatePython, sdk.JavaScript: templateNode, sdk.Bash: templateBash}[c.language]
			id := create(t, p, template)
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: c.language, Code: c.code, Timeout: c.timeout})
			assert.NilError(t, err)
			assert.Check(t, is.Equal(got.Status, c.status), "stderr: %.500s", got.stderr)
			if c.check != nil {
				c.check(t, got)
			}
			after, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo alive"})
			if c.mayEnd && err != nil {
				assert.Check(t, sdk.CodeOf(err) == sdk.CodeNotFound || sdk.CodeOf(err) == sdk.CodeUnavailable, "%v", err)
				return
			}
			assert.NilError(t, err)
			assert.Check(t, is.Equal(after.stdout, "alive\n"), "%+v", after)
			assert.NilError(t, p.Destroy(t.Context(), id))
		})
	}
}

func TestSharedMemoryEndsWithItsExecution(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	for range 2 {
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import ctypes\nIPC_CREAT = 0o1000\nlibc = ctypes.CDLL(None)\nprint(libc.shmget(7, 4096, 0o666), libc.semget(7, 1, 0o666), libc.msgget(7, 0o666))\nlibc.shmget(7, 4096, IPC_CREAT | 0o666), libc.semget(7, 1, IPC_CREAT | 0o666), libc.msgget(7, IPC_CREAT | 0o666)"})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "-1 -1 -1\n", "an earlier execution left something; stderr: %s", got.stderr)
	}
}

func TestFilesOfAnEarlierExecutionDoNotReachTheRunner(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	plant := `for f in ast json os sys asyncio selectors socket ssl sitecustomize usercustomize; do echo 'raise SystemExit("planted")' > $f.py; done
mkdir -p node_modules/fs ~/.config ~/.local/lib/python3.11/site-packages && cp ast.py ~/.local/lib/python3.11/site-packages/usercustomize.py
echo 'throw 1' > node_modules/fs/index.js; echo '{"type": "module"}' > package.json; echo 'echo planted' > .bashrc; cp .bashrc .bash_profile; cp .bashrc .profile`
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: plant})
	assert.NilError(t, err)
	for _, c := range []struct {
		language     sdk.Language
		code, result string
	}{
		{sdk.Python, "async def main(): return 1", "1"},
		{sdk.JavaScript, "async function main() { return 1 }", "1"},
		{sdk.Bash, "echo fine", ""},
	} {
		for range 2 { // the second interpreter was started after the files were there
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: c.language, Code: c.code})
			assert.NilError(t, err)
			assert.Check(t, is.Equal(got.Status, sdk.StatusSucceeded), got.stderr)
			assert.Check(t, is.Equal(string(got.Result), c.result))
			assert.Check(t, is.Equal(got.stderr, ""))
			assert.Check(t, !strings.Contains(got.stdout, "planted"))
		}
	}
}

func TestTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T) {
	onEachRuntime(t, testTheHostsMemoryLimitIsTheFenceBehindTheGuests)
}

func testTheHostsMemoryLimitIsTheFenceBehindTheGuests(t *testing.T, newProvider makeProvider) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	p := newProvider(t, map[string]any{"memory_mb": 64, "pool_size": 0, "cgroups": "required"})
	p.settings.MemoryMB = 1 << 20 // the guest believes that there is plenty
	id := create(t, p, templatePython)
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print('before', flush=True)\nx = b'x' * (1 << 30)"})
	assert.NilError(t, err)
	assert.Equal(t, got.Status, sdk.StatusOutOfMemory)
	assert.Equal(t, got.stdout, "before\n")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeNotFound}))
	})
	got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "next\n")
}
