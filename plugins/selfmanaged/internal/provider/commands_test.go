package provider

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// startCommand starts a command and expects it to run.
func startCommand(t *testing.T, p testProvider, req sdk.CommandRequest) sdk.Command {
	t.Helper()
	if req.KeepOutput == 0 {
		req.KeepOutput = 1 << 20
	}
	c, err := p.StartCommand(t.Context(), req)
	assert.NilError(t, err)
	return c
}

func shell(id, line string) sdk.CommandRequest {
	return sdk.CommandRequest{InstanceID: id, Argv: []string{"bash", "-c", line}}
}

// printed is what a command printed, in all.
type printed struct {
	sdk.Command
	stdout, stderr string
}

// await reads a command to its end.
func await(t *testing.T, p testProvider, id, command string) printed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out [2]bytes.Buffer
	c, err := p.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(o sdk.CommandOutput) error {
		i := 0
		if o.Stream == sdk.Stderr {
			i = 1
		}
		out[i].Write(o.Data)
		return nil
	})
	assert.NilError(t, err, "after %q", out[0].String())
	return printed{c, out[0].String(), out[1].String()}
}

// runCommand starts a command and reads it to its end.
func runCommand(t *testing.T, p testProvider, req sdk.CommandRequest) printed {
	t.Helper()
	return await(t, p, req.InstanceID, startCommand(t, p, req).ID)
}

// seen is what a command has printed so far.
func seen(t *testing.T, p testProvider, id, command string) string {
	t.Helper()
	var out bytes.Buffer
	_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command}, func(o sdk.CommandOutput) error {
		out.Write(o.Data)
		return nil
	})
	assert.NilError(t, err)
	return out.String()
}

// waitFor waits until a command has printed a text.
func waitFor(t *testing.T, p testProvider, id, command, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var out bytes.Buffer
	found := errors.New("found")
	_, err := p.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(o sdk.CommandOutput) error {
		if out.Write(o.Data); bytes.Contains(out.Bytes(), []byte(text)) {
			return found
		}
		return nil
	})
	assert.ErrorIs(t, err, found, "no %q in %q", text, out.String())
}

func TestCommands(t *testing.T) { inTheGuest(t, testCommands) }

func testCommands(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templateBash, Env: map[string]string{"A": "instance", "B": "instance"}})
	assert.NilError(t, err)
	id := i.ID
	assert.NilError(t, runCommand(t, p, shell(id, "mkdir -p sub bin; printf '#!/bin/sh\necho mine $1\n' > bin/tool; chmod +x bin/tool; touch bin/plain; mkdir -m 700 closed; chmod 000 closed")).err())

	for _, c := range []struct {
		name           string
		req            sdk.CommandRequest
		state          sdk.CommandState
		exit           int
		stdout, stderr string
	}{
		{"a program and its arguments", sdk.CommandRequest{Argv: []string{"printf", "%s-", "a b", "$HOME", ""}}, "succeeded", 0, "a b-$HOME--", ""},
		{"both streams", shell("", "echo out; echo err >&2"), "succeeded", 0, "out\n", "err\n"},
		{"an exit code", shell("", "exit 3"), "failed", 3, "", ""},
		{"its own signal", shell("", "kill -TERM $$"), "failed", 143, "", ""},
		{"variables over those of the instance", sdk.CommandRequest{Argv: []string{"sh", "-c", "echo $A $B $C $USER"}, Env: map[string]string{"B": "b", "C": "c"}}, "succeeded", 0, "instance b c sandbox\n", ""},
		{"PATH of the request finds the program", sdk.CommandRequest{Argv: []string{"tool", "x"}, Env: map[string]string{"PATH": "/nowhere:/workspace/bin:/usr/bin:/bin"}}, "succeeded", 0, "mine x\n", ""},
		{"a directory", sdk.CommandRequest{Argv: []string{"pwd"}, Cwd: "/tmp"}, "succeeded", 0, "/tmp\n", ""},
		{"a relative directory is in the workspace", sdk.CommandRequest{Argv: []string{"pwd"}, Cwd: "sub"}, "succeeded", 0, "/workspace/sub\n", ""},
		{"a program by its relative path", sdk.CommandRequest{Argv: []string{"bin/tool", "y"}}, "succeeded", 0, "mine y\n", ""},
		{"standard input is empty", sdk.CommandRequest{Argv: []string{"cat"}}, "succeeded", 0, "", ""},
		{"it is not root, and alone", shell("", "id -u; cd /proc; set -- [0-9]*; echo $#; ls /proc/1/fd"), "failed", 2, "1000\n2\n", "ls: cannot open directory '/proc/1/fd': Permission denied\n"},
		{"no descriptor but three", shell("", "ls /proc/self/fd | wc -l"), "succeeded", 0, "4\n", ""},
		{"a time limit", sdk.CommandRequest{Argv: []string{"sleep", "1000"}, Timeout: 200 * time.Millisecond}, "timeout", 137, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.InstanceID = id
			got := runCommand(t, p, c.req)
			assert.Check(t, is.Equal(got.State, c.state))
			assert.Check(t, is.Equal(got.ExitCode, c.exit))
			assert.Check(t, is.Equal(got.stdout, c.stdout))
			assert.Check(t, is.Equal(got.stderr, c.stderr))
			assert.Check(t, is.DeepEqual(got.Argv, c.req.Argv))
			assert.Check(t, is.Equal(got.StdoutBytes, int64(len(c.stdout))))
			assert.Check(t, is.Equal(got.StderrBytes, int64(len(c.stderr))))
			assert.Check(t, !got.EndedAt.Before(got.StartedAt))
		})
	}

	for _, c := range []struct {
		name        string
		req         sdk.CommandRequest
		field, says string
	}{
		{"no such program", sdk.CommandRequest{Argv: []string{"no-such-program"}}, "argv", `there is no program "no-such-program" along PATH`},
		{"an empty name", sdk.CommandRequest{Argv: []string{""}}, "argv", "must name a program"},
		{"no such file", sdk.CommandRequest{Argv: []string{"./missing"}}, "argv", `"./missing" cannot be started: no such file or directory`},
		{"a directory", sdk.CommandRequest{Argv: []string{"./sub"}}, "argv", `"./sub" cannot be started: is a directory`},
		{"a file that is no program", sdk.CommandRequest{Argv: []string{"./bin/plain"}}, "argv", `"./bin/plain" cannot be started: permission denied`},
		{"a NUL", sdk.CommandRequest{Argv: []string{"echo", "a\x00b"}}, "argv", "holds a NUL character, which no argument can"},
		{"too much", sdk.CommandRequest{Argv: []string{"echo", strings.Repeat("x", 128<<10)}}, "argv", "is longer than 131072 bytes; put it into a file"},
		{"no such directory", sdk.CommandRequest{Argv: []string{"pwd"}, Cwd: "/missing"}, "cwd", `"/missing" cannot be entered: no such file or directory`},
		{"a directory that the user may not enter", sdk.CommandRequest{Argv: []string{"pwd"}, Cwd: "closed"}, "cwd", `"/workspace/closed" cannot be entered: permission denied`},
		{"a directory of root", sdk.CommandRequest{Argv: []string{"pwd"}, Cwd: "/root"}, "cwd", ""},
	} {
		t.Run("refused: "+c.name, func(t *testing.T) {
			c.req.InstanceID, c.req.KeepOutput = id, 1
			_, err := p.StartCommand(t.Context(), c.req)
			refused, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Check(t, is.Equal(refused.Code, sdk.CodeInvalidRequest))
			assert.Check(t, is.Equal(refused.Field, c.field))
			if c.says != "" {
				assert.Check(t, is.Equal(refused.Message, c.says))
			}
		})
	}
}

func (p printed) err() error {
	if p.State != sdk.CommandSucceeded {
		return fmt.Errorf("%s, exit code %d: %s", p.State, p.ExitCode, p.stderr)
	}
	return nil
}

func TestSignals(t *testing.T) { inTheGuest(t, testSignals) }

func testSignals(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	for _, c := range []struct {
		name, line, signal string
		state              sdk.CommandState
		exit               int
		stdout             string
	}{
		{"ends it", "echo ready; sleep 1000; echo no", "SIGTERM", "cancelled", 143, "ready\n"},
		{"is handled", "trap 'echo bye; exit 4' INT; echo ready; while :; do sleep 0.05; done", "SIGINT", "failed", 4, "ready\nbye\n"},
		{"is handled well", "trap 'echo bye; exit 0' USR1; echo ready; while :; do sleep 0.05; done", "SIGUSR1", "succeeded", 0, "ready\nbye\n"},
		{"cannot be ignored if it is SIGKILL", "trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done", "SIGKILL", "cancelled", 137, "ready\n"},
		{
			"reaches those that fled", "(setsid bash -c 'trap \"echo fled; touch fled; exit\" TERM; echo ready; while :; do sleep 0.05; done' &) ; trap 'until [ -e fled ]; do sleep 0.05; done; exit 0' TERM; while :; do sleep 0.05; done",
			"SIGTERM", "succeeded", 0, "ready\nfled\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := startCommand(t, p, shell(id, c.line)).ID
			waitFor(t, p, id, command, "ready\n")
			assert.NilError(t, p.SignalCommand(t.Context(), id, command, c.signal))
			got := await(t, p, id, command)
			assert.Check(t, is.Equal(got.State, c.state))
			assert.Check(t, is.Equal(got.ExitCode, c.exit))
			assert.Check(t, is.Equal(got.stdout, c.stdout))
			assert.Check(t, is.ErrorIs(p.SignalCommand(t.Context(), id, command, c.signal), &sdk.Error{Code: sdk.CodeConflict}), "it has ended")
		})
	}
	command := startCommand(t, p, shell(id, "echo ready; sleep 1000")).ID
	waitFor(t, p, id, command, "ready\n")
	assert.ErrorContains(t, p.SignalCommand(t.Context(), id, command, "TERMINATE"), "SB010: signal")
	assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGSTOP"))
	assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"), "of what is stopped")
	assert.Equal(t, await(t, p, id, command).State, sdk.CommandCancelled)
}

// Whatever a program does to live on, nothing does.
func TestEverythingEndsWithItsCommand(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testEverythingEndsWithItsCommand)
}

func testEverythingEndsWithItsCommand(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	const beat = `while :; do echo x >> /workspace/beat; sleep 0.02; done`
	for name, line := range map[string]string{
		"a child":         "(" + beat + ") &",
		"setsid":          "setsid bash -c '" + beat + "' &",
		"nohup":           "nohup bash -c '" + beat + "' > /dev/null 2>&1 &",
		"a double fork":   "( (setsid bash -c '" + beat + "' < /dev/null > /dev/null 2>&1 &) & )",
		"ignored signals": "(trap '' HUP TERM INT; " + beat + ") &",
	} {
		for _, end := range []string{"by itself", "by a signal", "at its time limit"} {
			t.Run(name+" ends when the command ends "+end, func(t *testing.T) {
				assert.NilError(t, runCommand(t, p, shell(id, "rm -f beat")).err())
				req := shell(id, line+"\nwhile ! test -s beat; do sleep 0.02; done; echo ready; exec "+map[string]string{"by itself": "true"}[end]+"sleep 1000")
				if end == "by itself" {
					req = shell(id, line+"\nwhile ! test -s beat; do sleep 0.02; done")
				}
				switch end {
				case "by itself":
					await(t, p, id, startCommand(t, p, req).ID)
				case "by a signal":
					command := startCommand(t, p, req).ID
					waitFor(t, p, id, command, "ready\n")
					assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"))
					await(t, p, id, command)
				case "at its time limit":
					untilItShows(t, 500*time.Millisecond, func(limit time.Duration) string {
						req.Timeout = limit
						return runCommand(t, p, req).stdout
					})
				}
				// It has ended when it says so: there is nothing to wait for.
				got := runCommand(t, p, shell(id, "stat -c %s beat; sleep 0.2; stat -c %s beat"))
				sizes := strings.Fields(got.stdout)
				assert.Assert(t, is.Len(sizes, 2), "%+v", got)
				assert.Check(t, is.Equal(sizes[0], sizes[1]), "something still writes")
			})
		}
	}
}

func TestOutputOfCommands(t *testing.T) { inTheGuest(t, testOutputOfCommands) }

func testOutputOfCommands(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)

	t.Run("readers come and go, and each gets all", func(t *testing.T) {
		req := shell(id, "while read -r line; do echo \"$line\"; done")
		req.Stdin = true
		command := startCommand(t, p, req).ID
		outputs := make(chan string, 3)
		for range 3 {
			go func() {
				var out bytes.Buffer
				_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(o sdk.CommandOutput) error {
					out.Write(o.Data)
					return nil
				})
				assert.Check(t, err)
				outputs <- out.String()
			}()
		}
		var want strings.Builder
		for n := range 100 {
			line := fmt.Sprintf("line %d\n", n)
			want.WriteString(line)
			assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte(line), false))
		}
		leaving, leave := context.WithCancel(t.Context())
		_, err := p.ReadCommand(leaving, sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(sdk.CommandOutput) error {
			leave()
			return nil
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, nil, true))
		for range 3 {
			assert.Check(t, is.Equal(<-outputs, want.String()))
		}
		assert.Check(t, is.Equal(await(t, p, id, command).stdout, want.String()), "after its end too")
	})

	t.Run("without readers nothing waits, and the last part is kept", func(t *testing.T) {
		req := shell(id, "seq 1 200000; echo end >&2")
		req.KeepOutput = 64 << 10
		command := startCommand(t, p, req).ID
		waitFor(t, p, id, command, "end\n")
		all := runCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"seq", "1", "200000"}, KeepOutput: 8 << 20}).stdout
		assert.Equal(t, len(all), 1288895)
		var offsets []int64
		var out bytes.Buffer
		c, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, StderrOffset: 100}, func(o sdk.CommandOutput) error {
			assert.Check(t, is.Equal(o.Stream, sdk.Stdout))
			offsets = append(offsets, o.Offset)
			out.Write(o.Data)
			return nil
		})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(c.State, sdk.CommandSucceeded))
		assert.Check(t, is.Equal(c.StdoutBytes, int64(len(all))))
		assert.Check(t, is.Equal(offsets[0], int64(len(all)-64<<10)), "says what is lost")
		assert.Check(t, out.String() == all[len(all)-64<<10:])
	})

	t.Run("from an offset on", func(t *testing.T) {
		command := startCommand(t, p, shell(id, "printf 0123456789")).ID
		await(t, p, id, command)
		var out bytes.Buffer
		_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, StdoutOffset: 7, Follow: true}, func(o sdk.CommandOutput) error {
			assert.Check(t, is.Equal(o.Offset, int64(7)))
			out.Write(o.Data)
			return nil
		})
		assert.NilError(t, err)
		assert.Equal(t, out.String(), "789")
	})

	t.Run("a pipe that somebody else holds keeps nobody", func(t *testing.T) {
		const give = `import socket, sys, array, os, time
s = socket.socket(socket.AF_UNIX); s.connect("/workspace/take.sock")
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
s.recv(1); print("given")`
		const take = `import socket, array
l = socket.socket(socket.AF_UNIX); l.bind("/workspace/take.sock"); l.listen(); print("ready", flush=True)
c, _ = l.accept(); _, fds, _, _ = c.recvmsg(1, 100); c.send(b"x"); print("taken", flush=True)
import time; time.sleep(1000)`
		taker := startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", take}}).ID
		waitFor(t, p, id, taker, "ready")
		got := runCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", give}})
		assert.Check(t, is.Equal(got.stdout, "given\n"), got.stderr)
		assert.NilError(t, p.SignalCommand(t.Context(), id, taker, "SIGKILL"))
	})
}

func TestStandardInputOfCommands(t *testing.T) { inTheGuest(t, testStandardInputOfCommands) }

func testStandardInputOfCommands(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	start := func(argv ...string) string {
		return startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: argv, Stdin: true}).ID
	}
	conflict := &sdk.Error{Code: sdk.CodeConflict}

	t.Run("ends when it is told to", func(t *testing.T) {
		command := start("sha256sum")
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, bytes.Repeat([]byte("x"), 1<<20), false))
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte("end"), true))
		assert.Check(t, is.ErrorIs(p.WriteCommand(t.Context(), id, command, []byte("more"), false), conflict))
		assert.Equal(t, await(t, p, id, command).stdout, fmt.Sprintf("%x  -\n", sha256.Sum256(append(bytes.Repeat([]byte("x"), 1<<20), "end"...))))
	})
	t.Run("waits for a program that does not read, as long as the caller", func(t *testing.T) {
		command := start("sleep", "1000")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := p.WriteCommand(ctx, id, command, make([]byte, 1<<20), false)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		waiting := make(chan error, 1)
		go func() { waiting <- p.WriteCommand(t.Context(), id, command, make([]byte, 1<<20), false) }()
		assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGTERM"))
		assert.ErrorIs(t, <-waiting, conflict, "its end ends the wait")
	})
	t.Run("goes on after a caller gave up", func(t *testing.T) {
		assert.NilError(t, runCommand(t, p, shell(id, "mkfifo go")).err())
		command := start("bash", "-c", "read -r go < go; tail -c 4")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, p.WriteCommand(ctx, id, command, make([]byte, 8<<20), false), context.DeadlineExceeded)
		assert.NilError(t, runCommand(t, p, shell(id, "echo go > go")).err())
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte("then"), true))
		assert.Equal(t, await(t, p, id, command).stdout, "then")
	})
	t.Run("was never open", func(t *testing.T) {
		command := startCommand(t, p, shell(id, "sleep 1000")).ID
		assert.Check(t, is.ErrorIs(p.WriteCommand(t.Context(), id, command, []byte("x"), false), conflict))
		assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"))
	})
	t.Run("was closed by the program", func(t *testing.T) {
		command := start("bash", "-c", "exec <&-; echo closed; sleep 1000")
		waitFor(t, p, id, command, "closed")
		assert.Check(t, is.ErrorIs(p.WriteCommand(t.Context(), id, command, []byte("x"), false), conflict))
		assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"))
	})
}

func TestTerminals(t *testing.T) { inTheGuest(t, testTerminals) }

func testTerminals(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	start := func(argv ...string) string {
		return startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: argv, Terminal: &sdk.TerminalSize{Rows: 24, Columns: 80}}).ID
	}
	write := func(t *testing.T, command, text string) {
		t.Helper()
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte(text), false))
	}
	t.Run("a shell talks to it", func(t *testing.T) {
		command := start("bash", "--norc", "--noediting", "-i") // readline changes modes, and loses what is typed meanwhile
		write(t, command, "stty size; echo $TERM; tty; test -r $(tty) && echo r\"w\"; : > $(tty) && echo re\"opened\"\n")
		waitFor(t, p, id, command, "24 80\r\nxterm-256color\r\n/dev/pts/")
		waitFor(t, p, id, command, "reopened\r\n")
		write(t, command, "trap 'echo \"new size\" $(stty size)' WINCH; echo se\"t\"\n")
		waitFor(t, p, id, command, "set\r\n")
		assert.NilError(t, p.ResizeCommand(t.Context(), id, command, sdk.TerminalSize{Rows: 40, Columns: 132}))
		write(t, command, "\n") // bash runs traps when it has something to do
		waitFor(t, p, id, command, "new size 40 132\r\n")
		// It tells from the foreground, which a program gets a moment after its start.
		write(t, command, "bash -c 'echo be\"gun\"; exec sleep 1000'\n")
		waitFor(t, p, id, command, "begun\r\n")
		write(t, command, "\x03")
		write(t, command, "echo next $?\n")
		waitFor(t, p, id, command, "next 130\r\n")
		write(t, command, "exit 7\n")
		got := await(t, p, id, command)
		assert.Check(t, is.Equal(got.State, sdk.CommandFailed))
		assert.Check(t, is.Equal(got.ExitCode, 7))
		assert.Check(t, is.Equal(got.stderr, ""))
		assert.Check(t, got.Terminal && got.Stdin)
	})
	t.Run("the end of input is typed", func(t *testing.T) {
		command := start("cat")
		write(t, command, "line\n")
		waitFor(t, p, id, command, "line\r\nline\r\n")
		assert.NilError(t, p.WriteCommand(t.Context(), id, command, nil, true))
		assert.Equal(t, await(t, p, id, command).State, sdk.CommandSucceeded)
	})
	t.Run("all that was printed is there", func(t *testing.T) {
		command := start("seq", "1", "20000")
		got := await(t, p, id, command)
		assert.Equal(t, len(got.stdout), 128894)
		assert.Assert(t, strings.HasSuffix(got.stdout, "\r\n20000\r\n"))
	})
	t.Run("what nobody reads does not hold up a writer for ever", func(t *testing.T) {
		command := start("bash", "-c", "stty raw -echo; echo ready; sleep 1000")
		waitFor(t, p, id, command, "ready")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, p.WriteCommand(ctx, id, command, make([]byte, 1<<20), false), context.DeadlineExceeded)
		assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"))
	})
	t.Run("there is none", func(t *testing.T) {
		command := startCommand(t, p, shell(id, "sleep 1000")).ID
		assert.ErrorIs(t, p.ResizeCommand(t.Context(), id, command, sdk.TerminalSize{Rows: 1, Columns: 1}), &sdk.Error{Code: sdk.CodeConflict})
		assert.NilError(t, p.SignalCommand(t.Context(), id, command, "SIGKILL"))
	})
}

func TestCommandsAreListedAndBounded(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testCommandsAreListedAndBounded)
}

func testCommandsAreListedAndBounded(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	list := func() []sdk.Command {
		t.Helper()
		commands, err := p.ListCommands(t.Context(), id)
		assert.NilError(t, err)
		return commands
	}
	assert.Equal(t, len(list()), 0)
	var ids []string
	for n := range 12 {
		ids = append(ids, runCommand(t, p, shell(id, fmt.Sprintf("echo %d", n))).ID)
	}
	var listed []string
	for _, c := range list() {
		assert.Check(t, is.Equal(c.State, sdk.CommandSucceeded))
		listed = append(listed, c.ID)
	}
	assert.DeepEqual(t, listed, ids)
	assert.Equal(t, seen(t, p, id, ids[0]), "0\n")

	var running []string
	for {
		c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"sleep", "1000"}, KeepOutput: 1})
		if err != nil {
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
			assert.ErrorContains(t, err, "32 commands run in this instance")
			break
		}
		running = append(running, c.ID)
	}
	assert.Equal(t, len(running), 32)
	assert.NilError(t, p.SignalCommand(t.Context(), id, running[0], "SIGTERM"))
	await(t, p, id, running[0])
	poll.WaitOn(t, func(poll.LogT) poll.Result { // a place is free a moment after the end
		_, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"true"}, KeepOutput: 1})
		return poll.Compare(is.Nil(err))
	}, poll.WithTimeout(2*time.Minute))
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo still"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "still\n", "beside so many commands")
}

func TestUnknownCommandsAreNotFound(t *testing.T) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	for _, names := range [][2]string{{id, "c-1"}, {"x", "c-1"}, {id, ""}} {
		_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: names[0], CommandID: names[1]}, nil)
		errs := []error{
			err,
			p.WriteCommand(t.Context(), names[0], names[1], nil, true),
			p.ResizeCommand(t.Context(), names[0], names[1], sdk.TerminalSize{}),
			p.SignalCommand(t.Context(), names[0], names[1], "SIGTERM"),
		}
		for _, err := range errs {
			assert.Check(t, is.ErrorIs(err, &sdk.Error{Code: sdk.CodeNotFound}))
		}
	}
	_, err := p.ListCommands(t.Context(), "x")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestACommandThatTakesTooMuchMemoryIsKilled(t *testing.T) {
	p := newProvider(t, map[string]any{"memory_mb": 128})
	id := create(t, p, templatePython)
	got := runCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-c", overrun(p)}})
	assert.Check(t, is.Equal(got.State, sdk.CommandOutOfMemory))
	assert.Check(t, is.Equal(got.ExitCode, 137))
	assert.Equal(t, runCommand(t, p, shell(id, "echo still")).stdout, "still\n")
}

func TestCommandsEndWithTheirInstance(t *testing.T) {
	onEachRuntime(t, testCommandsEndWithTheirInstance)
}

func testCommandsEndWithTheirInstance(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templateBash)
	command := startCommand(t, p, shell(id, "setsid sleep 1000 & echo ready; sleep 1000")).ID
	following := make(chan error, 1)
	reading := make(chan struct{})
	go func() {
		_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(sdk.CommandOutput) error {
			close(reading)
			return nil
		})
		following <- err
	}()
	<-reading
	assert.NilError(t, p.Destroy(t.Context(), id))
	assert.ErrorIs(t, <-following, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestCommandsStandStillWithTheirInstance(t *testing.T) {
	onEachRuntime(t, testCommandsStandStillWithTheirInstance)
}

func testCommandsStandStillWithTheirInstance(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, map[string]any{"pool_size": 1})
	id := create(t, p, templateBash)
	req := shell(id, "while read -r x; do echo got $x; done")
	req.Stdin = true
	command := startCommand(t, p, req).ID
	assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte("one\n"), false))
	waitFor(t, p, id, command, "got one\n")
	following := make(chan string, 1)
	reading := make(chan struct{})
	go func() {
		var out bytes.Buffer
		_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command, Follow: true}, func(o sdk.CommandOutput) error {
			if out.Len() == 0 {
				close(reading)
			}
			out.Write(o.Data)
			return nil
		})
		assert.Check(t, err)
		following <- out.String()
	}()
	<-reading

	assert.NilError(t, p.Pause(t.Context(), id), "a command does not keep it from being paused, nor do its readers")
	paused := &sdk.Error{Code: sdk.CodeConflict}
	_, err := p.StartCommand(t.Context(), shell(id, "true"))
	assert.Check(t, is.ErrorIs(err, paused))
	_, err = p.ListCommands(t.Context(), id)
	assert.Check(t, is.ErrorIs(err, paused))
	_, err = p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: command}, nil)
	assert.Check(t, is.ErrorIs(err, paused))
	assert.Check(t, is.ErrorIs(p.WriteCommand(t.Context(), id, command, []byte("x"), false), paused))
	assert.Check(t, is.ErrorIs(p.SignalCommand(t.Context(), id, command, "SIGTERM"), paused))

	assert.NilError(t, p.Resume(t.Context(), id))
	assert.NilError(t, p.WriteCommand(t.Context(), id, command, []byte("two\n"), true))
	assert.Equal(t, <-following, "got one\ngot two\n")
}

func TestATerminalIsForItsProgramAlone(t *testing.T) { inTheGuest(t, testTerminalsAreApart) }

func testTerminalsAreApart(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	size := &sdk.TerminalSize{Rows: 24, Columns: 80}
	shell := startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"bash", "-c", "stty -echo; tty; stty size; read password; echo got $password > $(tty); echo ended"}, Terminal: size}).ID
	waitFor(t, p, id, shell, "24 80\r\n")
	// What it uses itself, it has: its own name, and terminals that it makes.
	const look = `
import glob, os, pty
others = []
for path in sorted(glob.glob("/dev/pts/*")):
    if path != "/dev/pts/ptmx":
        others.append(path)
print("others", others)
master, slave = pty.openpty()
os.write(slave, b"own")
print(os.ttyname(slave), os.read(master, 10).decode())
`
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: look})
	assert.NilError(t, err)
	assert.Equal(t, o.stdout, "others []\n/dev/pts/0 own\n", o.stderr)
	other := await(t, p, id, startCommand(t, p, sdk.CommandRequest{InstanceID: id, Argv: []string{"bash", "-c", "tty; ls -1 /dev/pts; echo forged > /dev/pts/0; true < /dev/tty && echo controls"}, Terminal: size}).ID)
	assert.Equal(t, strings.ReplaceAll(other.stdout, "\r", ""), "/dev/pts/0\n0\nptmx\nforged\ncontrols\n")
	assert.NilError(t, p.WriteCommand(t.Context(), id, shell, []byte("secret\n"), false))
	got := await(t, p, id, shell)
	assert.Equal(t, strings.ReplaceAll(got.stdout, "\r", ""), "/dev/pts/0\n24 80\ngot secret\nended\n")
	assert.Equal(t, got.State, sdk.CommandSucceeded)

	// A program that is not there takes nothing along.
	_, err = p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"/nonexistent"}, Terminal: size, KeepOutput: 1})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}
