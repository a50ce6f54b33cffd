package watchdog_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
)

func TestMain(m *testing.M) {
	watchdog.Main()
	if os.Getenv("WATCHDOG_TEST_HOST") != "" {
		if err := beTheHost(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// family starts processes that want to outlive it, each of them with a token among its
// arguments, and waits without looking at its standard input. Only the last has lost the mark.
const family = `#!/bin/sh
sleep 1000.$1 &
setsid sleep 1000.$1 &
(setsid sh -c "sleep 1000.$1 & sleep 1000.$1 & exit" &)
(setsid sh -c "trap '' TERM INT HUP; sleep 1000.$1; :" &)
setsid sh -c "kill -STOP \$\$; sleep 1000.$1" &
(setsid sh -c "kill -STOP \$\$; sleep 1000.$1" &)
env -i setsid sleep 1000.$1 &
echo up
exec sleep 1000.$1
`

// restless starts itself anew in a session of its own and ends, for ever.
const restless = `#!/bin/sh
case $2 in again) ;; *) echo up; setsid $0 $1 again & exec sleep 1000.$1 ;; esac
setsid $0 $1 again &
`

// beTheHost runs a script under a watchdog, kills it when it is told to by a line of
// standard input, and says what it sees.
func beTheHost(script, token string) error {
	host, err := watchdog.NewHost("/proc/self/exe", true)
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// The script is an argument of the shell, so that its own have a place.
	wrapper := script + ".run"
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+script+" "+token+"\n"), 0o700); err != nil {
		return err
	}
	said, end, err := os.Pipe()
	if err != nil {
		return err
	}
	process, err := host.Start(watchdog.Program{
		Label: "box", Path: wrapper, Name: "family",
		Env:   []string{"PATH=" + os.Getenv("PATH"), watchdog.Mark(token)},
		Stdin: null, Stdout: end, Stderr: null,
	})
	if err != nil {
		return err
	}
	if _, err := said.Read(make([]byte, 1)); err != nil {
		return err
	}
	fmt.Println("program", process.PID)
	go func() {
		orders := bufio.NewScanner(os.Stdin)
		for orders.Scan() {
			process.Kill()
		}
	}()
	<-process.Died()
	<-process.Gone()
	fmt.Println("gone", process.Status())
	select {}
}

// scene is a host in a process of its own.
type scene struct {
	t       *testing.T
	token   string
	host    *exec.Cmd
	orders  io.WriteCloser
	lines   *bufio.Scanner
	program int
	script  string
}

func newScene(t *testing.T, script string, change ...func(*exec.Cmd)) *scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "wd") //nolint:usetesting // an ordinary user shall reach it
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chmod(dir, 0o777)) //nolint:gosec // for a moment, and nothing of worth in it
	self := filepath.Join(dir, "self")
	syscall.ForkLock.RLock() // a child of another test would have it open, and the system calls it busy
	copyProgram(t, self)
	syscall.ForkLock.RUnlock()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script), 0o755)) //nolint:gosec // another user runs it
	s := &scene{t: t, token: fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano())}
	s.script = filepath.Join(dir, "script")
	s.host = exec.Command(self, s.script, s.token)
	s.host.Env = append(os.Environ(), "WATCHDOG_TEST_HOST=yes")
	s.host.Stderr = os.Stderr
	for _, c := range change {
		c(s.host)
	}
	s.orders, err = s.host.StdinPipe()
	assert.NilError(t, err)
	out, err := s.host.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, s.host.Start())
	t.Cleanup(func() {
		_ = s.host.Process.Kill()
		_ = s.host.Wait()
		for pid := range s.members() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	s.lines = bufio.NewScanner(out)
	s.program, err = strconv.Atoi(s.told("program "))
	assert.NilError(t, err)
	return s
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	assert.NilError(t, err)
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	assert.NilError(t, err)
	_, err = io.Copy(file, from)
	assert.NilError(t, errors.Join(err, file.Close()))
}

// told returns the next line of the host, which begins so.
func (s *scene) told(prefix string) string {
	s.t.Helper()
	assert.Assert(s.t, s.lines.Scan(), "the host says no more: %v", s.lines.Err())
	text, found := strings.CutPrefix(s.lines.Text(), prefix)
	assert.Assert(s.t, found, s.lines.Text())
	return text
}

// members are the processes of the script, by their numbers.
func (s *scene) members() map[int]string {
	found := map[int]string{}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	assert.NilError(s.t, err)
	for _, path := range lines {
		text, err := os.ReadFile(path)
		pid, atoi := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && atoi == nil && pid != s.host.Process.Pid && bytes.Contains(text, []byte(s.token)) {
			found[pid] = strings.ReplaceAll(string(text), "\x00", " ")
		}
	}
	return found
}

// watchdog is the number of the program's parent.
func (s *scene) watchdog() int {
	s.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.program))
	assert.NilError(s.t, err)
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:])
	pid, err := strconv.Atoi(fields[1])
	assert.NilError(s.t, err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	assert.NilError(s.t, err)
	assert.Assert(s.t, strings.HasPrefix(string(line), "sandbox-broker-watchdog\x00box\x00"), "%q", line)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	assert.NilError(s.t, err)
	assert.Equal(s.t, string(name), "plugin-watchdog\n")
	return pid
}

func (s *scene) signal(pid int, signal unix.Signal) {
	s.t.Helper()
	assert.NilError(s.t, unix.Kill(pid, signal))
}

// allUp waits until the whole family is there.
func (s *scene) allUp() {
	s.t.Helper()
	poll.WaitOn(s.t, func(poll.LogT) poll.Result {
		if n := len(s.members()); n < 9 {
			return poll.Continue("%d processes", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func (s *scene) allGone(but int) {
	s.t.Helper()
	poll.WaitOn(s.t, func(poll.LogT) poll.Result {
		if left := s.members(); len(left) > but {
			return poll.Continue("left: %v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func TestEverythingEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do     func(*scene)
		status string // that the host tells, "" if it is dead
	}{
		"that is killed":               {func(s *scene) { s.signal(s.program, unix.SIGKILL) }, "was killed by signal SIGKILL"},
		"that ends by a signal":        {func(s *scene) { s.signal(s.program, unix.SIGTERM) }, "was killed by signal SIGTERM"},
		"that its host wants to end":   {func(s *scene) { s.order() }, "was killed by signal SIGKILL"},
		"that is stopped, by its host": {func(s *scene) { s.signal(s.program, unix.SIGSTOP); s.order() }, "was killed by signal SIGKILL"},
		"whose host is killed":         {func(s *scene) { s.signal(s.host.Process.Pid, unix.SIGKILL) }, ""},
		"that is stopped, and its host killed": {func(s *scene) {
			s.signal(s.program, unix.SIGSTOP)
			s.signal(s.host.Process.Pid, unix.SIGKILL)
		}, ""},
		"whose watchdog is killed": {func(s *scene) { s.signal(s.watchdog(), unix.SIGKILL) }, "ended with its watchdog, which was killed by signal SIGKILL"},
		"whose watchdog is stopped, by its host": {func(s *scene) {
			s.signal(s.watchdog(), unix.SIGSTOP)
			s.order()
		}, "ended with its watchdog, which was killed by signal SIGKILL"},
		"that is killed, its watchdog stopped": {func(s *scene) {
			s.signal(s.watchdog(), unix.SIGSTOP)
			s.signal(s.program, unix.SIGKILL)
		}, "ended with its watchdog, which was killed by signal SIGKILL"},
		"whose watchdog is stopped, and its host killed": {func(s *scene) {
			s.signal(s.watchdog(), unix.SIGSTOP)
			s.signal(s.host.Process.Pid, unix.SIGKILL)
		}, ""},
		"whose watchdog gets what a terminal and an init send": {func(s *scene) {
			dog := s.watchdog()
			for _, signal := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
				s.signal(dog, signal)
			}
			s.signal(s.program, unix.SIGKILL)
		}, "was killed by signal SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for who, change := range users(t) {
				t.Run(who, func(t *testing.T) {
					t.Parallel()
					s := newScene(t, family, change)
					s.allUp()
					dog := s.watchdog()
					test.do(s)
					if test.status != "" {
						assert.Equal(t, s.told("gone "), test.status)
						assert.Equal(t, len(s.members()), 0, "%v", s.members())
					}
					s.allGone(0)
					poll.WaitOn(t, gone(dog), poll.WithTimeout(2*time.Minute))
				})
			}
		})
	}
}

// users are who the host may be.
func users(t *testing.T) map[string]func(*exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		return map[string]func(*exec.Cmd){"as an ordinary user": func(*exec.Cmd) {}}
	}
	return map[string]func(*exec.Cmd){
		"as root": func(*exec.Cmd) {},
		"as an ordinary user": func(cmd *exec.Cmd) {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		},
	}
}

func (s *scene) order() {
	s.t.Helper()
	_, err := io.WriteString(s.orders, "kill\n")
	assert.NilError(s.t, err)
}

func gone(pid int) func(poll.LogT) poll.Result {
	return func(poll.LogT) poll.Result {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return poll.Success()
		}
		return poll.Continue("process %d is there", pid)
	}
}

func TestOneThatForksWithoutEndIsEndedToo(t *testing.T) {
	t.Parallel()
	s := newScene(t, restless)
	s.order()
	assert.Equal(t, s.told("gone "), "was killed by signal SIGKILL")
	assert.Equal(t, len(s.members()), 0, "%v", s.members())
}

// Nobody is left to end anything: the program itself dies by the kernel's hand, the rest
// lives until the next host comes, and what has no mark lives on.
func TestWhatNobodyIsLeftToEndIsFoundByItsMark(t *testing.T) {
	t.Parallel()
	s := newScene(t, family)
	s.allUp()
	dog := s.watchdog()
	s.signal(s.host.Process.Pid, unix.SIGSTOP) // so that both die before either has seen it
	s.signal(dog, unix.SIGSTOP)
	s.signal(s.host.Process.Pid, unix.SIGKILL)
	s.signal(dog, unix.SIGKILL)
	poll.WaitOn(t, gone(s.program), poll.WithTimeout(2*time.Minute))
	assert.Assert(t, len(s.members()) > 1)

	watchdog.EndLeftBehind("another run")
	assert.Assert(t, len(s.members()) > 1)
	watchdog.EndLeftBehind(s.token)
	s.allGone(1)
	for _, line := range s.members() {
		assert.Equal(t, line, "sleep 1000."+s.token+" ")
	}
}

// inOrder needs a moment to end, as a plugin does that puts away what it has.
const inOrder = `#!/bin/sh
echo up
(sleep 2.$1; echo in order > "$0.done")
`

// The host has died, and the watchdog gives its program time to end in order: until then
// nobody may have what the program had.
func TestWhatAWatchdogSeesToEndsInOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t, inOrder)
	dog := s.watchdog()
	s.signal(s.host.Process.Pid, unix.SIGKILL)
	watchdog.EndLeftBehind(s.token)
	assert.Check(t, is.Len(s.members(), 0))
	assert.Check(t, gone(dog)(t) == poll.Success())
	said, err := os.ReadFile(s.script + ".done")
	assert.NilError(t, err)
	assert.Equal(t, string(said), "in order\n")
}

// A watchdog that is stopped ends nothing, and nobody waits for it without end.
func TestWhatAStoppedWatchdogSeesToIsEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t, family)
	s.allUp()
	dog := s.watchdog()
	s.signal(dog, unix.SIGSTOP)
	watchdog.EndLeftBehind(s.token) // its host lives: the kernel wakes who has lost it
	poll.WaitOn(t, gone(s.program), poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, gone(dog), poll.WithTimeout(2*time.Minute))
}

func TestAHostNeedsAProgramToBeTheWatchdog(t *testing.T) {
	_, err := watchdog.NewHost("", false)
	assert.Error(t, err, "there is no program to be the watchdog")
}

func TestAStartThatFailsSaysWhy(t *testing.T) {
	host, err := watchdog.NewHost("/proc/self/exe", false)
	assert.NilError(t, err)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer null.Close()
	program := watchdog.Program{Label: "box", Path: filepath.Join(t.TempDir(), "none"), Name: "none", Stdin: null, Stdout: null, Stderr: null}
	_, err = host.Start(program)
	assert.ErrorContains(t, err, "no such file")

	for name, executable := range map[string]string{
		"one that is not there":      filepath.Join(t.TempDir(), "none"),
		"one that is something else": "/bin/true",
	} {
		t.Run(name, func(t *testing.T) {
			host, err := watchdog.NewHost(executable, false)
			assert.NilError(t, err)
			_, err = host.Start(program)
			assert.ErrorContains(t, err, "watchdog")
		})
	}
}
