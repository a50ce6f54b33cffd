package provider

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var errListening = errors.New("it listens")

// keeper is a server that is given descriptors and keeps them, as those of tmux,
// nailgun or watchman do.
const keeper = `
import array, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/keeper")
server.listen()
kept = []
print("listening", flush=True)
while True:
    connection, _ = server.accept()
    while True:
        data, control, _, _ = connection.recvmsg(100, socket.CMSG_SPACE(40))
        for _, _, fds in control:
            kept.append(array.array("i", fds))
        if not data: break
        connection.send(b"k")
`

// give passes descriptors of its own to the keeper.
const give = `
import array, os, socket
def give(*fds):
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/keeper")
    client.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    assert client.recv(1) == b"k"
    client.close()
def all_open():
    return [fd for fd in range(3, 20) if os.path.exists(f"/proc/self/fd/{fd}")]
`

func TestADescriptorThatSomebodyKeepsHoldsUpNothing(t *testing.T) {
	inTheGuest(t, testKeptDescriptors)
}

func testKeptDescriptors(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	server := startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", keeper}})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_, err := p.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: server.ID, Follow: true}, func(sdk.CommandOutput) error {
		return errListening
	})
	assert.ErrorIs(t, err, errListening)

	// Far longer than any of this takes, so that nobody can mistake one for the other.
	const limit = 20 * time.Second
	for name, test := range map[string]struct {
		code   string
		status sdk.Status
	}{
		"stdout":             {"give(1)", sdk.StatusSucceeded},
		"both outputs":       {"give(1, 2)", sdk.StatusSucceeded},
		"all that it has":    {"give(1, 2, *all_open())", sdk.StatusSucceeded},
		"and is killed":      {"give(1, 2, *all_open()); os.kill(os.getpid(), 9)", sdk.StatusFailed},
		"to a child as well": {"give(1, 2, *all_open()); os.fork() or os.setsid() and None", sdk.StatusSucceeded},
	} {
		t.Run("an execution gives "+name, func(t *testing.T) {
			o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Timeout: limit, Code: give + "print('all of it', flush=True)\n" + test.code})
			assert.NilError(t, err)
			assert.Equal(t, o.Status, test.status, "%+v", o)
			assert.Equal(t, o.stdout, "all of it\n")
			assert.Assert(t, o.Duration < limit)
		})
	}
	t.Run("a result is not lost", func(t *testing.T) {
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Timeout: limit, Arguments: []byte("{}"), Code: give + "def main():\n    give(1, 2, *all_open())\n    return 7"})
		assert.NilError(t, err)
		assert.Equal(t, string(o.Result), "7")
	})
	t.Run("a time limit is one", func(t *testing.T) {
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Timeout: time.Second, Code: give + "give(1, 2, *all_open())\nwhile True: pass"})
		assert.NilError(t, err)
		assert.Equal(t, o.Status, sdk.StatusTimeout)
		assert.Check(t, is.Equal(o.Detail, "the code was stopped at its time limit of 1s"), "the sandbox lives on")
	})
	t.Run("a command gives all that it has", func(t *testing.T) {
		got := runCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", give + "print('done', flush=True); give(0, 1, 2)"}, Stdin: true})
		assert.Equal(t, got.stdout, "done\n")
	})
	t.Run("a context gives all that it has", func(t *testing.T) {
		c := newContext(t, p, id, sdk.Python)
		c.run(give)
		assert.Equal(t, c.run("give(1, 2, *all_open()); 7").value(), "7")
		o := c.run("os._exit(0)", func(r *sdk.ExecuteRequest) { r.Timeout = limit })
		assert.Equal(t, o.Status, sdk.StatusSucceeded)
		assert.Check(t, is.Contains(o.Detail, "the context starts afresh"))
		c.run(give)
		c.run("give(1, 2, *all_open())")
		o = c.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", func(r *sdk.ExecuteRequest) { r.Timeout = time.Second })
		assert.Equal(t, o.Status, sdk.StatusTimeout)
		c.run(give)
		c.run("give(1, 2, *all_open())")
		bounded, cancel := context.WithTimeout(t.Context(), guestcalls.AnswerBound)
		defer cancel()
		assert.NilError(t, p.RestartContext(bounded, id, c.ID))
		c.run(give)
		c.run("give(1, 2, *all_open())")
		assert.NilError(t, p.DeleteContext(bounded, id, c.ID))
	})
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "test -S /tmp/keeper && echo here"})
	assert.NilError(t, err)
	assert.Equal(t, o.stdout, "here\n", "it is the same sandbox")
}
