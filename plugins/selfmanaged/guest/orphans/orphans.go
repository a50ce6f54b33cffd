// Package orphans reaps what was orphaned in a container whose process 1 is the guest.
//
// Everything that the guest starts for user code is in a PID namespace of its own, where its
// orphans stay. But somebody else may have started something in the container, as
// `kubectl exec` does, and its orphans are the guest's children, for which nobody waits.
package orphans

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pause is how long after a child has ended is looked. Who is still there when it is looked
// again is waited for by nobody: the guest waits at once for its own.
const pause = time.Second

// Reap reaps the orphans of process 1 until ctx ends. The function that it returns waits for
// the end of that. It costs nothing as long as no child ends.
func Reap(ctx context.Context) (wait func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	var running sync.WaitGroup
	running.Go(func() {
		defer signal.Stop(ended)
		var seen map[int]bool
		var look <-chan time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case <-ended:
				if look == nil {
					look = time.After(pause)
				}
			case <-look:
				look = nil
				if seen = reap(seen); len(seen) > 0 {
					look = time.After(pause)
				}
			}
		}
	})
	return running.Wait
}

// reap waits for the zombies that were seen before, and returns the others.
func reap(seen map[int]bool) (others map[int]bool) {
	others = map[int]bool{}
	for _, pid := range zombies() {
		if !seen[pid] {
			others[pid] = true
			continue
		}
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // whoever was first
	}
	return others
}

// zombies are the children of this process that have ended and that it has not started: its
// own are in its session or lead one, and others are in that of whom they were started by.
func zombies() (pids []int) {
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + name.Name() + "/stat")
		if err != nil {
			continue // it has just gone
		}
		// The name of the program, in parentheses, may hold anything.
		fields := strings.Fields(string(text)[strings.LastIndex(string(text), ")")+1:])
		if len(fields) < 4 || fields[0] != "Z" || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if its, err := strconv.Atoi(fields[3]); err == nil && its != session && its != pid {
			pids = append(pids, pid)
		}
	}
	return pids
}
