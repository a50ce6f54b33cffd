package watchdog

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

const (
	// startPatience is how long a watchdog may take to start its program.
	startPatience = 10 * time.Second
	// endPatience is how long it may take to end everything. One that was stopped
	// never comes to that.
	endPatience = 3 * time.Second
	// orphanPatience bounds the end of what a dead watchdog has left.
	orphanPatience = 5 * time.Second
)

// Host starts programs and ends them with all that they have started.
type Host struct {
	executable string
	adopts     bool

	mu sync.Mutex
	// watchdogs are the children of this process that are its own; held while one
	// is started, so that none is ever taken for an orphan.
	watchdogs map[int]bool
}

// NewHost returns a host whose watchdogs run executable, a program that calls Main:
// "/proc/self/exe" is the one that runs. One that adopts makes this process the
// subreaper of its watchdogs, and ends what they leave when they are killed: the
// process must start no children in any other way.
func NewHost(executable string, adopts bool) (*Host, error) {
	if executable == "" {
		return nil, errors.New("there is no program to be the watchdog")
	}
	if adopts {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become a subreaper: %w", err)
		}
	}
	return &Host{executable: executable, adopts: adopts, watchdogs: map[int]bool{}}, nil
}

// Program is what a host starts.
type Program struct {
	// Label is for people who look at the list of processes.
	Label string
	// Path is executed, and its last part is how the process is called; Name is what
	// the program finds as its first argument.
	Path, Name string
	// File may be what Path leads to, as FilePath says; nil if it leads there by
	// itself.
	File *os.File
	// Env of the program and of everything that it starts.
	Env                   []string
	Stdin, Stdout, Stderr *os.File
}

// FilePath is the way to File for the process that is to execute it.
func FilePath() string { return fmt.Sprintf("/proc/self/fd/%d", programDescriptor) }

// Process is a program that was started.
type Process struct {
	// PID of the program.
	PID int

	host     *Host
	watchdog *exec.Cmd
	orders   *os.File
	reports  *os.File
	program  *os.Process
	handle   *os.File // a descriptor of the program, by which the kernel tells its end
	ended    chan struct{}
	died     chan struct{}
	gone     chan struct{}
	status   string
	killing  sync.Once
}

// Start starts a program. The caller closes the files that it gave, at once if it
// likes.
func (h *Host) Start(p Program) (*Process, error) {
	ordersEnd, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersEnd.Close()
	reports, reportsEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	defer reportsEnd.Close()
	cmd := &exec.Cmd{
		Path: h.executable, Args: []string{processName, p.Label, p.Path, p.Name}, Env: p.Env,
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr,
		ExtraFiles: []*os.File{ordersEnd, reportsEnd},
		// It goes on when this process ends, even if somebody had stopped it. The signal
		// may come earlier, since it follows a thread, and does no harm then.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGCONT},
	}
	if p.File != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, p.File)
	}
	if err := h.startWatchdog(cmd); err != nil {
		return nil, errors.Join(err, orders.Close(), reports.Close())
	}
	reportsEnd.Close() // or its end would not be seen
	process := &Process{
		host: h, watchdog: cmd, orders: orders, reports: reports,
		ended: make(chan struct{}), died: make(chan struct{}), gone: make(chan struct{}),
	}
	lines := bufio.NewReader(reports)
	if err := process.awaitStart(lines); err != nil {
		_ = cmd.Process.Kill()
		process.end()
		return nil, err
	}
	go process.awaitEnd()
	go process.follow(lines)
	return process, nil
}

func (h *Host) startWatchdog(cmd *exec.Cmd) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a watchdog: %w", err)
	}
	h.watchdogs[cmd.Process.Pid] = true
	return nil
}

// awaitStart waits for the program's number. The watchdog keeps the program on the table of
// processes until the handle is there, so that the number is nobody else's.
func (p *Process) awaitStart(lines *bufio.Reader) error {
	_ = p.reports.SetReadDeadline(time.Now().Add(startPatience))
	line, err := lines.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	if reason, failed := strings.CutPrefix(line, reportFailed); failed {
		return errors.New(reason)
	}
	number, started := strings.CutPrefix(line, reportStarted)
	if err != nil || !started {
		return fmt.Errorf("its watchdog did not start it: %w", err)
	}
	if p.PID, err = strconv.Atoi(number); err != nil {
		return fmt.Errorf("its watchdog did not start it: %w", err)
	}
	if p.program, err = os.FindProcess(p.PID); err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the program: %w", err)
	}
	p.handle = os.NewFile(uintptr(fd), "program")
	_ = p.reports.SetReadDeadline(time.Time{})
	_, err = p.orders.Write([]byte{orderKnown})
	return err
}

// awaitEnd sees the end as soon as there is one, and that the watchdog does too.
func (p *Process) awaitEnd() {
	raw, err := p.handle.SyscallConn()
	if err != nil {
		<-p.died
		close(p.ended)
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
	close(p.ended)
	blind := time.AfterFunc(endPatience, func() { _ = p.watchdog.Process.Kill() })
	<-p.died
	blind.Stop()
}

// follow waits for the end.
func (p *Process) follow(lines *bufio.Reader) {
	line, _ := lines.ReadString('\n')
	number, told := strings.CutPrefix(strings.TrimSuffix(line, "\n"), reportExit)
	if status, err := strconv.ParseUint(number, 10, 32); told && err == nil {
		p.status = describe(unix.WaitStatus(status))
		close(p.died)
		p.endPatiently()
		close(p.gone)
		return
	}
	// The watchdog is dead, or will be. The kernel has killed the program unless that
	// has forbidden it.
	_ = p.program.Kill()
	p.endPatiently()
	p.status = "ended with its watchdog, which " + describe(waitStatus(p.watchdog.ProcessState))
	close(p.died)
	close(p.gone)
}

// endPatiently waits for the watchdog, and kills one that hangs.
func (p *Process) endPatiently() {
	hangs := time.AfterFunc(endPatience, func() { _ = p.watchdog.Process.Kill() })
	defer hangs.Stop()
	p.end()
}

// end waits for the watchdog and clears away behind it.
func (p *Process) end() {
	err := p.watchdog.Wait()
	p.host.forget(p.watchdog.Process.Pid)
	_, _ = p.orders.Close(), p.reports.Close()
	if err != nil {
		p.host.endOrphans()
	}
	if p.program != nil {
		_ = p.program.Release()
	}
	if p.handle != nil {
		_ = p.handle.Close()
	}
}

// Kill ends the program and all that it has started, whatever they do about it. It
// does not wait.
func (p *Process) Kill() {
	p.killing.Do(func() {
		_, _ = p.orders.Write([]byte{orderKill})
		_ = p.program.Kill()
		hangs := time.AfterFunc(endPatience, func() { _ = p.watchdog.Process.Kill() })
		go func() {
			<-p.gone
			hangs.Stop()
		}()
	})
}

// Ended is closed as soon as the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Died is closed soon after Ended, when it is known how the program has ended; what it
// has started may be there for a moment more.
func (p *Process) Died() <-chan struct{} { return p.died }

// Gone is closed when nothing of it is left.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Status says in words how the program ended, once Died is closed: "exited with
// status 1", "was killed by signal SIGKILL".
func (p *Process) Status() string { return p.status }

// Lives reports whether PID is the program's number still.
func (p *Process) Lives() bool { return p.program.Signal(syscall.Signal(0)) == nil }

func (h *Host) forget(watchdog int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchdogs, watchdog)
}

// endOrphans ends what came to this process because its watchdog was killed.
func (h *Host) endOrphans() {
	if !h.adopts {
		return
	}
	self, group := os.Getpid(), unix.Getpgrp()
	processtable.UntilNone(orphanPatience, func() (int, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		all, err := processtable.Read()
		if err != nil {
			return 0, err
		}
		orphans := processtable.Below(all, func(p processtable.Process) bool { return p.Parent == self && !h.watchdogs[p.PID] })
		living := processtable.Kill(orphans, group)
		for _, p := range orphans {
			if p.Parent == self && p.Zombie {
				_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
			}
		}
		return living, nil
	})
}

func waitStatus(state *os.ProcessState) unix.WaitStatus {
	if status, ok := state.Sys().(syscall.WaitStatus); ok {
		return unix.WaitStatus(status)
	}
	return 0
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "was killed by signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exited with status %d", status.ExitStatus())
}
