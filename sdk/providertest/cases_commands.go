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

// start starts a command; change may change the request.
func (c *scene) startCommand(instance string, argv []string, change ...func(*sdk.CommandRequest)) sdk.Command {
	started, err := c.triedCommand(instance, argv, change...)
	c.must(err, "start %q", argv)
	return started
}

// triedCommand starts a command and returns the error too.
func (c *scene) triedCommand(instance string, argv []string, change ...func(*sdk.CommandRequest)) (sdk.Command, error) {
	req := sdk.CommandRequest{InstanceID: instance, Argv: argv, KeepOutput: 1 << 20}
	for _, f := range change {
		f(&req)
	}
	var started sdk.Command
	err := c.call("StartCommand", func(ctx context.Context) (err error) {
		started, err = c.StartCommand(ctx, req)
		return err
	})
	return started, err
}

func (c *scene) shell(instance, line string, change ...func(*sdk.CommandRequest)) sdk.Command {
	return c.startCommand(instance, []string{"sh", "-c", line}, change...)
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
func (c *scene) follow(instance string, command sdk.Command) (sdk.Command, *commandOutput) {
	out := &commandOutput{}
	var ended sdk.Command
	err := c.call("ReadCommand", func(ctx context.Context) (err error) {
		ended, err = c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: instance, CommandID: command.ID, Follow: true}, out.take)
		return err
	})
	c.must(err, "read the command")
	c.check(ended.State != sdk.CommandRunning, "a command that was read to its end counts as running")
	return ended, out
}

// "a command runs until it ends" (Commands)
func commandRuns(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo hello")
	equal(c, started.Argv, []string{"sh", "-c", "echo hello"}, "the arguments of the command")
	ended, out := c.follow(id, started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, ended.ExitCode, 0, "the exit code")
	equal(c, out.stdout.String(), "hello\n", "stdout")
	c.check(!ended.StartedAt.IsZero() && !ended.EndedAt.Before(ended.StartedAt), "it started at %v and ended at %v", ended.StartedAt, ended.EndedAt)
	equal(c, ended.StdoutBytes, int64(len("hello\n")), "the bytes of stdout")
}

// "ExitCode once it has ended" (Command)
func commandExitCode(c *scene) {
	id := c.instance()
	ended, _ := c.follow(id, c.shell(id, "exit 7"))
	equal(c, ended.State, sdk.CommandFailed, "the state")
	equal(c, ended.ExitCode, 7, "the exit code")
}

// "Stream is Stdout or Stderr." (CommandOutput)
func commandStreams(c *scene) {
	id := c.instance()
	_, out := c.follow(id, c.shell(id, "echo out; echo err >&2"))
	equal(c, out.stdout.String(), "out\n", "stdout")
	equal(c, out.stderr.String(), "err\n", "stderr")
}

// "Argv is the program, found along PATH, and its arguments." (CommandRequest) No
// shell looks at them.
func commandArguments(c *scene) {
	id := c.instance()
	arguments := []string{"a b", "", "$HOME", "'\"`;|&", "*", "Grüße\n世界", "-n"}
	ended, out := c.follow(id, c.startCommand(id, append([]string{"printf", "<%s>"}, arguments...)))
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), "<"+strings.Join(arguments, "><")+">", "the arguments as the program sees them")
}

// "with CodeInvalidRequest and the field "argv" when there is no such program"
// (Commands)
func commandUnknownProgram(c *scene) {
	_, err := c.StartCommand(c.ctx, sdk.CommandRequest{InstanceID: c.instance(), Argv: []string{"no-such-program-of-any-system"}, KeepOutput: 1})
	c.refusedField(err, "StartCommand of a program that is not there", sdk.CodeInvalidRequest, "argv")
}

// "Env is added to the instance's environment. Cwd is a directory inside the
// instance." (CommandRequest)
func commandSurroundings(c *scene) {
	c.someLanguage()
	made := c.createRequest(c.language)
	made.Env = map[string]string{"OF_THE_INSTANCE": "one", "OF_BOTH": "instance"}
	id := c.createWith(made).ID
	_, out := c.follow(id, c.shell(id, `pwd; echo "$OF_THE_INSTANCE $OF_THE_COMMAND $OF_BOTH"`, func(req *sdk.CommandRequest) {
		req.Cwd, req.Env = "/tmp", map[string]string{"OF_THE_COMMAND": "two", "OF_BOTH": "command"}
	}))
	equal(c, out.stdout.String(), "/tmp\none two command\n", "stdout")
}

// "empty for /workspace" (CommandRequest.Cwd): where code runs too.
func commandWorkspace(c *scene) {
	id := c.instance()
	c.succeeded(c.run(id, c.samples.Write))
	_, out := c.follow(id, c.shell(id, "cat providertest.txt; pwd"))
	equal(c, out.stdout.String(), "kept/workspace\n", "stdout")
}

// "programs that outlive a call" (Commands)
func commandGoesOn(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo ready; sleep 600")
	c.reads(id, started, "ready\n")
	list, err := c.ListCommands(c.ctx, id)
	c.must(err, "list the commands")
	c.check(len(list) == 1 && list[0].State == sdk.CommandRunning, "the command does not run any more: %s", shown(list))
}

var errEnough = errors.New("enough was read")

// reads follows a command until it has printed a text.
func (c *scene) reads(instance string, command sdk.Command, want string) {
	out := &commandOutput{}
	err := c.call("ReadCommand", func(ctx context.Context) error {
		_, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: instance, CommandID: command.ID, Follow: true}, func(piece sdk.CommandOutput) error {
			if _ = out.take(piece); strings.Contains(out.stdout.String(), want) {
				return errEnough
			}
			return nil
		})
		return err
	})
	c.check(errors.Is(err, errEnough), "the command did not print %q, but %q: %v", want, out.stdout.String(), err)
}

// "Offsets count all bytes of the stream since the command began."
// (ReadCommandRequest)
func commandOffset(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo 0123456789; echo abc >&2")
	c.follow(id, started)
	out := &commandOutput{}
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, StdoutOffset: 4, StderrOffset: 2}, out.take)
	c.must(err, "read from an offset")
	equal(c, out.stdout.String(), "456789\n", "stdout from byte 4 on")
	equal(c, out.stderr.String(), "c\n", "stderr from byte 2 on")
}

// far is an offset that no output reaches.
const far = math.MaxInt64

// "An offset at or behind the end gives nothing." (ReadCommandRequest)
func commandOffsetBehindEnd(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo 0123456789; echo abc >&2")
	c.follow(id, started)
	for _, offset := range []int64{11, 12, 1 << 20, 1 << 40, far} {
		for _, follow := range []bool{false, true} {
			out := &commandOutput{}
			var ended sdk.Command
			err := c.call("ReadCommand", func(ctx context.Context) (err error) {
				ended, err = c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, StdoutOffset: offset, StderrOffset: offset, Follow: follow}, out.take)
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
	id := c.instance()
	started := c.shell(id, "echo first; read line; echo second", withStdin)
	c.reads(id, started, "first\n")
	now := sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, StdoutOffset: far, StderrOffset: far}
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
	_, err = c.ListCommands(c.ctx, id)
	c.must(err, "list the commands")
	select {
	case e := <-ended:
		ended <- e
		c.fail("a wait for a command that runs ended: %s, %v", shown(e.command), e.err)
	default:
	}
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("\n"), true), "write to the command")
	e := <-ended
	ended <- e
	c.must(e.err, "wait for the end of the command")
	equal(c, e.command.State, sdk.CommandSucceeded, "the state")
}

// "and what comes there later if it is reached" (ReadCommandRequest)
func commandOffsetAhead(c *scene) {
	id := c.instance()
	started := c.shell(id, "read line; echo 0123456789; echo abc >&2", withStdin)
	out := &commandOutput{}
	read := make(chan error, 1)
	ctx, cancel := c.within(callTimeout)
	defer cancel()
	go func() {
		_, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, StdoutOffset: 4, StderrOffset: far, Follow: true}, out.take)
		read <- err
	}()
	_, err := c.ListCommands(c.ctx, id)
	c.must(err, "list the commands")
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("\n"), true), "write to the command")
	c.must(<-read, "read from an offset that was not reached yet")
	equal(c, out.stdout.String(), "456789\n", "stdout from byte 4 on")
	equal(c, out.stderr.String(), "", "stderr")
}

// "and with Follow what it will print" (Commands.ReadCommand)
func commandFollow(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo first; read line; echo second $line", func(req *sdk.CommandRequest) { req.Stdin = true })
	c.reads(id, started, "first\n")
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("go\n"), false), "write to the command")
	_, out := c.follow(id, started)
	equal(c, out.stdout.String(), "first\nsecond go\n", "stdout")
}

// "To stop reading does not stop the command." (Commands.ReadCommand)
func commandStopReading(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo first; read line; echo second", func(req *sdk.CommandRequest) { req.Stdin = true })
	ctx, cancel := context.WithCancel(c.ctx)
	_, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error {
		cancel()
		return nil
	})
	cancel()
	c.check(isContextEnd(err), "reading that was cancelled gave %v", err)
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("\n"), true), "write to the command")
	ended, out := c.follow(id, started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), "first\nsecond\n", "stdout")
}

// "KeepOutput is how many bytes of each stream are kept for readers, the latest
// ones." (CommandRequest) "It is above the end of the last piece where bytes were
// not kept." (CommandOutput.Offset)
func commandKeepsLatest(c *scene) {
	const keep, lines = 1000, 2000
	id := c.instance()
	started := c.shell(id, fmt.Sprintf(`i=1; while [ $i -le %d ]; do echo "line $i"; i=$((i+1)); done`, lines), func(req *sdk.CommandRequest) { req.KeepOutput = keep })
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	ended, _ := c.follow(id, started)
	equal(c, ended.StdoutBytes, int64(want.Len()), "the bytes of stdout, kept or not")
	var kept []byte
	first := int64(-1)
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID}, func(piece sdk.CommandOutput) error {
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
	id := c.instance()
	started := c.startCommand(id, []string{"cat"}, withStdin)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	c.must(c.WriteCommand(c.ctx, id, started.ID, every, false), "write")
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("end"), true), "write the end")
	ended, out := c.follow(id, started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	equal(c, out.stdout.String(), string(every)+"end", "what the command read")
}

// "else it is empty" (CommandRequest.Stdin)
func commandNoStdin(c *scene) {
	id := c.instance()
	started := c.startCommand(id, []string{"cat"})
	_, out := c.follow(id, started)
	equal(c, out.stdout.String(), "", "what the command read")
}

// "CodeConflict means that it is closed or was never open." (Commands.WriteCommand)
func commandClosedStdin(c *scene) {
	id := c.instance()
	never := c.shell(id, "sleep 600")
	c.refused(c.WriteCommand(c.ctx, id, never.ID, []byte("x"), false), "a write to input that was never open", sdk.CodeConflict)
	closed := c.shell(id, "cat; sleep 600", withStdin)
	c.must(c.WriteCommand(c.ctx, id, closed.ID, nil, true), "close the input")
	c.refused(c.WriteCommand(c.ctx, id, closed.ID, []byte("x"), false), "a write to input that is closed", sdk.CodeConflict)
}

func (c *scene) signal(instance string, command sdk.Command, name string) {
	c.must(c.call("SignalCommand", func(ctx context.Context) error { return c.SignalCommand(ctx, instance, command.ID, name) }), "send %s", name)
}

// "SignalCommand sends a signal, by its POSIX name such as SIGTERM, to every
// process of the command." (Commands)
func commandSignal(c *scene) {
	id := c.instance()
	started := c.shell(id, "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done")
	c.reads(id, started, "ready\n")
	c.signal(id, started, "SIGUSR1")
	c.reads(id, started, "usr1\n")
	c.signal(id, started, "SIGTERM")
	ended, _ := c.follow(id, started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGTERM ended")
	equal(c, ended.ExitCode, 128+15, "the exit code")
}

// "SIGKILL always ends it." (Commands.SignalCommand) "All processes that it started
// end with it." (Commands)
func commandKill(c *scene) {
	id := c.instance()
	started := c.shell(id, c.bashTicker("trap '' TERM INT HUP; "))
	c.reads(id, started, "ready\n")
	c.signal(id, started, "SIGKILL")
	ended, _ := c.follow(id, started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGKILL ended")
	c.fileIsQuiet(id, "SIGKILL")
}

// bashTicker is a line for sh that starts a process which appends to the file
// dots, and waits.
func (c *scene) bashTicker(before string) string {
	return before + "(while :; do echo . >> dots; sleep 0.05; done) & while [ ! -s dots ]; do sleep 0.02; done; echo ready; sleep 600"
}

// fileIsQuiet checks that the file dots does not grow.
func (c *scene) fileIsQuiet(id, after string) {
	_, out := c.follow(id, c.shell(id, "wc -c < dots; sleep 0.5; wc -c < dots"))
	sizes := strings.Fields(out.stdout.String())
	c.check(len(sizes) == 2, "the sizes of a file are %q", out.stdout.String())
	c.check(sizes[0] == sizes[1], "a process that the command started still runs after %s", after)
}

// "A command that has ended gives CodeConflict." (Commands.SignalCommand)
func commandSignalAfterEnd(c *scene) {
	id := c.instance()
	started := c.shell(id, ":")
	c.follow(id, started)
	c.refused(c.SignalCommand(c.ctx, id, started.ID, "SIGTERM"), "a signal to a command that has ended", sdk.CodeConflict)
}

// "Timeout after which the command is killed" (CommandRequest)
func commandTimeout(c *scene) {
	id := c.instance()
	started := c.shell(id, c.bashTicker("trap '' TERM INT HUP; "), func(req *sdk.CommandRequest) { req.Timeout = c.suite.within(time.Second) })
	ended, _ := c.follow(id, started)
	equal(c, ended.State, sdk.CommandTimeout, "the state of a command that ran into its timeout")
	c.fileIsQuiet(id, "the timeout")
}

// "Commands that have ended stay known for a while, at least the last ten of an
// instance." (Commands)
func commandsAreListed(c *scene) {
	id := c.instance()
	want := map[string]sdk.CommandState{}
	for range 9 {
		started := c.shell(id, ":")
		c.follow(id, started)
		want[started.ID] = sdk.CommandSucceeded
	}
	want[c.shell(id, "sleep 600").ID] = sdk.CommandRunning
	equal(c, len(want), 10, "the number of different IDs of ten commands")
	list, err := c.ListCommands(c.ctx, id)
	c.must(err, "list the commands")
	got := map[string]sdk.CommandState{}
	for _, l := range list {
		got[l.ID] = l.State
	}
	equal(c, got, want, "the states of the commands")
}

// "or its instance ends" (Commands)
func commandEndsWithInstance(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo ready; sleep 600")
	c.reads(id, started, "ready\n")
	c.destroy(id)
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID}, func(sdk.CommandOutput) error { return nil })
	c.refused(err, "ReadCommand of a destroyed instance", sdk.CodeNotFound)
}

// "Terminal gives the command a terminal instead of pipes: its output is all
// Stdout, and standard input is open." (CommandRequest) "A provider without
// terminals refuses CommandRequest.Terminal with CodeNotSupported." (Commands)
func commandTerminal(c *scene) {
	id := c.instance()
	req := sdk.CommandRequest{
		InstanceID: id, KeepOutput: 1 << 20, Terminal: &sdk.TerminalSize{Rows: 33, Columns: 77},
		Argv: []string{"sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; read line; echo "got $line" >&2; stty size`},
	}
	started, err := c.StartCommand(c.ctx, req)
	if sdk.CodeOf(err) == sdk.CodeNotSupported { // a promise that is kept
		list, err := c.ListCommands(c.ctx, id)
		c.must(err, "list commands")
		equal(c, len(list), 0, "the number of commands after one was refused")
		return
	}
	c.must(err, "start a command with a terminal")
	c.reads(id, started, "33 77")
	c.must(c.ResizeCommand(c.ctx, id, started.ID, sdk.TerminalSize{Rows: 44, Columns: 88}), "resize the terminal")
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("line\n"), false), "write to the terminal")
	ended, out := c.follow(id, started)
	equal(c, ended.State, sdk.CommandSucceeded, "the state")
	c.check(ended.Terminal, "the command does not say that it has a terminal")
	for _, want := range []string{"terminal", "got line", "44 88"} {
		c.check(strings.Contains(out.stdout.String(), want), "the terminal shows %q, without %q", out.stdout.String(), want)
	}
	equal(c, out.stderr.String(), "", "stderr of a command with a terminal")
}

// "All methods return CodeNotFound for an unknown instance or command." (Commands)
func commandUnknown(c *scene) {
	id := c.instance()
	_, err := c.ReadCommand(c.ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: "unknown"}, func(sdk.CommandOutput) error { return nil })
	c.refused(err, "ReadCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.WriteCommand(c.ctx, id, "unknown", nil, true), "WriteCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.SignalCommand(c.ctx, id, "unknown", "SIGTERM"), "SignalCommand of an unknown command", sdk.CodeNotFound)
	c.refused(c.ResizeCommand(c.ctx, id, "unknown", sdk.TerminalSize{Rows: 1, Columns: 1}), "ResizeCommand of an unknown command", sdk.CodeNotFound)
}
