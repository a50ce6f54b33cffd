package lending_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// commands calls use with the commands of the instance.
func (f *fixture) commands(t *testing.T, use func(context.Context, lending.Commands) error) error {
	t.Helper()
	return lending.WithCommands(t.Context(), f, acme, f.id, use)
}

func shell(script string) sdk.CommandRequest {
	return sdk.CommandRequest{Argv: []string{"sh", "-c", script}}
}

const (
	// forever is what no test waits for.
	forever = "exec sleep 1000"
	// soon is how long a test waits in vain.
	soon = 10 * time.Millisecond
	// late is long enough for whatever comes.
	late = time.Minute
)

func TestACommandIsRunWithItsInput(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		command, output, err := commands.Run(ctx, shell("cat; echo wrong >&2; exit 3"), []byte("input"))
		assert.NilError(t, err)
		assert.Equal(t, command.State, sdk.CommandFailed)
		assert.Equal(t, command.ExitCode, 3)
		assert.Equal(t, string(output.Stdout.Bytes), "input")
		assert.Equal(t, string(output.Stderr.Bytes), "wrong\n")
		assert.Assert(t, !output.Truncated)
		return nil
	}))
}

func TestOutputOfACommandIsBounded(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		_, output, err := commands.Run(ctx, shell("head -c 3000 /dev/zero"), nil)
		assert.NilError(t, err)
		assert.Assert(t, output.Truncated)
		assert.Assert(t, is.Len(output.Stdout.Bytes, 1<<10))
		return nil
	}))
}

func TestACommandIsBoundedBeforeItIsStarted(t *testing.T) {
	f := start(t)
	f.starting = func() { t.Error("started") }
	for name, run := range map[string]func(context.Context, lending.Commands) error{
		"run": func(ctx context.Context, commands lending.Commands) error {
			_, _, err := commands.Run(ctx, sdk.CommandRequest{}, nil)
			return err
		},
		"started": func(ctx context.Context, commands lending.Commands) error {
			_, err := commands.Start(ctx, sdk.CommandRequest{}, lending.StartOptions{})
			return err
		},
		"waited for": func(ctx context.Context, commands lending.Commands) error {
			req := shell(forever)
			req.Timeout = 1000 * time.Hour
			_, err := commands.Start(ctx, req, lending.StartOptions{WaitedFor: true})
			return err
		},
	} {
		assert.Check(t, is.ErrorIs(f.commands(t, run), &sdk.Error{Code: sdk.CodeInvalidRequest}), name)
	}
}

func TestStandardInputStaysOpenForMore(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		req := shell("cat")
		req.Stdin = true
		command, err := commands.Start(ctx, req, lending.StartOptions{Input: []byte("one ")})
		assert.NilError(t, err)
		more := "two " + strings.Repeat("x", 100_000)
		assert.NilError(t, commands.WriteFrom(ctx, command.ID, strings.NewReader(more), true, late))
		command, err = commands.Wait(ctx, command.ID, late)
		assert.NilError(t, err)
		assert.Equal(t, command.State, sdk.CommandSucceeded)
		assert.Equal(t, command.StdoutBytes, int64(len("one "+more)))
		return nil
	}))
}

func TestInputThatIsNotRead(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		req := shell(forever)
		req.Stdin = true
		command, err := commands.Start(ctx, req, lending.StartOptions{})
		assert.NilError(t, err)
		err = commands.WriteFrom(ctx, command.ID, bytes.NewReader(make([]byte, 1<<20)), false, soon)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
		assert.ErrorContains(t, err, "does not read its standard input")
		return nil
	}))
}

// errBroken is what listeners and bodies fail with here.
var errBroken = errors.New("broken")

func TestAFailureOfTheCallersOwnIsNotTheProviders(t *testing.T) {
	f := start(t)
	var id string
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Start(ctx, shell("echo text; "+forever), lending.StartOptions{})
		id = command.ID
		return err
	}))
	t.Run("what is to be written breaks off", func(t *testing.T) {
		err := f.commands(t, func(ctx context.Context, commands lending.Commands) error {
			return commands.WriteFrom(ctx, id, iotest.ErrReader(errBroken), false, late)
		})
		assert.Equal(t, err, errBroken)
	})
	t.Run("a follower that fails ends the command", func(t *testing.T) {
		err := f.commands(t, func(ctx context.Context, commands lending.Commands) error {
			_, err := commands.Follow(ctx, id, func(sdk.CommandOutput) error { return lending.Unheard{Err: errBroken} })
			return err
		})
		assert.Equal(t, err, errBroken)
		assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
			command, err := commands.Wait(ctx, id, late)
			assert.Equal(t, command.State, sdk.CommandCancelled)
			return err
		}))
	})
}

func TestACommandDoesNotOutliveACallerThatLeavesWhileItStarts(t *testing.T) {
	f := start(t)
	ctx, leave := context.WithCancel(t.Context())
	f.starting = leave
	err := lending.WithCommands(ctx, f, acme, f.id, func(ctx context.Context, commands lending.Commands) error {
		_, err := commands.Start(ctx, shell(forever), lending.StartOptions{})
		return err
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		all, err := commands.List(ctx)
		assert.NilError(t, err)
		assert.Assert(t, is.Len(all, 1))
		command, err := commands.Wait(ctx, all[0].ID, late)
		assert.Equal(t, command.State, sdk.CommandCancelled)
		return err
	}))
}

func TestTheEndOfACommand(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Start(ctx, shell(forever), lending.StartOptions{})
		assert.NilError(t, err)
		command, err = commands.Wait(ctx, command.ID, soon)
		assert.NilError(t, err)
		assert.Equal(t, command.State, sdk.CommandRunning)

		assert.NilError(t, commands.Signal(ctx, command.ID, "SIGTERM"))
		command, err = commands.Wait(ctx, command.ID, late)
		assert.NilError(t, err)
		assert.Equal(t, command.ExitCode, 128+15)
		assert.ErrorIs(t, commands.Signal(ctx, command.ID, "SIGTERM"), &sdk.Error{Code: sdk.CodeConflict})
		assert.NilError(t, commands.Kill(ctx, command.ID), "it does not run, which is all that is wanted")
		assert.NilError(t, commands.Abandon(ctx, command.ID))

		assert.ErrorIs(t, commands.Kill(ctx, "none"), &sdk.Error{Code: sdk.CodeNotFound})
		assert.NilError(t, commands.Abandon(ctx, "none"), "nobody waits for it")
		return nil
	}))
}

func TestOutputIsReadInPages(t *testing.T) {
	f := start(t)
	assert.NilError(t, f.commands(t, func(ctx context.Context, commands lending.Commands) error {
		command, _, err := commands.Run(ctx, shell("printf 0123456789; printf ab >&2"), nil)
		assert.NilError(t, err)
		req, stdout, stderr := sdk.ReadCommandRequest{CommandID: command.ID}, "", ""
		for req.StdoutOffset < command.StdoutBytes || req.StderrOffset < command.StderrBytes {
			shown, page, err := commands.ReadPage(ctx, req, 4)
			assert.NilError(t, err)
			assert.Equal(t, shown.State, sdk.CommandSucceeded)
			assert.Assert(t, len(page.Stdout.Bytes) <= 4)
			assert.Assert(t, page.Stdout.Next() > req.StdoutOffset || page.Stderr.Next() > req.StderrOffset, "a page is a step")
			stdout, stderr = stdout+string(page.Stdout.Bytes), stderr+string(page.Stderr.Bytes)
			req.StdoutOffset, req.StderrOffset = page.Stdout.Next(), page.Stderr.Next()
		}
		assert.Equal(t, stdout, "0123456789")
		assert.Equal(t, stderr, "ab")
		return nil
	}))
}

func TestWhoLooksOnDoesNotHoldUpAStop(t *testing.T) {
	f := start(t)
	looking, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- lending.WatchCommands(t.Context(), f, acme, f.id, func(ctx context.Context, commands lending.Commands) error {
			command, err := commands.Start(ctx, shell(forever), lending.StartOptions{})
			close(looking)
			if err == nil {
				_, err = commands.Read(ctx, sdk.ReadCommandRequest{CommandID: command.ID, Follow: true}, func(sdk.CommandOutput) error { return nil })
			}
			return err
		})
	}()
	<-looking
	ctx, cancel := context.WithTimeout(t.Context(), late)
	defer cancel()
	f.Shutdown(ctx)
	assert.ErrorIs(t, <-ended, &sdk.Error{Code: sdk.CodeUnavailable})
}
