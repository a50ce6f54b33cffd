// Package processtable reads the processes of this machine, finds those that descend from
// some, and kills them: what package processtree and the broker's watchdog of plugins
// have in common. It works on Linux only.
package processtable

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one entry of the table of processes at one moment.
type Process struct {
	PID, Parent, Group int
	// Zombie is one that has ended and was not waited for.
	Zombie bool
}

// Read returns the processes of this machine, or of the container that this is in.
func Read() ([]Process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if p, ok := parseStat(pid, string(stat)); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// parseStat reads /proc/PID/stat. The name in parentheses is the program's choice and
// may hold anything, parentheses too.
func parseStat(pid int, stat string) (Process, bool) {
	_, after, found := cutLast(stat, ")")
	fields := strings.Fields(after)
	if !found || len(fields) < 3 {
		return Process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, false
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return Process{}, false
	}
	return Process{PID: pid, Parent: parent, Group: group, Zombie: fields[0] == "Z" || fields[0] == "X"}, true
}

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// Below returns the processes that descend from those for which root holds, and
// those themselves.
func Below(all []Process, root func(Process) bool) []Process {
	children := map[int][]Process{}
	var found []Process
	for _, p := range all {
		if root(p) {
			found = append(found, p)
		} else {
			children[p.Parent] = append(children[p.Parent], p)
		}
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
		delete(children, found[i].PID)
	}
	return found
}

// Kill sends SIGKILL to processes and to the whole groups that they are in but one, and
// reports how many it could signal that live. A group is signalled in one step, so that
// none of its members gets away by forking. Their numbers are a moment old: the kernel
// gives numbers out in turn, and does not come round in that time.
func Kill(victims []Process, spared int) (living int) {
	groups := map[int]bool{spared: true}
	for _, v := range victims {
		if !v.Zombie && !groups[v.Group] && v.Group > 1 {
			groups[v.Group] = true
			_ = unix.Kill(-v.Group, unix.SIGKILL)
		}
	}
	for _, v := range victims {
		// A program that became another user's, by setuid, cannot be signalled.
		if !v.Zombie && !errors.Is(unix.Kill(v.PID, unix.SIGKILL), unix.EPERM) {
			living++
		}
	}
	return living
}

const (
	shortestLook = time.Millisecond
	longestLook  = 50 * time.Millisecond
)

// UntilNone repeats look, ever more slowly, until it finds none or limit is over; no
// limit is 0.
func UntilNone(limit time.Duration, look func() (living int, err error)) {
	began := time.Now()
	for pause := shortestLook; ; pause = min(2*pause, longestLook) {
		living, err := look()
		if err == nil && living == 0 {
			return
		}
		if limit > 0 && time.Since(began) > limit {
			return
		}
		time.Sleep(pause)
	}
}
