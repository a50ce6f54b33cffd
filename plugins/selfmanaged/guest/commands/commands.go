// Package commands starts the programs of the guest's capability "commands", each in a PID
// namespace of its own (package isolation) and within the sandbox's memory. What is known
// of them and of their output is localcommands'.
package commands

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

// Bounds. Each running command costs an init process and two buffers, and all of
// it is memory of the sandbox.
const (
	maxRunning   = 32
	maxFollowers = 64
	maxKept      = 8 << 20
)

// Resources are what programs may use. ok is false until the guest knows.
type Resources func() (limits isolation.Limits, guard *memory.Guard, ok bool)

// New returns the commands of the sandbox. What they start ends with the guest.
// root has them run as isolation.Spec.Root says.
func New(resources Resources, root bool) *localcommands.Commands {
	var started atomic.Int64
	return localcommands.New(localcommands.Options{
		NewID: func() string { return "c-" + strconv.FormatInt(started.Add(1), 10) },
		Check: func(string) error { return nil }, // the sandbox is the one instance
		Start: starter{resources, root}.start, Terminals: true,
		MaxRunning: maxRunning, MaxFollowers: maxFollowers, MaxKept: maxKept,
	})
}

type starter struct {
	resources Resources
	root      bool
}

func (s starter) start(ctx context.Context, _ string, program localcommands.Program) (localcommands.Process, error) {
	limits, guard, ok := s.resources()
	if !ok {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the sandbox is not prepared")
	}
	spec := isolation.Spec{Argv: program.Argv, Env: isolation.CodeEnvironment(program.Env), Dir: program.Dir, Limits: limits, Root: s.root}
	if t := program.Terminal; t != nil {
		spec.Terminal = &unix.Winsize{Row: uint16(min(t.Rows, 1<<16-1)), Col: uint16(min(t.Columns, 1<<16-1))}
	}
	p, err := isolation.Start(spec, isolation.Streams{Stdin: program.Stdin, Stdout: program.Stdout, Stderr: program.Stderr})
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "start a command: %w", err)
	}
	if err := p.Started(ctx); err != nil {
		p.Kill()
		p.Wait()
		return nil, notStarted(err)
	}
	return process{p, guard.Watch(p)}, nil
}

// notStarted puts into words why a program was not started.
func notStarted(err error) error {
	if refused, ok := errors.AsType[*isolation.Refused](err); ok {
		code := sdk.CodeInvalidRequest
		if refused.Field == "" {
			code = sdk.CodeQuotaExceeded
		}
		return sdk.FieldErrorf(code, refused.Field, "%s", refused.Message)
	}
	return sdk.Errorf(sdk.CodeUnavailable, "start a command: %w", err)
}

// process is a program in a PID namespace, which ends with its init.
type process struct {
	*isolation.Process
	guarded *memory.Guarded
}

// Wait implements localcommands.Process.
func (p process) Wait() (localcommands.Exit, error) {
	exit, ok := p.Exit()
	oom := p.guarded.EndedForMemory(exit, ok)
	p.Kill() // for what it left running; init is about to end too
	p.Process.Wait()
	p.guarded.Release()
	if !ok { // it was killed with its init
		exit.Code = 128 + int(unix.SIGKILL)
	}
	return localcommands.Exit{Code: exit.Code, OutOfMemory: oom}, nil
}
