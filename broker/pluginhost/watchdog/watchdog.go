package watchdog

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

const (
	// processName is how a watchdog is called; only the host starts one.
	processName = "sandbox-broker-watchdog"
	// shortName is the same for top, which shows 15 letters.
	shortName = "plugin-watchdog"
	// grace is how long a program may take to end by itself after its host is gone.
	grace = 5 * time.Second
)

// Descriptors of a watchdog beside those that are the program's.
const (
	ordersDescriptor = 3 + iota
	reportsDescriptor
	programDescriptor
)

// Orders of the host. The end of its pipe says that the host is gone.
const (
	orderKnown = 'a' // it has the program's number: it may be reaped from now on
	orderKill  = 'k'
)

// Reports to the host, one a line.
const (
	reportStarted = "pid "
	reportFailed  = "failed "
	reportExit    = "exit "
)

// Main is the life of a watchdog. In any other process it returns at once, so the main
// of a program that is given to NewHost calls it first.
func Main() {
	if os.Args[0] != processName || len(os.Args) != 4 {
		return
	}
	// The kernel's parent-death signal follows the thread that forks.
	runtime.LockOSThread()
	os.Exit(watch(os.Args[2], os.Args[3]))
}

// guard is the watchdog at work.
type guard struct {
	program int // its number
	known   bool
	dead    bool
	reports *os.File
}

// watch runs the program at path, under a name, and returns when nothing of it is left.
func watch(path, name string) int {
	// Not Ignore: children would inherit that.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGCHLD)
	for _, fd := range []int{ordersDescriptor, reportsDescriptor, programDescriptor} {
		unix.CloseOnExec(fd)
	}
	g := &guard{reports: os.NewFile(reportsDescriptor, "reports")}
	_ = os.WriteFile("/proc/self/comm", []byte(shortName), 0) // for people only
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return g.failed(fmt.Errorf("become a subreaper: %w", err))
	}
	cmd := &exec.Cmd{
		Path: path, Args: []string{name}, Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// A session of its own: none of its processes can join a group of ours.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return g.failed(err)
	}
	g.program = cmd.Process.Pid
	unix.Close(programDescriptor)
	if err := leaveStreams(); err != nil {
		_ = cmd.Process.Kill()
		return g.failed(err)
	}
	g.report(fmt.Sprint(reportStarted, g.program))

	orders := make(chan byte)
	go readOrders(orders)
	g.follow(signals, orders)
	g.endAll()
	return 0
}

// follow returns when the program has ended or is to end.
func (g *guard) follow(signals <-chan os.Signal, orders <-chan byte) {
	var tooLong <-chan time.Time
	for !g.dead {
		select {
		case s := <-signals:
			if s == unix.SIGCHLD {
				g.reap()
			}
		case order, there := <-orders:
			switch {
			case !there:
				orders, tooLong = nil, time.After(grace)
				g.known = true // to nobody
				g.reap()
			case order == orderKnown:
				g.known = true
				g.reap()
			case order == orderKill:
				g.known = true
				return
			}
		case <-tooLong:
			return
		}
	}
}

// reap takes what has ended off the table of processes.
func (g *guard) reap() {
	for g.known {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || pid <= 0:
			return
		case pid == g.program:
			g.dead = true
			g.report(fmt.Sprint(reportExit, uint32(status)))
		}
	}
}

// endAll ends whatever is below this process.
func (g *guard) endAll() {
	self, group := os.Getpid(), unix.Getpgrp()
	processtable.UntilNone(0, func() (int, error) {
		g.reap()
		all, err := processtable.Read()
		if err != nil {
			return 0, err
		}
		living := processtable.Kill(processtable.Below(all, func(p processtable.Process) bool { return p.Parent == self }), group)
		// A program whose first thread has ended before the others looks like one that
		// has ended, and does not tell yet how.
		if !g.dead && slices.ContainsFunc(all, func(p processtable.Process) bool { return p.PID == g.program && p.Zombie }) {
			living++
		}
		return living, nil
	})
	g.reap()
}

func (g *guard) report(line string) { _, _ = fmt.Fprintln(g.reports, line) }

func (g *guard) failed(err error) int {
	g.report(fmt.Sprint(reportFailed, err))
	return 1
}

// leaveStreams leaves the program's streams to the program: their ends are news.
func leaveStreams() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

func readOrders(orders chan<- byte) {
	defer close(orders)
	pipe := os.NewFile(ordersDescriptor, "orders")
	order := make([]byte, 1)
	for {
		if _, err := pipe.Read(order); err != nil {
			return
		}
		orders <- order[0]
	}
}
