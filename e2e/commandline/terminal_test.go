package commandline_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// sitting is a command line that somebody sits at: with a terminal.
type sitting struct {
	t        *testing.T
	terminal *os.File
	// far is the command's end of the terminal, held open to look at its modes.
	far   *os.File
	cmd   *exec.Cmd
	ended chan error

	mu    sync.Mutex
	shown bytes.Buffer
}

// sits starts the command line with a terminal of 24 lines.
func (p *person) sits(args ...string) *sitting {
	p.t.Helper()
	return p.starts(exec.CommandContext(p.t.Context(), filepath.Join(binaries.Dir(p.t), "sandbox-broker"), args...))
}

// starts starts a program so.
func (p *person) starts(cmd *exec.Cmd) *sitting {
	p.t.Helper()
	terminal, far, err := pty.Open()
	assert.NilError(p.t, err)
	assert.NilError(p.t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 80}))
	cmd.Env, cmd.Dir = p.env, p.home
	cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s := &sitting{t: p.t, terminal: terminal, far: far, cmd: cmd, ended: make(chan error, 1)}
	assert.NilError(p.t, cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(s, terminal) // until the terminal is closed
	}()
	go func() { s.ended <- cmd.Wait() }()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = far.Close()
		_ = terminal.Close()
		<-read
	})
	return s
}

// Write keeps what the terminal shows.
func (s *sitting) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.Write(p)
}

func (s *sitting) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *sitting) types(keys string) {
	s.t.Helper()
	_, err := io.WriteString(s.terminal, keys)
	assert.NilError(s.t, err)
}

// sees waits until a text was shown behind what was seen before, and forgets all up to it.
func (s *sitting) sees(text string) {
	s.t.Helper()
	awaitContains(s.t, s.text, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, after, _ := strings.Cut(s.shown.String(), text)
	s.shown.Reset()
	s.shown.WriteString(after)
}

// ends waits for the end and returns the exit code.
func (s *sitting) ends() int {
	s.t.Helper()
	select {
	case err := <-s.ended:
		failed := &exec.ExitError{}
		if err != nil && !errors.As(err, &failed) {
			s.t.Fatal(err)
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		s.t.Fatalf("it does not end:\n%s", s.text())
		return 0
	}
}

// modes are those of the terminal, as the command has left them.
func (s *sitting) modes() unix.Termios {
	s.t.Helper()
	modes, err := unix.IoctlGetTermios(int(s.far.Fd()), unix.TCGETS)
	assert.NilError(s.t, err)
	return *modes
}

func awaitContains(t *testing.T, shown func() string, text string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if !strings.Contains(shown(), text) {
			return poll.Continue("no %q in %q", text, shown())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
}

func TestAShellIsATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "shell", "--template", "bash")
	s := p.sits("shell", "shell", "-e", "PS1=% ")
	before := s.modes()
	s.sees("% ")
	assert.Check(t, s.modes().Lflag&unix.ICANON == 0, "keys come as they are typed")
	s.types("stty size; tty; echo $TERM\r")
	s.sees("24 80\r\n/dev/pts/")
	s.sees("xterm-256color\r\n")

	assert.NilError(t, pty.Setsize(s.terminal, &pty.Winsize{Rows: 50, Cols: 132}))
	s.types("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.05; done; echo has grown\r")
	s.sees("has grown\r\n") // as it was typed
	s.sees("has grown\r\n")

	// Ctrl-C is the program's.
	s.types("sleep 1000; echo code $?\r")
	s.sees("echo code $?\r\n")
	s.types("\x03")
	s.sees("% ")
	s.types("exit 7\r")
	assert.Equal(t, s.ends(), 7)
	assert.DeepEqual(t, s.modes(), before)
	p.says("rm", "-f", "shell")
}

func TestAShellThatIsEndedLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "signal", "--template", "bash")
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			mine := &person{t: t, home: p.home, env: p.env}
			s := mine.sits("exec", "-it", "signal", "sh", "-c", "echo ready; exec sleep 1000")
			before := s.modes()
			s.sees("ready")
			assert.NilError(t, s.cmd.Process.Signal(signal))
			assert.Equal(t, s.ends(), 130)
			assert.DeepEqual(t, s.modes(), before)
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if commands := mine.says("ps", "signal"); strings.Contains(commands, "running") {
					return poll.Continue("nobody would ever come back to it:\n%s", commands)
				}
				return poll.Success()
			}, poll.WithTimeout(time.Minute))
		})
	}
	p.says("rm", "-f", "signal")
}

func TestAShellWhoseBrokerDiesLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, real.Options(t))
	p := newPerson(t, b)
	p.says("create", "--session", "dies", "--template", "bash")
	s := p.sits("shell", "dies", "--", "sh", "-c", "echo ready; exec sleep 1000")
	before := s.modes()
	s.sees("ready")
	b.Kill()
	assert.Equal(t, s.ends(), 3)
	s.sees("the broker's answer broke off")
	s.sees("shell --attach c-1 acme:dies:")
	assert.DeepEqual(t, s.modes(), before)
}

func TestCtrlCInterruptsWhatRuns(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "ctrlc", "--template", "bash")
	s := p.sits("exec", "ctrlc", "--", "bash", "-c", "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done")
	s.sees("ready")
	s.types("\x03")
	s.sees("caught")
	assert.Equal(t, s.ends(), 9)
	p.says("rm", "-f", "ctrlc")
}

func TestEventsAreTold(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	p := newPerson(t, b)
	admin := &person{t: t, home: p.home, env: append(slices.Clone(p.env), "SANDBOX_BROKER_TOKEN="+adminToken)}
	s := admin.sits("events", "--all-tenants", "--interval", "100ms")
	s.sees("self_managed  ready")
	id := p.says("create", "--session", "told", "--template", "bash")
	s.sees(id + "  created")
	assert.Check(t, is.Contains(admin.says("ps", "-a", "--tenant", "acme"), "told"))
	assert.Equal(t, admin.says("rm", "-a", id), id)
	s.sees(id + "  gone")
	s.types("\x03")
	assert.Equal(t, s.ends(), 0)
}

func TestWhoLeavesATerminalComesBack(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "back", "--template", "bash")
	s := p.sits("shell", "back", "--", "sh", "-c", "echo first; read x; echo got $x")
	s.sees("first")
	again := p.sits("shell", "--attach", "c-1", "back")
	again.sees("first")
	again.types("word\r")
	again.sees("got word")
	assert.Equal(t, again.ends(), 0)
	s.sees("got word")
	assert.Equal(t, s.ends(), 0)
	p.says("rm", "-f", "back")
}

func TestAShellTakesATerminal(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	for _, args := range [][]string{{"shell", "x"}, {"exec", "-t", "x", "sh"}} {
		result := p.does(2, "", args...)
		assert.Check(t, is.Contains(result.Stderr(), "takes a terminal"))
	}
}

func TestTopIsALiveScreen(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "top", "--template", "bash")
	p.says("exec", "-d", "top", "--", "sh", "-c", "while :; do :; done")
	s := p.sits("top", "--interval", "200ms")
	before := s.modes()
	s.sees("\x1b[?1049h")
	s.sees("by cpu")
	s.sees("top  ")
	s.sees("%  ") // it is measured between two looks
	s.types("m")
	s.sees("by memory")
	s.types("i")
	s.sees("by id")
	assert.NilError(t, pty.Setsize(s.terminal, &pty.Winsize{Rows: 10, Cols: 20}))
	s.sees("…")
	s.types("q")
	assert.Equal(t, s.ends(), 0)
	s.sees("\x1b[?25h\x1b[?1049l")
	assert.DeepEqual(t, s.modes(), before)
	p.says("rm", "-f", "top")
}

func TestATokenIsAskedForAndNotShown(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	p := newPerson(t, b)
	s := p.sits("config", "context", "set", "typed", "--address", b.URL, "--token-file", "-")
	s.sees("Token: ")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.modes().Lflag&unix.ECHO != 0 {
			return poll.Continue("what is typed would be seen")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	s.types(harness.Token + "\r")
	assert.Equal(t, s.ends(), 0)
	assert.Check(t, !strings.Contains(s.text(), harness.Token), s.text())
	p.env = p.env[:3]
	p.says("usage")
}

func TestColorsAndProgressAreForTerminalsAlone(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	assert.Check(t, !strings.Contains(p.says("providers"), "\x1b"))
	s := p.sits("providers")
	assert.Equal(t, s.ends(), 0)
	s.sees("\x1b[32mready\x1b[0m")
	plain := &person{t: t, home: p.home, env: append(p.env, "NO_COLOR=1")}
	s = plain.sits("providers")
	assert.Equal(t, s.ends(), 0)
	awaitContains(t, s.text, "ready")
	assert.Check(t, !strings.Contains(s.text(), "\x1b"))
}
