package frontdoortest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
)

// Programs are those of a sandbox, which run on this machine as they are.
type Programs struct {
	// Root is the sandbox's /, in which their directories are.
	Root string
	// Env is the sandbox's own environment, beside what every program has.
	Env []string
}

// Start implements localcommands.Options.Start. Terminals are real ones.
func (p *Programs) Start(_ context.Context, _ string, asked localcommands.Program) (localcommands.Process, error) {
	dir := filepath.Join(p.Root, asked.Dir)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "there is no such directory")
	}
	cmd := exec.Command(asked.Argv[0], asked.Argv[1:]...) //nolint:gosec // this is what a sandbox does
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "PS1=$ "}
	cmd.Env = append(cmd.Env, p.Env...)
	for name, value := range asked.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := &program{cmd: cmd}
	if asked.Terminal == nil {
		cmd.Stdout, cmd.Stderr = asked.Stdout, asked.Stderr
		if asked.Stdin != nil {
			cmd.Stdin = asked.Stdin
		}
		return started, cmd.Start()
	}
	ours, theirs, err := openTerminal(*asked.Terminal)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr.Setctty = true
	started.terminal = ours
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return started, nil
}

func openTerminal(size sdk.TerminalSize) (ours, theirs *os.File, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
	}
	if err == nil {
		theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(master))
	}
	return os.NewFile(uintptr(master), "terminal"), theirs, nil
}

// program is a process with its group, as a localcommands.TerminalProcess.
type program struct {
	cmd      *exec.Cmd
	terminal *os.File
}

var _ localcommands.TerminalProcess = (*program)(nil)

// Terminal implements localcommands.TerminalProcess.
func (p *program) Terminal() (*os.File, error) { return p.terminal, nil }

// Signal implements localcommands.Process.
func (p *program) Signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// Kill implements localcommands.Process.
func (p *program) Kill() { _ = p.Signal(syscall.SIGKILL) }

// Wait implements localcommands.Process. What is left of the group ends with its program.
func (p *program) Wait() (localcommands.Exit, error) {
	err := p.cmd.Wait()
	p.Kill()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return localcommands.Exit{Code: 128 + int(status.Signal())}, nil
		}
		return localcommands.Exit{Code: exit.ExitCode()}, nil
	}
	return localcommands.Exit{}, err
}
