package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// needBubblewrap skips a test where there is no bwrap; in CI that is a failure.
func needBubblewrap(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("bubblewrap is not installed (Debian: apt install bubblewrap)")
	}
}

// configured returns a provider that keeps its instances in stateDir.
func configured(t *testing.T, stateDir string, values map[string]any) *Provider {
	t.Helper()
	needBubblewrap(t)
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, mistakes := schema().Resolve(values)
	assert.Equal(t, len(mistakes), 0, "%v", mistakes)
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "bubblewrap", BrokerID: "b", StateDir: stateDir, Settings: settings}))
	t.Cleanup(func() { assert.Check(t, p.Close(context.Background())) })
	return p
}

func create(t *testing.T, p *Provider, key string) sdk.Instance {
	t.Helper()
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "default", Labels: map[string]string{"session": "s"}, IdempotencyKey: key})
	assert.NilError(t, err)
	return made
}

// heard is an sdk.Output that remembers.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Stdout(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(p)
	return nil
}
func (h *heard) Stderr(p []byte) error       { return h.Stdout(p) }
func (h *heard) Artifact(sdk.Artifact) error { return nil }
func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// bash runs a script and returns what it printed.
func bash(t *testing.T, p *Provider, instanceID, script string) (sdk.ExecuteResult, string) {
	t.Helper()
	var out heard
	result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
		InstanceID: instanceID, ExecutionID: "x", Language: sdk.Bash, Code: script, Timeout: time.Minute, OutputLimit: 1 << 20,
	}, &out)
	assert.NilError(t, err)
	return result, out.String()
}

func TestTheSandboxHolds(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	assert.NilError(t, os.WriteFile(secret, []byte("of the host"), 0o644))
	t.Setenv("SECRET_OF_THE_PLUGIN", "secret")
	p := configured(t, t.TempDir(), map[string]any{"memory_mb": 256})
	id := create(t, p, "").ID
	cases := map[string]struct{ script, want string }{
		"a file of the host is not there":          {"cat " + secret + " 2>/dev/null || echo no", "no\n"},
		"there are no accounts":                    {"cat /etc/passwd 2>/dev/null || echo no", "no\n"},
		"there is no network but loopback":         {"ls /sys 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1", "    lo\n"},
		"the system is read-only":                  {"touch /usr/x /x 2>/dev/null || echo no", "no\n"},
		"there are only processes of its own":      {"echo /proc/[0-9]*", "/proc/1 /proc/2\n"},
		"it has no capabilities":                   {"grep CapEff /proc/self/status", "CapEff:\t0000000000000000\n"},
		"it gets no more namespaces":               {"unshare --user true 2>/dev/null || echo no", "no\n"},
		"the plugin's variables are not there":     {"echo ${SECRET_OF_THE_PLUGIN-none}", "none\n"},
		"it is not told how it was called":         {"tr '\\0' ' ' </proc/1/cmdline | grep -c setenv", "0\n"},
		"a process has no more memory than it may": {"python3 -c 'b\"x\" * (300 << 20)' 2>&1 | tail -n 1", "MemoryError\n"},
		"descriptors are the standard ones":        {"ls /proc/self/fd", "0\n1\n2\n3\n"}, // 3 is that of ls itself
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, printed := bash(t, p, id, c.script)
			assert.Equal(t, printed, c.want)
		})
	}
}

func TestAnExecutionLeavesNoProcessBehind(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	// Each keeps a lock as long as it lives.
	const hold = "(setsid flock 9; setsid sleep 1000) 9>lock & (setsid flock 9; exec 1>&- 2>&-; sleep 1000) 9>lock2 & until [ -e lock ] && [ -e lock2 ]; do :; done; "
	ends := map[string]struct {
		script string
		status sdk.Status
	}{
		"that ends by itself": {hold, sdk.StatusSucceeded},
		"that takes too long": {hold + "sleep 1000", sdk.StatusTimeout},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
				InstanceID: id, Language: sdk.Bash, Code: c.script, Timeout: 2 * time.Second, OutputLimit: 1 << 20,
			}, &heard{})
			assert.NilError(t, err)
			assert.Equal(t, result.Status, c.status)
			free, printed := bash(t, p, id, "flock --nonblock lock true && flock --nonblock lock2 true")
			assert.Equal(t, free.ExitCode, 0, printed)
		})
	}
}

func TestANewProcessOfThePluginFindsTheInstances(t *testing.T) {
	state := t.TempDir()
	before := configured(t, state, nil)
	kept, gone := create(t, before, "kept"), create(t, before, "gone")
	bash(t, before, kept.ID, "echo mine > file")
	assert.NilError(t, before.Destroy(t.Context(), gone.ID))
	half := filepath.Join(state, "instances", strings.Repeat("a", 32))
	assert.NilError(t, os.MkdirAll(filepath.Join(half, "kept", "locked", "x"), 0o755))
	assert.NilError(t, os.Chmod(filepath.Join(half, "kept", "locked"), 0))

	after := configured(t, state, nil)
	listed, err := after.List(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, listed, []sdk.Instance{kept})
	_, printed := bash(t, after, kept.ID, "cat file")
	assert.Equal(t, printed, "mine\n")
	assert.Equal(t, create(t, after, "kept").ID, kept.ID, "the key is remembered")
	entries, err := os.ReadDir(filepath.Join(state, "instances"))
	assert.NilError(t, err)
	assert.Equal(t, len(entries), 1, "what was made half is removed: %v", entries)
}

func TestDestroyEndsWhatRunsAndNeverLeavesTheStore(t *testing.T) {
	state := t.TempDir()
	p := configured(t, state, nil)
	id := create(t, p, "").ID
	var out heard
	ended := make(chan error)
	go func() {
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo here; sleep 1000", Timeout: time.Hour, OutputLimit: 1 << 20}, &out)
		ended <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Equal(out.String(), "here\n")) }, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, p.Destroy(t.Context(), id))
	assert.ErrorIs(t, <-ended, &sdk.Error{Code: sdk.CodeUnavailable})
	for _, id := range []string{id, "", "..", "../instances", strings.Repeat("b", 32)} {
		assert.NilError(t, p.Destroy(t.Context(), id))
	}
	_, err := os.Stat(filepath.Join(state, "instances"))
	assert.NilError(t, err)
}

func TestAnInterruptIsLikeCtrlC(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	cases := map[string]struct {
		code     string
		exitCode int
	}{
		"code that minds":         {"trap 'echo told; exit 7' INT; echo ready; while :; do sleep 1000; done", 7},
		"code that does not care": {"trap '' INT; echo ready; while :; do sleep 1000; done", 137},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out heard
			results := make(chan sdk.ExecuteResult)
			go func() {
				result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
					InstanceID: id, ExecutionID: "x", Language: sdk.Bash, Code: c.code, Timeout: time.Hour, OutputLimit: 1 << 20,
				}, &out)
				assert.Check(t, err)
				results <- result
			}()
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Contains(out.String(), "ready")) }, poll.WithTimeout(2*time.Minute))
			assert.NilError(t, p.Interrupt(t.Context(), id, "x"))
			result := <-results
			assert.Equal(t, result.Status, sdk.StatusCancelled)
			assert.Equal(t, result.ExitCode, c.exitCode)
			assert.ErrorIs(t, p.Interrupt(t.Context(), id, "x"), &sdk.Error{Code: sdk.CodeNotFound})
		})
	}
}

func TestFilesLeadNowhereElse(t *testing.T) {
	state := t.TempDir()
	p := configured(t, state, nil)
	id := create(t, p, "").ID
	bash(t, p, id, "ln -s /etc absolute; ln -s ../../instance.json up; mkdir in; echo text > in/file; ln -s in/file link")
	for _, path := range []string{"absolute/hostname", "up", "/etc/passwd", "../instance.json", "in/../../instance.json", ""} {
		_, _, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: path})
		assert.Check(t, err != nil, path)
		assert.Check(t, !strings.Contains(fmt.Sprint(err), state), "%v", err)
	}
	var names []string
	truncated, err := p.ListFiles(t.Context(), sdk.ListFilesRequest{InstanceID: id, Path: ".", Depth: 2, Limit: 4}, func(files []sdk.FileInfo) error {
		for _, f := range files {
			names = append(names, f.Path)
		}
		return nil
	})
	assert.NilError(t, err)
	assert.Check(t, truncated)
	assert.DeepEqual(t, names, []string{"/workspace/absolute", "/workspace/in", "/workspace/in/file", "/workspace/link"})
}

func TestAVariableCannotBeAnOption(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	_, err := p.Execute(t.Context(), sdk.ExecuteRequest{
		InstanceID: id, Language: sdk.Bash, Code: "true", Timeout: time.Minute, OutputLimit: 1, Env: map[string]string{"A": "b\x00--bind\x00/\x00/host"},
	}, &heard{})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
}

func TestAMachineWithoutBubblewrapIsTold(t *testing.T) {
	settings, _ := schema().Resolve(map[string]any{"bwrap": "no-such-program"})
	err := New(hclog.NewNullLogger()).Configure(t.Context(), sdk.ConfigureRequest{StateDir: t.TempDir(), Settings: settings})
	var refused *sdk.Error
	assert.Assert(t, errors.As(err, &refused))
	assert.Equal(t, refused.Code, sdk.CodeInvalidConfig)
	assert.Equal(t, refused.Field, "bwrap")
}

// startedCommand starts a shell line as a command, and returns it and what reads its output
// until that holds something.
func startedCommand(t *testing.T, p *Provider, instanceID, line string) (sdk.Command, func(want string)) {
	t.Helper()
	started, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: instanceID, Argv: []string{"sh", "-c", line}, KeepOutput: 1 << 20})
	assert.NilError(t, err)
	return started, func(want string) {
		t.Helper()
		var out heard
		enough := errors.New("enough")
		_, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: instanceID, CommandID: started.ID, Follow: true}, func(piece sdk.CommandOutput) error {
			_ = out.Stdout(piece.Data)
			if strings.Contains(out.String(), want) {
				return enough
			}
			return nil
		})
		assert.ErrorIs(t, err, enough, "it printed %q", out.String())
	}
}

func TestASignalReachesEveryProcessOfACommandAndNoOther(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	const wait = "while :; do sleep 0.01; done"
	other, otherPrints := startedCommand(t, p, id, "trap 'echo other' USR1; echo ready; "+wait)
	otherPrints("ready")
	started, prints := startedCommand(t, p, id, `setsid sh -c "trap 'echo far' USR1; echo far is ready; `+wait+`" & trap 'echo near' USR1; echo near is ready; `+wait)
	prints("near is ready")
	prints("far is ready")
	assert.NilError(t, p.SignalCommand(t.Context(), id, started.ID, "SIGUSR1"))
	prints("near\n")
	prints("far\n")
	assert.NilError(t, p.SignalCommand(t.Context(), id, started.ID, "SIGKILL"))
	assert.NilError(t, p.SignalCommand(t.Context(), id, other.ID, "SIGTERM"))
	ended, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: other.ID, Follow: true}, func(piece sdk.CommandOutput) error {
		assert.Check(t, is.Equal(string(piece.Data), "ready\n"))
		return nil
	})
	assert.NilError(t, err)
	assert.Equal(t, ended.ExitCode, 128+15)
}

func TestACommandStartsAsItWasAsked(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	bash(t, p, id, "mkdir -- -in; printf '#!/bin/sh\necho mine' > mine; chmod +x mine; cp mine cd; touch plain")
	cases := map[string]struct {
		argv        []string
		cwd         string
		env         map[string]string
		want, field string
	}{
		"descriptors are the standard ones": {argv: []string{"ls", "/proc/self/fd"}, want: "0\n1\n2\n3\n"}, // 3 is that of ls itself
		"a program of the workspace":        {argv: []string{"./mine"}, want: "mine\n"},
		"a program of its own PATH":         {argv: []string{"mine"}, env: map[string]string{"PATH": "/usr/bin:/workspace"}, want: "mine\n"},
		"a program called like a builtin":   {argv: []string{"cd"}, env: map[string]string{"PATH": "/workspace:/usr/bin"}, want: "mine\n"},
		"a directory like an option":        {argv: []string{"pwd"}, cwd: "-in", want: "/workspace/-in\n"},
		"a script that bash would source":   {argv: []string{"echo", "x"}, env: map[string]string{"BASH_ENV": "/workspace/mine"}, want: "x\n"},
		"no program":                        {argv: []string{"no-such-program"}, field: "argv"},
		"a program like an option":          {argv: []string{"--help"}, field: "argv"},
		"a builtin of the shell":            {argv: []string{"eval", "echo no"}, field: "argv"},
		"what cannot be executed":           {argv: []string{"./plain"}, field: "argv"},
		"a directory":                       {argv: []string{"/tmp"}, field: "argv"},
		"no directory":                      {argv: []string{"true"}, cwd: "none", field: "cwd"},
		"a directory of the host":           {argv: []string{"true"}, cwd: "/root", field: "cwd"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			started, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: c.argv, Cwd: c.cwd, Env: c.env, KeepOutput: 1 << 20})
			if c.field != "" {
				var refused *sdk.Error
				assert.Assert(t, errors.As(err, &refused), "%v", err)
				assert.Equal(t, refused.Code, sdk.CodeInvalidRequest)
				assert.Equal(t, refused.Field, c.field)
				return
			}
			assert.NilError(t, err)
			var out heard
			_, err = p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, Follow: true}, func(piece sdk.CommandOutput) error {
				return out.Stdout(piece.Data)
			})
			assert.NilError(t, err)
			assert.Equal(t, out.String(), c.want)
		})
	}
}

func TestACommandEndsWithItsInstance(t *testing.T) {
	p := configured(t, t.TempDir(), nil)
	id := create(t, p, "").ID
	started, prints := startedCommand(t, p, id, "trap '' TERM; echo ready; (setsid sleep 1000) & wait")
	prints("ready")
	followed := make(chan sdk.Command)
	reading := make(chan struct{})
	go func() {
		ended, err := p.ReadCommand(t.Context(), sdk.ReadCommandRequest{InstanceID: id, CommandID: started.ID, Follow: true}, func(sdk.CommandOutput) error {
			close(reading)
			return nil
		})
		assert.Check(t, err)
		followed <- ended
	}()
	<-reading
	assert.NilError(t, p.Destroy(t.Context(), id))
	assert.Equal(t, (<-followed).State, sdk.CommandCancelled)
	_, err := p.ListCommands(t.Context(), id)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}
