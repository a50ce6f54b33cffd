package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func commandCases() []Case {
	const group = "commands"
	return needing([]Case{
		{Group: group, Name: "a command runs and its end is known", run: commandRuns},
		{Group: group, Name: "an exit code arrives as it is", run: commandExitCode},
		{Group: group, Name: "stdout and stderr are told apart", run: commandStreams},
		{Group: group, Name: "arguments arrive unchanged", run: commandArguments},
		{Group: group, Name: "a program that is not there is refused", run: commandUnknownProgram},
		{Group: group, Name: "it gets directory and variables that were asked for", run: commandSurroundings},
		{Group: group, Name: "it starts in /workspace", run: commandWorkspace},
		{Group: group, Name: "it goes on when the call that started it has ended", run: commandGoesOn},
		{Group: group, Name: "output is read from an offset", run: commandOffset},
		{Group: group, Name: "an offset behind the end gives nothing, of one that has ended", run: commandOffsetBehindEnd},
		{Group: group, Name: "its end is waited for from an offset far behind", run: commandAwaited},
		{Group: group, Name: "an offset that is not reached yet is waited for", run: commandOffsetAhead},
		{Group: group, Name: "output is followed as it appears", run: commandFollow},
		{Group: group, Name: "to stop reading does not stop it", run: commandStopReading},
		{Group: group, Name: "the latest output is kept, and offsets tell what is missing", run: commandKeepsLatest},
		{Group: group, Name: "it reads what is written to it", run: commandStdin},
		{Group: group, Name: "its input is empty unless asked for", run: commandNoStdin},
		{Group: group, Name: "input that is closed takes nothing more", run: commandClosedStdin},
		{Group: group, Name: "a signal reaches it", run: commandSignal},
		{Group: group, Name: "SIGKILL ends it with all that it started", run: commandKill},
		{Group: group, Name: "one that has ended takes no signal", run: commandSignalAfterEnd},
		{Group: group, Name: "it is killed at its timeout", run: commandTimeout},
		{Group: group, Name: "commands are listed, ended ones too", run: commandsAreListed},
		{Group: group, Name: "it ends with its instance", run: commandEndsWithInstance},
		{Group: group, Name: "a terminal is one, or refused", run: commandTerminal},
		{Group: group, Name: "unknown commands are not found", run: commandUnknown},
	}, sdk.CapabilityCommands)
}

// commands is an instance as the calls for commands see it.
type commands struct{ instance }

func (in instance) commands() commands { return commands{in} }

// start starts a command; change may change the request.
func (in commands) start(argv []string, change ...func(*sdk.CommandRequest)) sdk.Command {
	started, err := in.tryStart(argv, change...)
	in.must(err, "start %q", argv)
	return started
}

// tryStart starts a command and returns the error too.
func (in commands) tryStart(argv []string, change ...func(*sdk.CommandRequest)) (sdk.Command, error) {
	req := sdk.CommandRequest{InstanceID: in.ID, Argv: argv, KeepOutput: 1 << 20}
	for _, f := range change {
		f(&req)
	}
	var started sdk.Command
	err := in.call("StartCommand", func(ctx context.Context) (err error) {
		started, err = in.StartCommand(ctx, req)
		return err
	})
	return started, err
}

func (in commands) shell(line string, change ...func(*sdk.CommandRequest)) sdk.Command {
	return in.start([]string{"sh", "-c", line}, change...)
}

// commandOutput is what a command has printed.
type commandOutput struct{ stdout, stderr bytes.Buffer }

func (o *commandOutput) take(piece sdk.CommandOutput) error {
	if piece.Stream == sdk.Stderr {
		o.stderr.Write(piece.Data)
	} else {
		o.stdout.Write(piece.Data)
	}
	return nil
}

// follow reads a command to its end.
func (in commands) follow(command sdk.Command) (sdk.Command, *commandOutput) {
	out := &commandOutput{}
	var ended sdk.Command
	err := in.call("ReadCommand", func(ctx context.Context) (err error) {
		ended, err = in.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: command.ID, Follow: true}, out.take)
		return err
	})
	in.must(err, "read the command")
	in.check(ended.State != sdk.CommandRunning, "a command that was read to its end counts as running")
	return ended, out
}

// "a command runs until it ends" (Commands)
func commandRuns(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo hello")
	equal(c, started.Argv, []string{"sh", "-c", "echo hello"}, "the arguments of the command")
	ended, out := in.follow(started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, ended.ExitCode, 0, "the exit code")
	equal(c, out.stdout.String(), "hello\n", "stdout")
	c.check(!ended.StartedAt.IsZero() && !ended.EndedAt.Before(ended.StartedAt), "it started at %v and ended at %v", ended.StartedAt, ended.EndedAt)
	equal(c, ended.StdoutBytes, int64(len("hello\n")), "the bytes of stdout")
}

// "ExitCode once it has ended" (Command)
func commandExitCode(c *scene) {
	in := c.instance().commands()
	ended, _ := in.follow(in.shell("exit 7"))
	equal(c, ended.State, sdk.CommandFailed, "the state")
	equal(c, ended.ExitCode, 7, "the exit code")
}

// "Stream is Stdout or Stderr." (CommandOutput)
func commandStreams(c *scene) {
	in := c.instance().commands()
	_, out := in.follow(in.shell("echo out; echo err >&2"))
	equal(c, out.stdout.String(), "out\n", "stdout")
	equal(c, out.stderr.String(), "err\n", "stderr")
}

// "Argv is the program, found along PATH, and its arguments." (CommandRequest) No
// shell looks at them.
func commandArguments(c *scene) {
	in := c.instance().commands()
	arguments := []string{"a b", "", "$HOME", "'\"`;|&", "*", "Grüße\n世界", "-n"}
	ended, out := in.follow(in.start(append([]string{"printf", "<%s>"}, arguments...)))
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), "<"+strings.Join(arguments, "><")+">", "the arguments as the program sees them")
}

// "with CodeInvalidRequest and the field "argv" when there is no such program"
// (Commands)
func commandUnknownProgram(c *scene) {
	_, err := c.StartCommand(c.ctx, sdk.CommandRequest{InstanceID: c.instance().ID, Argv: []string{"no-such-program-of-any-system"}, KeepOutput: 1})
	c.refusedField(err, "StartCommand of a program that is not there", sdk.CodeInvalidRequest, "argv")
}

// "Env is added to the instance's environment. Cwd is a directory inside the
// instance." (CommandRequest)
func commandSurroundings(c *scene) {
	c.someLanguage()
	made := c.createRequest(c.language)
	made.Env = map[string]string{"OF_THE_INSTANCE": "one", "OF_BOTH": "instance"}
	in := c.create(made).commands()
	_, out := in.follow(in.shell(`pwd; echo "$OF_THE_INSTANCE $OF_THE_COMMAND $OF_BOTH"`, func(req *sdk.CommandRequest) {
		req.Cwd, req.Env = "/tmp", map[string]string{"OF_THE_COMMAND": "two", "OF_BOTH": "command"}
	}))
	equal(c, out.stdout.String(), "/tmp\none two command\n", "stdout")
}

// "empty for /workspace" (CommandRequest.Cwd): where code runs too.
func commandWorkspace(c *scene) {
	in := c.instance().commands()
	in.run(c.samples.Write).succeeded()
	_, out := in.follow(in.shell("cat providertest.txt; pwd"))
	equal(c, out.stdout.String(), "kept/workspace\n", "stdout")
}

// "programs that outlive a call" (Commands)
func commandGoesOn(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo ready; sleep 600")
	in.reads(started, "ready\n")
	list, err := c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	c.check(len(list) == 1 && list[0].State == sdk.CommandRunning, "the command does not run any more: %s", shown(list))
}

var errEnough = errors.New("enough was read")

// reads follows a command until it has printed a text.
func (in commands) reads(command sdk.Command, want string) {
	out := &commandOutput{}
	err := in.call("ReadCommand", func(ctx context.Context) error {
		_, err := in.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: command.ID, Follow: true}, func(piece sdk.CommandOutput) error {
			if _ = out.take(piece); strings.Contains(out.stdout.String(), want) {
				return errEnough
			}
			return nil
		})
		return err
	})
	in.check(errors.Is(err, errEnough), "the command did not print %q, but %q: %v", want, out.stdout.String(), err)
}

// "Offsets count all bytes of the stream since the command began."
// (ReadCommandRequest)
func commandOffset(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo 0123456789; echo abc >&2")
	in.follow(started)
	out := &commandOutput{}
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID, StdoutOffset: 4, StderrOffset: 2}, out.take)
	c.must(err, "read from an offset")
	equal(c, out.stdout.String(), "456789\n", "stdout from byte 4 on")
	equal(c, out.stderr.String(), "c\n", "stderr from byte 2 on")
}

// far is an offset that no output reaches.
const far = math.MaxInt64

// "An offset at or behind the end gives nothing." (ReadCommandRequest)
func commandOffsetBehindEnd(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo 0123456789; echo abc >&2")
	in.follow(started)
	for _, offset := range []int64{11, 12, 1 << 20, 1 << 40, far} {
		for _, follow := range []bool{false, true} {
			out := &commandOutput{}
			var ended sdk.Command
			err := c.call("ReadCommand", func(ctx context.Context) (err error) {
				ended, err = c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID, StdoutOffset: offset, StderrOffset: offset, Follow: follow}, out.take)
				return err
			})
			c.must(err, "read from the offset %d", offset)
			equal(c, out.stdout.String()+out.stderr.String(), "", "the output from byte %d on", offset)
			equal(c, ended.State, sdk.CommandSucceeded, "the state")
		}
	}
}

// The same, and "ended, if Follow is set" (Commands.ReadCommand): so somebody waits who
// wants no output.
func commandAwaited(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo first; read line; echo second", withStdin)
	in.reads(started, "first\n")
	now := sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID, StdoutOffset: far, StderrOffset: far}
	silent := func(piece sdk.CommandOutput) error {
		return fmt.Errorf("there is output at byte %d: %q", piece.Offset, piece.Data)
	}
	running, err := c.ReadCommand(c.ctx, now, silent)
	c.must(err, "read from an offset far behind the end, without following")
	equal(c, running.State, sdk.CommandRunning, "the state")
	type end struct {
		command sdk.Command
		err     error
	}
	ended := make(chan end, 1)
	ctx, cancel := c.within(callTimeout)
	defer cancel()
	go func() {
		waiting := now
		waiting.Follow = true
		command, err := c.ReadCommand(ctx, waiting, silent)
		ended <- end{command, err}
	}()
	c.later(func() {
		cancel()
		<-ended
	})
	// What another call does meanwhile gives the wait time to go wrong.
	_, err = c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	select {
	case e := <-ended:
		ended <- e
		c.fail("a wait for a command that runs ended: %s, %v", shown(e.command), e.err)
	default:
	}
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("\n"), true), "write to the command")
	e := <-ended
	ended <- e
	c.must(e.err, "wait for the end of the command")
	equal(c, e.command.State, sdk.CommandSucceeded, "the state")
}

// "and what comes there later if it is reached" (ReadCommandRequest)
func commandOffsetAhead(c *scene) {
	in := c.instance().commands()
	started := in.shell("read line; echo 0123456789; echo abc >&2", withStdin)
	out := &commandOutput{}
	read := make(chan error, 1)
	ctx, cancel := c.within(callTimeout)
	defer cancel()
	go func() {
		_, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID, StdoutOffset: 4, StderrOffset: far, Follow: true}, out.take)
		read <- err
	}()
	_, err := c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("\n"), true), "write to the command")
	c.must(<-read, "read from an offset that was not reached yet")
	equal(c, out.stdout.String(), "456789\n", "stdout from byte 4 on")
	equal(c, out.stderr.String(), "", "stderr")
}

// "and with Follow what it will print" (Commands.ReadCommand)
func commandFollow(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo first; read line; echo second $line", func(req *sdk.CommandRequest) { req.Stdin = true })
	in.reads(started, "first\n")
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("go\n"), false), "write to the command")
	_, out := in.follow(started)
	equal(c, out.stdout.String(), "first\nsecond go\n", "stdout")
}

// "To stop reading does not stop the command." (Commands.ReadCommand)
func commandStopReading(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo first; read line; echo second", func(req *sdk.CommandRequest) { req.Stdin = true })
	ctx, cancel := context.WithCancel(c.ctx)
	_, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error {
		cancel()
		return nil
	})
	cancel()
	c.check(isContextEnd(err), "reading that was cancelled gave %v", err)
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("\n"), true), "write to the command")
	ended, out := in.follow(started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), "first\nsecond\n", "stdout")
}

// "KeepOutput is how many bytes of each stream are kept for readers, the latest
// ones." (CommandRequest) "It is above the end of the last piece where bytes were
// not kept." (CommandOutput.Offset)
func commandKeepsLatest(c *scene) {
	const keep, lines = 1000, 2000
	in := c.instance().commands()
	started := in.shell(fmt.Sprintf(`i=1; while [ $i -le %d ]; do echo "line $i"; i=$((i+1)); done`, lines), func(req *sdk.CommandRequest) { req.KeepOutput = keep })
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	ended, _ := in.follow(started)
	equal(c, ended.StdoutBytes, int64(want.Len()), "the bytes of stdout, kept or not")
	var kept []byte
	first := int64(-1)
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID}, func(piece sdk.CommandOutput) error {
		if first < 0 {
			first = piece.Offset
		}
		kept = append(kept, piece.Data...)
		return nil
	})
	c.must(err, "read what is kept")
	c.check(first >= 0 && len(kept) >= keep, "%d bytes are kept; there must be %d", len(kept), keep)
	equal(c, string(kept), want.String()[min(int(first), want.Len()):], "what is kept from its offset on")
}

func withStdin(req *sdk.CommandRequest) { req.Stdin = true }

// "WriteCommand writes to standard input and returns when the pipe or terminal has
// taken everything. With end, standard input is closed then." (Commands)
func commandStdin(c *scene) {
	in := c.instance().commands()
	started := in.start([]string{"cat"}, withStdin)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, every, false), "write")
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("end"), true), "write the end")
	ended, out := in.follow(started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), string(every)+"end", "what the command read")
}

// "else it is empty" (CommandRequest.Stdin)
func commandNoStdin(c *scene) {
	in := c.instance().commands()
	started := in.start([]string{"cat"})
	_, out := in.follow(started)
	equal(c, out.stdout.String(), "", "what the command read")
}

// "CodeConflict means that it is closed or was never open." (Commands.WriteCommand)
func commandClosedStdin(c *scene) {
	in := c.instance().commands()
	never := in.shell("sleep 600")
	c.refused(c.WriteCommand(c.ctx, in.ID, never.ID, []byte("x"), false), "a write to input that was never open", sdk.CodeConflict)
	closed := in.shell("cat; sleep 600", withStdin)
	c.must(c.WriteCommand(c.ctx, in.ID, closed.ID, nil, true), "close the input")
	c.refused(c.WriteCommand(c.ctx, in.ID, closed.ID, []byte("x"), false), "a write to input that is closed", sdk.CodeConflict)
}

func (in commands) signal(command sdk.Command, name string) {
	in.must(in.call("SignalCommand", func(ctx context.Context) error { return in.SignalCommand(ctx, in.ID, command.ID, name) }), "send %s", name)
}

// "SignalCommand sends a signal, by its POSIX name such as SIGTERM, to every
// process of the command." (Commands)
func commandSignal(c *scene) {
	in := c.instance().commands()
	started := in.shell("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done")
	in.reads(started, "ready\n")
	in.signal(started, "SIGUSR1")
	in.reads(started, "usr1\n")
	in.signal(started, "SIGTERM")
	ended, _ := in.follow(started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGTERM ended")
	equal(c, ended.ExitCode, 128+15, "the exit code")
}

// "SIGKILL always ends it." (Commands.SignalCommand) "All processes that it started
// end with it." (Commands)
func commandKill(c *scene) {
	in := c.instance().commands()
	started := in.shell(bashTicker("trap '' TERM INT HUP; "))
	in.reads(started, "ready\n")
	in.signal(started, "SIGKILL")
	ended, _ := in.follow(started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGKILL ended")
	in.fileIsQuiet("SIGKILL")
}

// bashTicker is a line for sh that starts a process which appends to the file
// dots, and waits.
func bashTicker(before string) string {
	return before + "(while :; do echo . >> dots; sleep 0.05; done) & while [ ! -s dots ]; do sleep 0.02; done; echo ready; sleep 600"
}

// fileIsQuiet checks that the file dots does not grow.
func (in commands) fileIsQuiet(after string) {
	_, out := in.follow(in.shell("wc -c < dots; sleep 0.5; wc -c < dots"))
	sizes := strings.Fields(out.stdout.String())
	in.check(len(sizes) == 2, "the sizes of a file are %q", out.stdout.String())
	in.check(sizes[0] == sizes[1], "a process that the command started still runs after %s", after)
}

// "A command that has ended gives CodeConflict." (Commands.SignalCommand)
func commandSignalAfterEnd(c *scene) {
	in := c.instance().commands()
	started := in.shell(":")
	in.follow(started)
	c.refused(c.SignalCommand(c.ctx, in.ID, started.ID, "SIGTERM"), "a signal to a command that has ended", sdk.CodeConflict)
}

// "Timeout after which the command is killed" (CommandRequest)
func commandTimeout(c *scene) {
	in := c.instance().commands()
	started := in.shell(bashTicker("trap '' TERM INT HUP; "), func(req *sdk.CommandRequest) { req.Timeout = c.suite.within(time.Second) })
	ended, _ := in.follow(started)
	equal(c, ended.State, sdk.CommandTimeout, "the state of a command that ran into its timeout")
	in.fileIsQuiet("the timeout")
}

// "Commands that have ended stay known for a while, at least the last ten of an
// instance." (Commands)
func commandsAreListed(c *scene) {
	in := c.instance().commands()
	want := map[string]sdk.CommandState{}
	for range 9 {
		started := in.shell(":")
		in.follow(started)
		want[started.ID] = sdk.CommandSucceeded
	}
	want[in.shell("sleep 600").ID] = sdk.CommandRunning
	equal(c, len(want), 10, "the number of different IDs of ten commands")
	list, err := c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	got := map[string]sdk.CommandState{}
	for _, l := range list {
		got[l.ID] = l.State
	}
	equal(c, got, want, "the states of the commands")
}

// "or its instance ends" (Commands)
func commandEndsWithInstance(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo ready; sleep 600")
	in.reads(started, "ready\n")
	c.destroy(in.ID)
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: started.ID}, func(sdk.CommandOutput) error { return nil })
	c.refused(err, "ReadCommand of a destroyed instance", sdk.CodeNotFound)
}

// "Terminal gives the command a terminal instead of pipes: its output is all
// Stdout, and standard input is open." (CommandRequest) "A provider without
// terminals refuses CommandRequest.Terminal with CodeNotSupported." (Commands)
func commandTerminal(c *scene) {
	in := c.instance().commands()
	req := sdk.CommandRequest{
		InstanceID: in.ID, KeepOutput: 1 << 20, Terminal: &sdk.TerminalSize{Rows: 33, Columns: 77},
		Argv: []string{"sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; read line; echo "got $line" >&2; stty size`},
	}
	started, err := c.StartCommand(c.ctx, req)
	if sdk.CodeOf(err) == sdk.CodeNotSupported { // a promise that is kept
		list, err := c.ListCommands(c.ctx, in.ID)
		c.must(err, "list commands")
		equal(c, len(list), 0, "the number of commands after one was refused")
		return
	}
	c.must(err, "start a command with a terminal")
	in.reads(started, "33 77")
	c.must(c.ResizeCommand(c.ctx, in.ID, started.ID, sdk.TerminalSize{Rows: 44, Columns: 88}), "resize the terminal")
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("line\n"), false), "write to the terminal")
	ended, out := in.follow(started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	c.check(ended.Terminal, "the command does not say that it has a terminal")
	for _, want := range []string{"terminal", "got line", "44 88"} {
		c.check(strings.Contains(out.stdout.String(), want), "the terminal shows %q, without %q", out.stdout.String(), want)
	}
	equal(c, out.stderr.String(), "", "stderr of a command with a terminal")
}

// "All methods return CodeNotFound for an unknown instance or command." (Commands)
func commandUnknown(c *scene) {
	in := c.instance()
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: in.ID, CommandID: "unknown"}, func(sdk.CommandOutput) error { return nil })
	c.refused(err, "ReadCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.WriteCommand(c.ctx, in.ID, "unknown", nil, true), "WriteCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.SignalCommand(c.ctx, in.ID, "unknown", "SIGTERM"), "SignalCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.ResizeCommand(c.ctx, in.ID, "unknown", sdk.TerminalSize{Rows: 1, Columns: 1}), "ResizeCommand of an unknown command", sdk.CodeNotFound)
}
