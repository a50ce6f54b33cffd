// Package orphans reaps what was orphaned in a container whose process 1 is the guest.
//
// Everything that the guest starts for user code is in a PID namespace of its own, and so
// are the orphans of that. In the guest's own namespace there is what somebody else has
// started in the container, as `kubectl exec` does, and its orphans are the guest's
// children, for which nobody waits.
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

// zombies are the children of this process in its own PID namespace that have ended.
func zombies() (pids []int) {
	own := strconv.Itoa(os.Getpid())
	namespace, err := os.Readlink("/proc/self/ns/pid")
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
		if len(fields) < 2 || fields[0] != "Z" || fields[1] != own {
			continue
		}
		if its, err := os.Readlink("/proc/" + name.Name() + "/ns/pid"); err == nil && its == namespace {
			pids = append(pids, pid)
		}
	}
	return pids
}
