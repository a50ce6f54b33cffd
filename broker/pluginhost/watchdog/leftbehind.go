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

// leftBehindPatience bounds EndLeftBehind.
const leftBehindPatience = 2 * time.Second

// Mark is what to put into the environment of a program, so that EndLeftBehind finds
// it and what it has started. The run says whose it is, and is never used again.
func Mark(run string) string { return markName + "=" + run }

// EndLeftBehind ends what is left of a run whose host is dead and that no watchdog sees
// to any more. A process that has changed its own environment is not found.
func EndLeftBehind(run string) {
	mark := []byte(Mark(run))
	processtable.UntilNone(leftBehindPatience, func() (int, error) {
		all, err := processtable.Read()
		if err != nil {
			return 0, err
		}
		watched := map[int]bool{}
		for _, p := range processtable.Below(all, func(p processtable.Process) bool { return isWatchdog(p.PID) }) {
			watched[p.PID] = true
		}
		var left []processtable.Process
		for _, p := range all {
			if !p.Zombie && p.PID != os.Getpid() && !watched[p.PID] && marked(p.PID, mark) {
				left = append(left, p)
			}
		}
		living := 0
		for _, p := range left { // not their groups: others may be in them
			if unix.Kill(p.PID, unix.SIGKILL) == nil {
				living++
			}
		}
		return living, nil
	})
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
