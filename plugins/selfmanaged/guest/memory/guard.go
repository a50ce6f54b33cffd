// Package memory keeps the programs of a sandbox within its memory, and tells
// which one was killed for it.
package memory

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// The guard looks again after shortestPause if memory is short. A program can
// allocate about 100 MB in that time; the sandbox's cgroup is the fence behind. A
// look costs nearly a millisecond of CPU, which many sandboxes with a command in
// the background pay for ever, so the more memory is free, the longer it waits:
// never so long that a program could take more than that beyond the limit.
const (
	shortestPause = 20 * time.Millisecond
	longestPause  = 250 * time.Millisecond
	perPause      = 100 << 20
)

// lag is for how many looks the figure for the whole sandbox may still
// show what the last execution used. After that, what the processes themselves
// hold tells nothing: memory also lies in files, in pipes and in no process at
// all.
const lag = 4

// settle is how long after a kill only what processes hold counts:
// gVisor's heap, where the rest lay, shrinks no sooner than it is collected, and
// the next execution shall not die for it.
const settle = 3 * time.Second

// Guard kills the program that uses most when the sandbox as a whole
// uses more memory than it may. The host's cgroup would kill the whole sandbox,
// and without a cgroup nothing would.
type Guard struct {
	limit int64
	own   atomic.Int64 // what no program uses; see Settle

	mu      sync.Mutex
	watched map[*Guarded]bool
	killed  time.Time // the last time
	stop    chan struct{}
	done    chan struct{}
}

// Program is what the guard watches over, with its descendants.
type Program interface {
	// Roots are the processes from which all of it descends.
	Roots() []int
	// Init is process 1 of its namespace, which holds nothing of the program's.
	Init() int
	// Kill ends every process of it.
	Kill()
}

// Guarded is a program under the guard.
type Guarded struct {
	guard   *Guard
	program Program
	oom     atomic.Bool
}

// NewGuard returns a guard that keeps the sandbox below limit bytes.
func NewGuard(limit int64) *Guard {
	return &Guard{limit: limit, watched: map[*Guarded]bool{}}
}

// maxOwn is the most that Settle takes for the guest's own. The host's limit has more
// room than that above the programs' one.
const maxOwn = 64 << 20

// Settle says that no program has run yet: what is in use now are the guest and the
// interpreters that wait, which are not charged to programs.
func (m *Guard) Settle() {
	if own, err := InUse(); err == nil {
		m.own.Store(min(own, maxOwn))
	}
}

// maxExempt is the most that Exempt takes for what was started, which programs that run
// meanwhile might make look larger.
const maxExempt = 24 << 20

// Exempt has start start something that waits, and does not charge it to programs.
func (m *Guard) Exempt(start func()) {
	before, err := InUse()
	start()
	if after, failed := InUse(); err == nil && failed == nil {
		grown := min(max(after-before, 0), maxExempt)
		m.own.Store(min(m.own.Load()+grown, maxOwn))
	}
}

// used is what the programs use together.
func (m *Guard) used() (int64, error) {
	all, err := InUse()
	return max(all-m.own.Load(), 0), err
}

// Room returns an error when the sandbox uses as much memory as it may.
func (m *Guard) Room() error {
	if m.limit == math.MaxInt64 {
		return nil
	}
	used, err := m.used()
	if err != nil {
		return fmt.Errorf("what memory is in use: %w", err)
	}
	if used < m.limit {
		return nil
	}
	return fmt.Errorf("the instance's memory is full: programs and files may use %d MiB together", m.limit>>20)
}

// HalfFree reports whether at least half of the memory is free.
func (m *Guard) HalfFree() bool {
	used, err := m.used()
	return err == nil && used < m.limit/2
}

// Watch puts a program under the guard until Release is called.
func (m *Guard) Watch(p Program) *Guarded {
	g := &Guarded{guard: m, program: p}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[g] = true
	if len(m.watched) == 1 {
		m.stop, m.done = make(chan struct{}), make(chan struct{})
		go m.poll(m.stop, m.done)
	}
	return g
}

// Release ends the watch.
func (g *Guarded) Release() {
	m := g.guard
	m.mu.Lock()
	delete(m.watched, g)
	var done chan struct{}
	if len(m.watched) == 0 {
		close(m.stop)
		done = m.done
	}
	m.mu.Unlock()
	if done != nil {
		<-done
	}
}

// Killed says whether the guard ended this program.
func (g *Guarded) Killed() bool { return g.oom.Load() }

// EndedForMemory says of a program that nobody here has killed but perhaps the guard
// whether memory was the reason. exit and ok are what its Exit returned.
//
// A program gets past the guard to the host's limit where the machine has no processor
// time for the guard. The host's kernel kills what it likes, and that may be a process of
// the program instead of the whole sandbox.
func (g *Guarded) EndedForMemory(exit isolation.Exit, ok bool) bool {
	if !ok {
		return g.Killed()
	}
	if exit.Signal != int(unix.SIGKILL) {
		return false
	}
	used, _ := g.guard.used() // 0 if nobody knows
	return max(exit.PeakBytes, used) >= g.guard.limit
}

func (m *Guard) poll(stop, done chan struct{}) {
	defer close(done)
	timer := time.NewTimer(shortestPause)
	defer timer.Stop()
	over := 0 // looks in a row
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		used, err := m.used()
		timer.Reset(pause(m.limit - used))
		if err != nil || used <= m.limit {
			over = 0
			continue
		}
		over++
		if m.killLargest(over > lag) {
			over = 0
		}
	}
}

// pause is how long a program takes at least to use what is free, and then
// perPause beyond.
func pause(free int64) time.Duration {
	pauses := min(max(free, 0)/perPause, int64(longestPause/shortestPause)) + 1
	return min(time.Duration(pauses)*shortestPause, longestPause)
}

// killLargest kills the program whose processes use most, if that is enough
// or whoever it is.
func (m *Guard) killLargest(whoever bool) bool {
	resident := residentByProcess()
	m.mu.Lock()
	defer m.mu.Unlock()
	atLeast := m.limit / 4
	if whoever && time.Since(m.killed) > settle {
		atLeast = 0
	}
	var largest *Guarded
	for g := range m.watched {
		if r := resident.below(g.program); !g.Killed() && r >= atLeast {
			largest, atLeast = g, r
		}
	}
	if largest == nil {
		return false
	}
	m.killed = time.Now()
	largest.oom.Store(true)
	largest.program.Kill()
	return true
}

// kernelAllowance is what gVisor's own heap may take for the ordinary work of
// programs. What is above it counts as theirs: a megabyte of pipe buffer or a
// thousand empty files lie there.
const kernelAllowance = 64 << 20

// InUse is what the programs of the sandbox use together, in whatever
// place.
func InUse() (int64, error) {
	used, err := memoryField("/proc/meminfo", "Active(anon)") // tmpfs is in it
	if err != nil {
		return 0, err
	}
	kernel, err := memoryField("/proc/sentry-meminfo", "HeapAlloc")
	if err != nil {
		kernel = 0 // not all versions tell
	}
	return used + max(kernel-kernelAllowance, 0), nil
}

func memoryField(file, name string) (int64, error) {
	text, err := read(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if field, value, _ := strings.Cut(line, ":"); field == name {
			return kilobytes(value)
		}
	}
	return 0, os.ErrNotExist
}

// read returns the beginning of a file, which one of procfs has whole. It does so in
// three system calls; os.ReadFile has ten.
func read(file string) (string, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: file, Err: err}
	}
	var text [8 << 10]byte
	n, err := unix.Read(fd, text[:])
	return string(text[:max(n, 0)]), errors.Join(err, unix.Close(fd))
}

func kilobytes(field string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(field), " kB"), 10, 64)
	return n << 10, err
}

// residents are the processes of the sandbox, by their PID.
type residents map[int]struct {
	parent int
	bytes  int64
}

// residentByProcess reads what memory each process has.
func residentByProcess() residents {
	all := residents{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := read("/proc/" + entry.Name() + "/status")
		if err != nil {
			continue // it has just ended
		}
		p := all[pid]
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "PPid":
				p.parent, _ = strconv.Atoi(strings.TrimSpace(value))
			case "VmRSS":
				p.bytes, _ = kilobytes(value)
			}
		}
		all[pid] = p
	}
	return all
}

// below sums the memory of the processes of a program.
func (all residents) below(program Program) (sum int64) {
	roots, init := program.Roots(), program.Init()
	for pid, p := range all {
		if pid == init {
			continue
		}
		for steps := 0; steps < len(all) && pid > 0; steps++ {
			if slices.Contains(roots, pid) {
				sum += p.bytes
				break
			}
			pid = all[pid].parent
		}
	}
	return sum
}
