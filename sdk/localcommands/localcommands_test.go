package localcommands_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type startFunc = func(context.Context, string, localcommands.Program) (localcommands.Process, error)

// instances knows those that are there.
type instances struct{ gone sync.Map }

func (i *instances) check(id string) error {
	if _, gone := i.gone.Load(id); gone || !strings.HasPrefix(id, "i") {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	return nil
}

// commandsOf returns commands that end with the test, and their instances: those whose
// name begins with i.
func commandsOf(t *testing.T, start startFunc, maxRunning int) (*localcommands.Commands, *instances) {
	t.Helper()
	known := &instances{}
	commands := localcommands.New(localcommands.Options{Check: known.check, Start: start, MaxRunning: maxRunning})
	t.Cleanup(func() { assert.Check(t, commands.EndAllCommands(context.Background())) })
	return commands, known
}

func shell(line string) sdk.CommandRequest {
	return sdk.CommandRequest{InstanceID: "i", Argv: []string{"sh", "-c", line}, KeepOutput: 1 << 20, Stdin: true}
}

func run(t *testing.T, commands *localcommands.Commands, req sdk.CommandRequest) sdk.Command {
	t.Helper()
	started, err := commands.StartCommand(t.Context(), req)
	assert.NilError(t, err)
	assert.Equal(t, started.State, sdk.CommandRunning)
	return started
}

// output is what a reader was told.
type output struct {
	text map[sdk.Stream]*bytes.Buffer
	next map[sdk.Stream]int64
	lost int64
}

func newOutput() *output {
	return &output{text: map[sdk.Stream]*bytes.Buffer{sdk.Stdout: {}, sdk.Stderr: {}}, next: map[sdk.Stream]int64{}}
}

func (o *output) take(piece sdk.CommandOutput) error {
	if piece.Offset < o.next[piece.Stream] || len(piece.Data) == 0 || len(piece.Data) > sdk.MaxOutputChunk {
		return fmt.Errorf("%s: %d bytes at %d, after %d", piece.Stream, len(piece.Data), piece.Offset, o.next[piece.Stream])
	}
	o.lost += piece.Offset - o.next[piece.Stream]
	o.next[piece.Stream] = piece.Offset + int64(len(piece.Data))
	o.text[piece.Stream].Write(piece.Data)
	return nil
}

func follow(t *testing.T, commands *localcommands.Commands, id string) (sdk.Command, *output) {
	t.Helper()
	out := newOutput()
	ended, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: id, Follow: true}, out.take)
	assert.NilError(t, err)
	assert.Check(t, ended.State != sdk.CommandRunning)
	return ended, out
}

var errEnough = errors.New("enough")

// reads follows a command until it has printed a text.
func reads(t *testing.T, commands *localcommands.Commands, id, want string) {
	t.Helper()
	out := newOutput()
	_, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: id, Follow: true}, func(piece sdk.CommandOutput) error {
		if err := out.take(piece); err != nil {
			return err
		}
		if strings.Contains(out.text[sdk.Stdout].String(), want) {
			return errEnough
		}
		return nil
	})
	assert.ErrorIs(t, err, errEnough)
}

func isCode(t *testing.T, err error, code sdk.Code, field string) {
	t.Helper()
	refused, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "%v", err)
	assert.Check(t, is.Equal(refused.Code, code))
	assert.Check(t, is.Equal(refused.Field, field))
}

func TestWhatBecomesOfACommand(t *testing.T) {
	const ticks = "while :; do sleep 0.01; done"
	cases := map[string]struct {
		line, signal string
		timeout      time.Duration
		state        sdk.CommandState
		code         int
	}{
		"success":                       {line: "echo ready", state: sdk.CommandSucceeded},
		"failure":                       {line: "echo ready; exit 3", state: sdk.CommandFailed, code: 3},
		"its own signal":                {line: "echo ready; kill -SEGV $$", state: sdk.CommandFailed, code: 128 + 11},
		"a signal that was sent":        {line: "echo ready; " + ticks, signal: "SIGTERM", state: sdk.CommandCancelled, code: 128 + 15},
		"a signal that it obeyed":       {line: "trap 'exit 0' TERM; echo ready; " + ticks, signal: "SIGTERM", state: sdk.CommandSucceeded},
		"a signal that it failed after": {line: "trap 'exit 4' TERM; echo ready; " + ticks, signal: "SIGTERM", state: sdk.CommandFailed, code: 4},
		"SIGKILL":                       {line: "trap '' TERM INT HUP; echo ready; " + ticks, signal: "SIGKILL", state: sdk.CommandCancelled, code: 128 + 9},
		"its time":                      {line: "trap '' TERM INT HUP; echo ready; " + ticks, timeout: 300 * time.Millisecond, state: sdk.CommandTimeout, code: 128 + 9},
		"time enough":                   {line: "echo ready", timeout: time.Hour, state: sdk.CommandSucceeded},
	}
	commands, _ := commandsOf(t, startTree, 0)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			req := shell(c.line)
			req.Timeout = c.timeout
			started := run(t, commands, req)
			if c.state != sdk.CommandTimeout { // which may come before it is ready
				reads(t, commands, started.ID, "ready\n")
			}
			if c.signal != "" {
				assert.NilError(t, commands.SignalCommand(t.Context(), "i", started.ID, c.signal))
			}
			ended, out := follow(t, commands, started.ID)
			assert.Check(t, is.Equal(ended.State, c.state))
			assert.Check(t, is.Equal(ended.ExitCode, c.code))
			assert.Check(t, !ended.EndedAt.Before(ended.StartedAt))
			assert.Check(t, is.Equal(ended.StdoutBytes, int64(out.text[sdk.Stdout].Len())))
			if c.state != sdk.CommandTimeout {
				assert.Check(t, is.Equal(out.text[sdk.Stdout].String(), "ready\n"))
			}
			isCode(t, commands.SignalCommand(t.Context(), "i", started.ID, "SIGTERM"), sdk.CodeConflict, "")
			isCode(t, commands.WriteCommand(t.Context(), "i", started.ID, []byte("x"), false), sdk.CodeConflict, "")
		})
	}
}

// fake is a process that ends when the test says so, and with Kill.
type fake struct {
	program   localcommands.Program // with descriptors of its own
	exits     chan localcommands.Exit
	failure   error
	signals   chan syscall.Signal
	immortal  bool
	killed    chan struct{}
	killedNow func()
}

func newFake(t *testing.T, program localcommands.Program) *fake {
	t.Helper()
	f := &fake{program: program, exits: make(chan localcommands.Exit, 1), signals: make(chan syscall.Signal, 9), killed: make(chan struct{})}
	f.killedNow = sync.OnceFunc(func() { close(f.killed) })
	for _, file := range []**os.File{&f.program.Stdin, &f.program.Stdout, &f.program.Stderr} {
		if *file == nil {
			continue
		}
		fd, err := unix.FcntlInt((*file).Fd(), unix.F_DUPFD_CLOEXEC, 0)
		assert.NilError(t, err)
		*file = os.NewFile(uintptr(fd), (*file).Name())
		t.Cleanup(func() { _ = (*file).Close() })
	}
	return f
}

func (f *fake) Signal(signal syscall.Signal) error { f.signals <- signal; return nil }
func (f *fake) Kill() {
	f.killedNow()
	if !f.immortal {
		select {
		case f.exits <- localcommands.Exit{Code: 128 + 9}:
		default:
		}
	}
}
func (f *fake) Wait() (localcommands.Exit, error) { return <-f.exits, f.failure }

// fakes starts processes that the test gets from the channel.
func fakes(t *testing.T) (startFunc, <-chan *fake) {
	t.Helper()
	started := make(chan *fake, 100)
	return func(_ context.Context, _ string, program localcommands.Program) (localcommands.Process, error) {
		f := newFake(t, program)
		started <- f
		return f, nil
	}, started
}

func TestWhatTheProviderSaysOfTheEnd(t *testing.T) {
	cases := map[string]struct {
		exit    localcommands.Exit
		failure error
		sent    string
		state   sdk.CommandState
		code    int
	}{
		"out of memory":                     {exit: localcommands.Exit{Code: 137, OutOfMemory: true}, state: sdk.CommandOutOfMemory, code: 137},
		"nobody knows":                      {failure: errors.New("lost"), state: sdk.CommandFailed, code: 137},
		"another signal than was sent":      {exit: localcommands.Exit{Code: 139}, sent: "SIGTERM", state: sdk.CommandFailed, code: 139},
		"success after a signal":            {sent: "SIGTERM", state: sdk.CommandSucceeded},
		"out of memory, though it was sent": {exit: localcommands.Exit{Code: 137, OutOfMemory: true}, sent: "SIGUSR1", state: sdk.CommandOutOfMemory, code: 137},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start, processes := fakes(t)
			commands, _ := commandsOf(t, start, 0)
			started := run(t, commands, shell(""))
			process := <-processes
			process.failure = c.failure
			if c.sent != "" {
				assert.NilError(t, commands.SignalCommand(t.Context(), "i", started.ID, c.sent))
				assert.Equal(t, <-process.signals, unix.SignalNum(c.sent))
			}
			process.exits <- c.exit
			ended, _ := follow(t, commands, started.ID)
			assert.Check(t, is.Equal(ended.State, c.state))
			assert.Check(t, is.Equal(ended.ExitCode, c.code))
		})
	}
}

func TestWhatCannotBeStartedIsRefusedAndTakesNoPlace(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 1)
	with := func(change func(*sdk.CommandRequest)) sdk.CommandRequest {
		req := shell("true")
		change(&req)
		return req
	}
	cases := map[string]struct {
		req   sdk.CommandRequest
		code  sdk.Code
		field string
	}{
		"no such program":   {with(func(r *sdk.CommandRequest) { r.Argv = []string{"no-such-program"} }), sdk.CodeInvalidRequest, "argv"},
		"no program":        {with(func(r *sdk.CommandRequest) { r.Argv = nil }), sdk.CodeInvalidRequest, "argv"},
		"an empty program":  {with(func(r *sdk.CommandRequest) { r.Argv = []string{""} }), sdk.CodeInvalidRequest, "argv"},
		"a NUL":             {with(func(r *sdk.CommandRequest) { r.Argv = []string{"sh", "\x00"} }), sdk.CodeInvalidRequest, "argv"},
		"a NUL in the path": {with(func(r *sdk.CommandRequest) { r.Cwd = "a\x00" }), sdk.CodeInvalidRequest, "cwd"},
		"a bad name":        {with(func(r *sdk.CommandRequest) { r.Env = map[string]string{"a=b": "c"} }), sdk.CodeInvalidRequest, "env"},
		"a bad value":       {with(func(r *sdk.CommandRequest) { r.Env = map[string]string{"a": "\x00"} }), sdk.CodeInvalidRequest, "env"},
		"a terminal":        {with(func(r *sdk.CommandRequest) { r.Terminal = &sdk.TerminalSize{} }), sdk.CodeNotSupported, ""},
		"no such instance":  {with(func(r *sdk.CommandRequest) { r.InstanceID = "none" }), sdk.CodeNotFound, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := commands.StartCommand(t.Context(), c.req)
			isCode(t, err, c.code, c.field)
			list, err := commands.ListCommands(t.Context(), "i")
			assert.NilError(t, err)
			assert.Equal(t, len(list), 0)
		})
	}
	started := run(t, commands, shell("sleep 1000"))
	_, err := commands.StartCommand(t.Context(), shell("true"))
	isCode(t, err, sdk.CodeQuotaExceeded, "")
	assert.NilError(t, commands.SignalCommand(t.Context(), "i", started.ID, "SIGKILL"))
	follow(t, commands, started.ID)
	run(t, commands, shell("true"))
}

func TestWhatIsUnknownIsNotFound(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 0)
	started := run(t, commands, shell("true"))
	for _, id := range [][2]string{{"i", "unknown"}, {"none", started.ID}, {"i2", started.ID}} {
		_, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id[0], CommandID: id[1]}, newOutput().take)
		isCode(t, err, sdk.CodeNotFound, "")
		isCode(t, commands.WriteCommand(t.Context(), id[0], id[1], nil, true), sdk.CodeNotFound, "")
		isCode(t, commands.ResizeCommand(t.Context(), id[0], id[1], sdk.TerminalSize{}), sdk.CodeNotFound, "")
		isCode(t, commands.SignalCommand(t.Context(), id[0], id[1], "SIGTERM"), sdk.CodeNotFound, "")
	}
	_, err := commands.ListCommands(t.Context(), "none")
	isCode(t, err, sdk.CodeNotFound, "")
	isCode(t, commands.SignalCommand(t.Context(), "i", started.ID, "TERM"), sdk.CodeInvalidRequest, "signal")
	isCode(t, commands.ResizeCommand(t.Context(), "i", started.ID, sdk.TerminalSize{}), sdk.CodeConflict, "")
}

func TestWhereAndWithWhatItStarts(t *testing.T) {
	start, processes := fakes(t)
	commands, _ := commandsOf(t, start, 0)
	for cwd, want := range map[string]string{"": "/workspace", "a/b": "/workspace/a/b", "/tmp": "/tmp"} {
		started := run(t, commands, sdk.CommandRequest{InstanceID: "i", Argv: []string{"p", "q"}, Cwd: cwd, Env: map[string]string{"A": "b"}, KeepOutput: 1})
		program := (<-processes).program
		assert.Equal(t, program.Dir, want)
		assert.Equal(t, started.Cwd, want)
		assert.DeepEqual(t, program.Argv, []string{"p", "q"})
		assert.DeepEqual(t, program.Env, map[string]string{"A": "b"})
		assert.Check(t, program.Stdin == nil)
	}
}

func TestAFloodWaitsForNoReaderAndTellsWhatASlowOneMisses(t *testing.T) {
	const bytesPrinted, keep = 20 << 20, 64 << 10
	commands, _ := commandsOf(t, startTree, 0)
	req := shell(fmt.Sprintf("yes 0123456 | head -c %d; yes err | head -c 1000 >&2", bytesPrinted))
	req.KeepOutput = keep
	started := run(t, commands, req)
	began, goOn := make(chan struct{}), make(chan struct{})
	slow := newOutput()
	read := make(chan error)
	go func() {
		first := true
		ended, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, Follow: true}, func(piece sdk.CommandOutput) error {
			if first {
				first = false
				close(began)
				<-goOn
			}
			return slow.take(piece)
		})
		assert.Check(t, is.Equal(ended.State, sdk.CommandSucceeded))
		read <- err
	}()
	<-began
	ended, fast := follow(t, commands, started.ID)
	close(goOn)
	assert.NilError(t, <-read)
	assert.Equal(t, ended.State, sdk.CommandSucceeded)
	assert.Equal(t, ended.StdoutBytes, int64(bytesPrinted))
	assert.Equal(t, ended.StderrBytes, int64(1000))
	for _, o := range []*output{slow, fast} {
		assert.Equal(t, o.next[sdk.Stdout], int64(bytesPrinted))
		assert.Equal(t, int64(o.text[sdk.Stdout].Len())+o.lost, int64(bytesPrinted))
		assert.Equal(t, o.text[sdk.Stderr].Len(), 1000)
	}
	assert.Check(t, slow.lost > 0, "it was told what it missed")

	late := newOutput()
	_, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID}, late.take)
	assert.NilError(t, err)
	assert.Equal(t, late.text[sdk.Stdout].String(), strings.Repeat("0123456\n", keep/8), "as much as was to be kept, and the latest")
}

func TestAReaderWithoutFollowGetsWhatGoesWithItsAnswer(t *testing.T) {
	start, processes := fakes(t)
	commands, _ := commandsOf(t, start, 0)
	req := shell("")
	req.KeepOutput = 100
	started := run(t, commands, req)
	process := <-processes
	print := func(text string) {
		before, err := commands.ListCommands(t.Context(), "i")
		assert.NilError(t, err)
		_, err = process.program.Stdout.WriteString(text)
		assert.NilError(t, err)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			now, err := commands.ListCommands(t.Context(), "i")
			if err != nil {
				return poll.Error(err)
			}
			return poll.Compare(is.Equal(now[0].StdoutBytes, before[0].StdoutBytes+int64(len(text))))
		}, poll.WithTimeout(2*time.Minute))
	}
	print("before")
	out := newOutput()
	state, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, StdoutOffset: 2}, func(piece sdk.CommandOutput) error {
		print("after")
		process.exits <- localcommands.Exit{}
		follow(t, commands, started.ID)
		out.next[sdk.Stdout] = 2
		return out.take(piece)
	})
	assert.NilError(t, err)
	assert.Equal(t, out.text[sdk.Stdout].String(), "fore")
	assert.Equal(t, state.State, sdk.CommandRunning, "whoever reads until it has ended misses nothing")
	assert.Equal(t, state.StdoutBytes, int64(6))

	state, err = commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, StdoutOffset: 6}, out.take)
	assert.NilError(t, err)
	assert.Equal(t, out.text[sdk.Stdout].String(), "foreafter")
	assert.Equal(t, state.State, sdk.CommandSucceeded)
}

func TestACommandEndsThoughSomebodyKeepsItsPipes(t *testing.T) {
	start, processes := fakes(t)
	commands, _ := commandsOf(t, start, 0)
	started := run(t, commands, shell(""))
	process := <-processes // which keeps its descriptors beyond its end
	_, err := process.program.Stdout.WriteString("last words")
	assert.NilError(t, err)
	process.exits <- localcommands.Exit{}
	ended, out := follow(t, commands, started.ID)
	assert.Equal(t, ended.State, sdk.CommandSucceeded)
	assert.Equal(t, out.text[sdk.Stdout].String(), "last words")
	_, err = process.program.Stdout.WriteString("more")
	assert.ErrorIs(t, err, syscall.EPIPE)
	_, err = process.program.Stdin.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF, "our end is closed too")
}

func TestACommandGoesOnWhenItsOutputIsClosed(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 0)
	started := run(t, commands, shell(`(echo of the child; exec setsid sleep 1000) & exec 1>&-; read line; echo $line >&2; exit 5`))
	reads(t, commands, started.ID, "of the child\n")
	assert.NilError(t, commands.WriteCommand(t.Context(), "i", started.ID, []byte("go\n"), false))
	ended, out := follow(t, commands, started.ID)
	assert.Equal(t, ended.State, sdk.CommandFailed)
	assert.Equal(t, ended.ExitCode, 5)
	assert.Equal(t, out.text[sdk.Stderr].String(), "go\n")
}

func TestInput(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 0)
	without := shell("cat")
	without.Stdin = false
	started := run(t, commands, without)
	isCode(t, commands.WriteCommand(t.Context(), "i", started.ID, []byte("x"), false), sdk.CodeConflict, "")
	_, out := follow(t, commands, started.ID)
	assert.Equal(t, out.text[sdk.Stdout].Len(), 0)

	started = run(t, commands, shell("cat; sleep 1000"))
	large := bytes.Repeat([]byte("large\n"), 50_000)
	assert.NilError(t, commands.WriteCommand(t.Context(), "i", started.ID, large, false))
	assert.NilError(t, commands.WriteCommand(t.Context(), "i", started.ID, []byte("end\n"), true))
	reads(t, commands, started.ID, string(large)+"end\n")
	isCode(t, commands.WriteCommand(t.Context(), "i", started.ID, nil, false), sdk.CodeConflict, "")
}

func TestAWriteThatNobodyReadsEndsWithItsCallerOrTheCommand(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 0)
	started := run(t, commands, shell("sleep 1000"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	assert.ErrorIs(t, commands.WriteCommand(ctx, "i", started.ID, make([]byte, 1<<20), false), context.DeadlineExceeded)
	written := make(chan error)
	go func() { written <- commands.WriteCommand(t.Context(), "i", started.ID, make([]byte, 1<<20), false) }()
	assert.NilError(t, commands.SignalCommand(t.Context(), "i", started.ID, "SIGKILL"))
	isCode(t, <-written, sdk.CodeConflict, "")
}

func TestToStopReadingDoesNotStopTheCommand(t *testing.T) {
	commands, _ := commandsOf(t, startTree, 0)
	started := run(t, commands, shell("echo first; read line"))
	reads(t, commands, started.ID, "first\n")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := commands.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error {
		cancel()
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.NilError(t, commands.WriteCommand(t.Context(), "i", started.ID, []byte("\n"), false))
	ended, _ := follow(t, commands, started.ID)
	assert.Equal(t, ended.State, sdk.CommandSucceeded)
}

func TestEndedCommandsStayKnownForAWhile(t *testing.T) {
	cases := map[string]struct{ output, commands, known, read int }{
		"that printed little": {10, 40, 32, 32},
		"that printed much":   {2 << 20, 12, 12, 8}, // 16 MiB are kept in all
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			start, processes := fakes(t)
			commands, _ := commandsOf(t, start, 0)
			running := run(t, commands, shell("")).ID
			<-processes
			var last string
			text := bytes.Repeat([]byte("x"), c.output)
			for range c.commands {
				req := shell("")
				req.KeepOutput = 4 << 20
				last = run(t, commands, req).ID
				process := <-processes
				_, err := process.program.Stdout.Write(text)
				assert.NilError(t, err)
				process.exits <- localcommands.Exit{}
				_, out := follow(t, commands, last)
				assert.Equal(t, out.text[sdk.Stdout].Len(), c.output)
			}
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				list, err := commands.ListCommands(t.Context(), "i")
				if err != nil || list[0].ID != running || list[len(list)-1].ID != last {
					return poll.Error(fmt.Errorf("%v: %w", list, err))
				}
				read := 0
				for _, one := range list[1:] {
					_, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: one.ID}, func(sdk.CommandOutput) error {
						read++
						return io.EOF // one piece tells
					})
					if refused, ok := errors.AsType[*sdk.Error](err); ok && refused.Code == sdk.CodeNotFound {
						return poll.Continue("%s was forgotten since the list was made", one.ID)
					}
					if err != nil && !errors.Is(err, io.EOF) {
						return poll.Error(err)
					}
				}
				return poll.Compare(is.DeepEqual([]int{len(list), read}, []int{c.known + 1, c.read}))
			}, poll.WithTimeout(2*time.Minute))
		})
	}
}

func TestTheEndOfAnInstanceIsThatOfItsCommands(t *testing.T) {
	commands, known := commandsOf(t, startTree, 0)
	started := run(t, commands, shell("trap '' TERM; echo ready; (setsid sleep 1000)& wait"))
	other := shell("read line")
	other.InstanceID = "i2"
	others := run(t, commands, other)
	reads(t, commands, started.ID, "ready\n")
	followed := make(chan sdk.Command)
	followBegan := make(chan struct{})
	go func() {
		ended, err := commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error {
			close(followBegan)
			return nil
		})
		assert.Check(t, err)
		followed <- ended
	}()
	<-followBegan
	known.gone.Store("i", nil)
	assert.NilError(t, commands.EndCommands(t.Context(), "i"))
	ended := <-followed
	assert.Equal(t, ended.State, sdk.CommandCancelled)
	assert.Equal(t, ended.ExitCode, 128+9)
	_, err := commands.ListCommands(t.Context(), "i")
	isCode(t, err, sdk.CodeNotFound, "")
	_, err = commands.StartCommand(t.Context(), shell("true"))
	isCode(t, err, sdk.CodeNotFound, "")
	assert.NilError(t, commands.EndCommands(t.Context(), "i"), "a second time too")
	list, err := commands.ListCommands(t.Context(), "i2")
	assert.NilError(t, err)
	assert.Equal(t, list[0].ID, others.ID)
	assert.Equal(t, list[0].State, sdk.CommandRunning)
}

func TestWhoeverEndsAnInstanceWaitsNoLongerThanItsContext(t *testing.T) {
	start, processes := fakes(t)
	commands, _ := commandsOf(t, start, 0)
	run(t, commands, shell(""))
	process := <-processes
	process.immortal = true
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- commands.EndCommands(ctx, "i") }()
	<-process.killed
	_, err := commands.StartCommand(t.Context(), shell(""))
	isCode(t, err, sdk.CodeNotFound, "")
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
	go func() { ended <- commands.EndCommands(t.Context(), "i") }()
	process.exits <- localcommands.Exit{Code: 137}
	assert.NilError(t, <-ended, "it was not forgotten before it had ended")
}

// A program that starts while its caller or its instance ends is killed, and nobody
// knows it.
func TestWhatStartsTooLateIsKilled(t *testing.T) {
	cases := map[string]struct {
		end  func(commands *localcommands.Commands, cancel context.CancelFunc)
		want error
	}{
		"its caller is gone": {func(_ *localcommands.Commands, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"its instance is gone": {func(commands *localcommands.Commands, _ context.CancelFunc) {
			go func() { _ = commands.EndCommands(context.Background(), "i") }()
		}, &sdk.Error{Code: sdk.CodeNotFound}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			starting := make(chan struct{})
			processes := make(chan *fake, 1)
			commands, _ := commandsOf(t, func(ctx context.Context, _ string, program localcommands.Program) (localcommands.Process, error) {
				close(starting)
				<-ctx.Done()
				f := newFake(t, program)
				processes <- f
				return f, nil
			}, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan error)
			go func() {
				_, err := commands.StartCommand(ctx, shell(""))
				started <- err
			}()
			<-starting
			list, err := commands.ListCommands(t.Context(), "i")
			assert.NilError(t, err)
			assert.Equal(t, len(list), 0, "it does not run yet")
			c.end(commands, cancel)
			assert.ErrorIs(t, <-started, c.want)
			<-(<-processes).killed
			assert.NilError(t, commands.EndCommands(t.Context(), "i"))
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	commands, known := commandsOf(t, startTree, 100)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for {
				started, err := commands.StartCommand(t.Context(), shell("echo text; read line"))
				if err != nil {
					isCode(t, err, sdk.CodeNotFound, "")
					return
				}
				_ = commands.WriteCommand(t.Context(), "i", started.ID, []byte("\n"), true)
				_ = commands.SignalCommand(t.Context(), "i", started.ID, "SIGTERM")
				_, _ = commands.ListCommands(t.Context(), "i")
				_, err = commands.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: "i", CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error { return nil })
				if err != nil {
					isCode(t, err, sdk.CodeNotFound, "")
					return
				}
			}
		})
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		list, err := commands.ListCommands(t.Context(), "i")
		if err != nil {
			return poll.Error(err)
		}
		if len(list) < 20 {
			return poll.Continue("%d", len(list))
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	known.gone.Store("i", nil)
	assert.NilError(t, commands.EndCommands(t.Context(), "i"))
	callers.Wait()
}
