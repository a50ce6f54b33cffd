package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

var _ sdk.Commands = (*Provider)(nil)

// commands are those of all instances.
func (p *Provider) commands() *localcommands.Commands {
	return localcommands.New(localcommands.Options{
		Check: func(instanceID string) error {
			_, err := p.find(instanceID)
			return err
		},
		Start: p.startCommand,
	})
}

func (p *Provider) startCommand(_ context.Context, instanceID string, program localcommands.Program) (localcommands.Process, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return nil, err
	}
	run := i.newProcess(program.Argv, program.Env)
	run.Stdin, run.Stdout, run.Stderr = program.Stdin, program.Stdout, program.Stderr
	run.Dir = i.place(program.Dir)
	if info, err := os.Stat(run.Dir); err != nil || !info.IsDir() {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "there is no such directory")
	}
	if err := run.start(); err != nil {
		return nil, pathless(err)
	}
	return commandProcess{run}, nil
}

// place is where a directory is that code calls /workspace or something below it. Others
// are those of this machine.
func (i *instance) place(directory string) string {
	if below, found := strings.CutPrefix(directory+"/", "/workspace/"); found {
		return filepath.Join(i.workspace(), below)
	}
	return directory
}

// commandProcess is a process as localcommands wants it.
type commandProcess struct{ *process }

func (p commandProcess) Signal(signal syscall.Signal) error { return p.tree.Signal(signal) }

func (p commandProcess) Kill() { p.tree.Kill() }

func (p commandProcess) Wait() (localcommands.Exit, error) {
	p.wait(context.Background())
	return localcommands.Exit{Code: p.exitCode()}, p.endedBy()
}
