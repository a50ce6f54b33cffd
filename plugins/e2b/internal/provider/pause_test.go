package provider_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// logs is all that a command has printed so far, and its state.
func logs(t *testing.T, p *provider.Provider, id string, c sdk.Command) (string, sdk.Command) {
	t.Helper()
	var text bytes.Buffer
	state, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: c.ID}, func(out sdk.CommandOutput) error {
		text.Write(out.Data)
		return nil
	})
	assert.NilError(t, err)
	return text.String(), state
}

func TestCommandsLiveThroughAPause(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := create(t, p)
	start := func(terminal *sdk.TerminalSize, argv ...string) sdk.Command {
		t.Helper()
		c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: argv, Stdin: terminal == nil, Terminal: terminal, KeepOutput: 1 << 20})
		assert.NilError(t, err)
		return c
	}
	echoes := start(nil, "cat")
	typed := start(&sdk.TerminalSize{Columns: 80, Rows: 24}, "cat")
	ends := start(nil, "/bin/bash", "-c", "read; exit 3")
	signalled := start(nil, "sleep", "98765")
	prints := func(c sdk.Command, want string) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			got, _ := logs(t, p, id, c)
			return poll.Compare(is.Contains(got, want))
		}, poll.WithTimeout(2*time.Minute))
	}
	for _, word := range []string{"one", "two", "three"} {
		for _, c := range []sdk.Command{echoes, typed} {
			assert.NilError(t, p.WriteCommand(t.Context(), id, c.ID, []byte(word+"\n"), false))
			prints(c, word)
		}
		assert.NilError(t, p.Pause(t.Context(), id))
		for _, c := range []sdk.Command{echoes, typed, ends, signalled} {
			_, state := logs(t, p, id, c)
			assert.Equal(t, state.State, sdk.CommandRunning)
		}
		err := p.WriteCommand(t.Context(), id, echoes.ID, []byte("x"), false)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeConflict})
		assert.NilError(t, p.Resume(t.Context(), id))
	}
	settles := func(c sdk.Command, want sdk.CommandState, exit int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			_, state := logs(t, p, id, c)
			if state.State == sdk.CommandRunning {
				return poll.Continue("it runs")
			}
			assert.Equal(t, state.State, want)
			assert.Equal(t, state.ExitCode, exit)
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	assert.NilError(t, p.WriteCommand(t.Context(), id, ends.ID, []byte("go\n"), false))
	settles(ends, sdk.CommandFailed, 3)
	assert.NilError(t, p.SignalCommand(t.Context(), id, signalled.ID, "SIGTERM"))
	settles(signalled, sdk.CommandCancelled, 143)
	assert.NilError(t, p.WriteCommand(t.Context(), id, echoes.ID, nil, true))
	settles(echoes, sdk.CommandSucceeded, 0)
	got, _ := logs(t, p, id, echoes)
	assert.Equal(t, got, "one\ntwo\nthree\n")
}

func TestACommandThatEndsBeforeAnybodyListensAgainHasItsExitCode(t *testing.T) {
	t.Parallel()
	server := cloud(t, e2bfake.Options{})
	p := configured(t, server, nil)
	id := create(t, p)
	c, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"/bin/bash", "-c", "until [ -e /tmp/go ]; do sleep 0.02; done; exit 3"}, KeepOutput: 1})
	assert.NilError(t, err)
	assert.NilError(t, p.Pause(t.Context(), id))
	inject(server, []string{"POST /process.Process/Connect"}, e2bfake.Fault{Status: 502, Body: "<html></html>"}, 8)
	assert.NilError(t, p.Resume(t.Context(), id))
	bash(t, p, id, "touch /tmp/go")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, state := logs(t, p, id, c)
		return poll.Compare(is.Equal(state.State, sdk.CommandFailed))
	}, poll.WithTimeout(2*time.Minute))
	_, state := logs(t, p, id, c)
	assert.Equal(t, state.ExitCode, 3)
}

func TestCodeThatNobodyWaitsForEndsAfterThePause(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	id := create(t, p)
	ctx, leave := context.WithCancel(t.Context())
	var out heard
	ended := make(chan error, 1)
	go func() {
		_, err := p.Execute(ctx, request(id, sdk.Bash, longRunning), &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "line 200\n")) }, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, p.Pause(t.Context(), id))
	leave()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.NilError(t, p.Resume(t.Context(), id))
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(bash(t, p, id, findRunning), "")) }, poll.WithTimeout(2*time.Minute))
}

func TestACellThatAPauseCutsOffDoesNotRunOn(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	s := newStateful(t, p)
	ended := make(chan error, 1)
	var out heard
	req := s.request("import time; print('ready', flush=True); time.sleep(98765)")
	go func() {
		_, err := p.Execute(t.Context(), req, &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.out(), "ready")) }, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, p.Pause(t.Context(), req.InstanceID))
	assert.Check(t, <-ended != nil)
	assert.NilError(t, p.Resume(t.Context(), req.InstanceID))
	assert.Equal(t, s.x(), "None\n")
}

func TestAContextThatWaitsKeepsItsStateOverAPause(t *testing.T) {
	t.Parallel()
	p := configured(t, cloud(t, e2bfake.Options{}), nil)
	s := newStateful(t, p)
	id := s.request("").InstanceID
	assert.NilError(t, p.Pause(t.Context(), id))
	assert.NilError(t, p.Resume(t.Context(), id))
	assert.Equal(t, s.x(), "5\n")
}
