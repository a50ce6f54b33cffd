package main

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

// commands are those of all instances, each in a sandbox of its own. The SDK keeps the
// contract of sdk.Commands; it wants to know how a program is started.
func (p *Provider) commands() *localcommands.Commands {
	return localcommands.New(localcommands.Options{
		Check: func(instanceID string) error {
			_, err := p.store.load(instanceID)
			return err
		},
		Start: p.startCommand,
	})
}

// launcher becomes the program of a command, and says before whether that and its
// directory are there: only in the sandbox that is known.
const launcher = `
cd -- "$0" 2>/dev/null || { echo cwd >&3; exit; }
type -P -- "$1" >/dev/null || { echo argv >&3; exit; }
echo started >&3
exec 3>&-
exec -- "$@"`

// startCommand starts a program in a sandbox.
func (p *Provider) startCommand(ctx context.Context, instanceID string, wanted localcommands.Program) (localcommands.Process, error) {
	instance, err := p.store.load(instanceID)
	if err != nil {
		return nil, err
	}
	answer, answerEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	started, err := p.sandbox.start(command{
		argv:   append([]string{"/usr/bin/bash", "-p", "-c", launcher, wanted.Dir}, wanted.Argv...),
		answer: answerEnd, env: environment(instance.Env, wanted.Env), kept: p.store.kept(instanceID),
		stdin: wanted.Stdin, stdout: wanted.Stdout, stderr: wanted.Stderr,
	})
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, started.kill)()
	word, _ := io.ReadAll(io.LimitReader(answer, int64(len("started\n"))))
	if string(word) == "started\n" {
		return commandProcess{started}, nil
	}
	started.kill()
	started.wait()
	switch field := strings.TrimSpace(string(word)); {
	case field == "argv", field == "cwd":
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "names nothing that is in the sandbox")
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, errNoSandbox
	}
}

// commandProcess is the process of a command.
type commandProcess struct{ *process }

// Signal implements localcommands.Process.
func (r commandProcess) Signal(signal syscall.Signal) error { return r.signal(signal) }

// Kill implements localcommands.Process.
func (r commandProcess) Kill() { r.kill() }

// Wait implements localcommands.Process.
func (r commandProcess) Wait() (localcommands.Exit, error) {
	ended := r.wait()
	if !ended.begun {
		return localcommands.Exit{}, errNoSandbox
	}
	return localcommands.Exit{Code: ended.exitCode}, nil
}
