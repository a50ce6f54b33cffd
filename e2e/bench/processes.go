package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one of this machine's.
type process struct {
	pid, parent int
	cpu         time.Duration // used so far, in steps of clockTick
}

// clockTick is the unit of times in /proc, which is the same on all systems.
const clockTick = 10 * time.Millisecond

// listProcesses lists those that live now.
func listProcesses() (family, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	list := make(family, 0, len(dirs))
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The name in parentheses may hold anything. Behind it: state, parent,
		// and user and system time as the 12th and 13th.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		var p process
		var user, system int
		_, err = fmt.Sscan(strings.Join([]string{filepath.Base(dir), fields[1], fields[11], fields[12]}, " "), &p.pid, &p.parent, &user, &system)
		if err != nil {
			return nil, fmt.Errorf("%s/stat: %w", dir, err)
		}
		p.cpu = time.Duration(user+system) * clockTick
		list = append(list, p)
	}
	return list, nil
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// family is some processes.
type family []process

// cpu is the time that all have used.
func (f family) cpu() (sum time.Duration) {
	for _, p := range f {
		sum += p.cpu
	}
	return sum
}

// descendants are those that a process started, and those that they did.
func descendants(all family, pid int) family {
	children := map[int]family{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var list family
	var add func(pid int)
	add = func(pid int) {
		for _, p := range children[pid] {
			list = append(list, p)
			add(p.pid)
		}
	}
	add(pid)
	return list
}

// argv is the command line, empty for a process that has gone.
func (p process) argv() []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// exactCPU is the time that the threads of a process have used so far. Where many
// processes do little, steps of clockTick would hide it.
func (p process) exactCPU() (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.pid))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if gone(err) {
			continue
		}
		var ran time.Duration // in nanoseconds
		if err == nil {
			_, err = fmt.Sscan(string(text), &ran)
		}
		if err != nil {
			return 0, err
		}
		sum += ran
	}
	return sum, nil
}

// pss is a process's share of memory, in bytes: what it has alone, and its part of
// what it shares with others. It is 0 for a process that has gone.
func (p process) pss() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	if gone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(l, "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d tells no PSS", p.pid)
}

// sharesMemory reports whether a process has the memory of its parent, as a thread would.
func (p process) sharesMemory() bool {
	const sameVM = 1 // KCMP_VM of linux/kcmp.h
	order, _, failed := unix.Syscall6(unix.SYS_KCMP, uintptr(p.pid), uintptr(p.parent), sameVM, 0, 0, 0)
	return failed == 0 && order == 0
}

// quiet waits until all that was started here does next to nothing.
func quiet(ctx context.Context) error {
	const look, most = 300 * time.Millisecond, 20 * time.Millisecond
	tree := func() (family, error) {
		all, err := listProcesses()
		return descendants(all, os.Getpid()), err
	}
	before, err := tree()
	if err != nil {
		return err
	}
	return until(ctx, time.Minute, look, func() (bool, error) {
		now, err := tree()
		if err != nil {
			return false, err
		}
		used, same := now.cpu()-before.cpu(), len(before) == len(now)
		before = now
		return same && used <= most, nil
	})
}

// exactCPU is the sum of all.
func (f family) exactCPU() (sum time.Duration, err error) {
	for _, p := range f {
		used, err := p.exactCPU()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// pss is the sum of all, in bytes. What processes have one memory counts once: those in
// which gVisor runs threads of a sandbox have that of its program, and each would tell
// the whole of it.
func (f family) pss() (sum int64, err error) {
	for _, p := range f {
		if p.sharesMemory() {
			continue
		}
		pss, err := p.pss()
		if err != nil {
			return 0, err
		}
		sum += pss
	}
	return sum, nil
}
