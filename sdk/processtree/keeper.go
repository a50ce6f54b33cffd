package processtree

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

// keeperName is how a keeper is called; only Start starts one.
const keeperName = "sandbox-broker-processtree"

// Descriptors of a keeper beside those that are the program's.
const (
	ordersDescriptor = 3 + iota
	reportsDescriptor
	firstExtraDescriptor
)

// Reports, one a line. What is none of these answers an order.
const (
	reportStarted   = "started\n"
	reportErrno     = "errno %d"
	reportExit      = "exit %d %d\n"
	reportSignalled = "signalled\n"
)

// startOrder is the first order, on a line of its own. It is not in the keeper's
// arguments and environment, for those would change the keeper itself and are to be seen
// by everybody on the machine. Each byte behind it is a signal to send.
type startOrder struct {
	Path       string
	Argv, Env  []string
	Dir        string
	ExtraFiles int
}

// A keeper must become one before main of whatever program this is does anything: in a
// test, main would run the tests.
func init() {
	if os.Args[0] != keeperName || len(os.Args) != 1 {
		return
	}
	// The kernel's parent-death signal follows the thread that forks.
	runtime.LockOSThread()
	os.Exit(keep())
}

// keeper is at work in a process of its own.
type keeper struct {
	program int // its number
	status  unix.WaitStatus
	dead    bool
	reports *os.File
}

// keep runs the program and returns when nothing of it is left.
func keep() int {
	// Not Ignore: children would inherit that.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGCHLD)
	unix.CloseOnExec(ordersDescriptor)
	unix.CloseOnExec(reportsDescriptor)
	k := &keeper{reports: os.NewFile(reportsDescriptor, "reports")}
	orders := bufio.NewReader(os.NewFile(ordersDescriptor, "orders"))
	if err := k.start(orders); err != nil {
		return k.failed(err)
	}
	k.report(reportStarted)
	toSend := make(chan unix.Signal)
	go readOrders(orders, toSend)
	for !k.dead {
		select {
		case s := <-signals:
			if s == unix.SIGCHLD {
				k.reap()
			}
			continue
		case order := <-toSend:
			if order != unix.SIGKILL {
				k.signal(order)
				continue
			}
		}
		break
	}
	k.endAll()
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &used)
	k.report(fmt.Sprintf(reportExit, uint32(k.status), time.Duration(used.Utime.Nano()+used.Stime.Nano())))
	return 0
}

func (k *keeper) start(orders *bufio.Reader) error {
	line, err := orders.ReadBytes('\n')
	if err != nil {
		return err
	}
	var order startOrder
	if err := json.Unmarshal(line, &order); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: order.Path, Args: order.Argv, Env: order.Env, Dir: order.Dir,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		// A session of its own: none of its processes can join a group of ours.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	}
	for i := range order.ExtraFiles {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(firstExtraDescriptor+i), "extra"))
		unix.CloseOnExec(firstExtraDescriptor + i)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	k.program = cmd.Process.Pid
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	return leaveStreams()
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

// readOrders passes on which signals to send. When the plugin is gone that is SIGKILL.
func readOrders(orders *bufio.Reader, toSend chan<- unix.Signal) {
	for {
		order, err := orders.ReadByte()
		if err != nil {
			toSend <- unix.SIGKILL
			return
		}
		toSend <- unix.Signal(order)
	}
}

// reap takes what has ended off the table of processes.
func (k *keeper) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return
		case pid == k.program:
			k.dead, k.status = true, status
		}
	}
}

func ofThisProcess(p processtable.Process) bool { return p.Parent == os.Getpid() }

// signal sends a signal to all that is below this process. This is their parent's parent
// or the one that reaps them: no number is another process's before it is read anew.
func (k *keeper) signal(s unix.Signal) {
	if all, err := processtable.Read(); err == nil {
		for _, p := range processtable.Below(all, ofThisProcess) {
			_ = unix.Kill(p.PID, s) // it may have ended
		}
	}
	k.report(reportSignalled)
}

// endAll ends whatever is below this process.
func (k *keeper) endAll() {
	group := unix.Getpgrp()
	processtable.UntilNone(0, func() (int, error) {
		k.reap()
		all, err := processtable.Read()
		if err != nil {
			return 0, err
		}
		living := processtable.Kill(processtable.Below(all, ofThisProcess), group)
		// A program whose first thread has ended before the others looks like one that
		// has ended, and does not tell yet how.
		if !k.dead && slices.ContainsFunc(all, func(p processtable.Process) bool { return p.PID == k.program && p.Zombie }) {
			living++
		}
		return living, nil
	})
	k.reap()
}

func (k *keeper) report(line string) { _, _ = k.reports.WriteString(line) }

func (k *keeper) failed(err error) int {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		k.report(fmt.Sprintf(reportErrno+"\n", int(errno)))
	} else {
		k.report(strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
	}
	return 1
}
