package watchdog

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

// markName is the variable by which what a host has started is known.
const markName = "SANDBOX_BROKER_RUN"

// Bounds of EndLeftBehind.
const (
	// watchedPatience is how long watchdogs have, which end their programs after grace.
	watchedPatience = grace + 2*time.Second
	// killPatience is how long the kernel has for what was killed.
	killPatience = 2 * time.Second
)

// Mark is what to put into the environment of a program, so that EndLeftBehind finds
// it and what it has started. The run says whose it is, and is never used again.
func Mark(run string) string { return markName + "=" + run }

// EndLeftBehind returns when nothing is left of a run whose host is dead, so that what the
// run had to itself, its directories above all, can be somebody else's. What a watchdog sees
// to has the time that the watchdog gives; the rest is ended at once. A process that has
// changed its own environment and that no watchdog sees to is not found.
func EndLeftBehind(run string) {
	if endMarked(run, watchedPatience, true) {
		return
	}
	endMarked(run, killPatience, false) // a watchdog that is stopped ends nothing
}

// endMarked ends the processes of a run, but for those that a watchdog sees to if these are
// spared, and waits for them all. It reports whether none is left.
func endMarked(run string, patience time.Duration, spareWatched bool) (none bool) {
	mark := []byte(Mark(run))
	processtable.UntilNone(patience, func() (int, error) {
		all, err := processtable.Read()
		if err != nil {
			return 0, err
		}
		watched := map[int]bool{}
		for _, p := range processtable.Below(all, func(p processtable.Process) bool { return isWatchdog(p.PID) }) {
			watched[p.PID] = spareWatched
		}
		living := 0
		for _, p := range all {
			if p.Zombie || p.PID == os.Getpid() || !marked(p.PID, mark) {
				continue
			}
			// Not their groups: others may be in them.
			if watched[p.PID] || unix.Kill(p.PID, unix.SIGKILL) == nil {
				living++
			}
		}
		none = living == 0
		return living, nil
	})
	return none
}

func isWatchdog(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.HasPrefix(string(line), processName+"\x00")
}

func marked(pid int, mark []byte) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		if bytes.Equal(variable, mark) {
			return true
		}
	}
	return false
}
