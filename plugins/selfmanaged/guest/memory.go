package guest

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// memoryPoll is how often the guard looks while something runs. A program can
// allocate about 100 MB in that time; the sandbox's cgroup is the fence behind.
const memoryPoll = 20 * time.Millisecond

// memoryGuard kills the execution that uses most when the sandbox as a whole
// uses more memory than it may. The host's cgroup would kill the whole sandbox,
// and without a cgroup nothing would.
type memoryGuard struct {
	limit int64

	mu      sync.Mutex
	watched map[*guarded]bool
	stop    chan struct{}
	done    chan struct{}
}

// guarded is one execution under the guard.
type guarded struct {
	guard   *memoryGuard
	process *process
	oom     atomic.Bool
}

func newMemoryGuard(limit int64) *memoryGuard {
	return &memoryGuard{limit: limit, watched: map[*guarded]bool{}}
}

// watch puts a process under the guard until release is called.
func (m *memoryGuard) watch(p *process) *guarded {
	g := &guarded{guard: m, process: p}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched[g] = true
	if len(m.watched) == 1 {
		m.stop, m.done = make(chan struct{}), make(chan struct{})
		go m.poll(m.stop, m.done)
	}
	return g
}

func (g *guarded) release() {
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

// killed says whether the guard ended this execution.
func (g *guarded) killed() bool { return g.oom.Load() }

func (m *memoryGuard) poll(stop, done chan struct{}) {
	defer close(done)
	ticker := time.NewTicker(memoryPoll)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			if used, err := memoryInUse(); err == nil && used > m.limit {
				m.killLargest()
			}
		}
	}
}

// killLargest leaves small executions alone: the figure for the whole sandbox
// lags, and shall not cost the next execution its life for the last one's.
func (m *memoryGuard) killLargest() {
	resident := residentByInit()
	m.mu.Lock()
	defer m.mu.Unlock()
	var largest *guarded
	size := m.limit / 4
	for g := range m.watched {
		if r := resident[g.process.init.Process.Pid]; !g.killed() && r >= size {
			largest, size = g, r
		}
	}
	if largest != nil {
		largest.oom.Store(true)
		largest.process.kill()
	}
}

// memoryInUse is what programs and tmpfs files of the sandbox use together.
func memoryInUse() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	var used int64
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		// gVisor counts tmpfs in Active(anon).
		if rest, ok := strings.CutPrefix(lines.Text(), "Active(anon):"); ok {
			used, err = kilobytes(rest)
			return used, err
		}
	}
	return 0, os.ErrNotExist
}

func kilobytes(field string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(field), " kB"), 10, 64)
	return n << 10, err
}

// residentByInit sums the resident memory of all processes by the child of the
// guest that they descend from: the init of their execution. Orphans belong to
// their namespace's init, so the way up always leads there.
func residentByInit() map[int]int64 {
	type proc struct {
		parent   int
		resident int64
	}
	procs := map[int]proc{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/status")
		if err != nil {
			continue // it has just ended
		}
		var p proc
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "PPid":
				p.parent, _ = strconv.Atoi(strings.TrimSpace(value))
			case "VmRSS":
				p.resident, _ = kilobytes(value)
			}
		}
		procs[pid] = p
	}
	guest := os.Getpid()
	sums := map[int]int64{}
	for pid, p := range procs {
		top := pid
		for steps := 0; steps < len(procs) && procs[top].parent != guest; steps++ {
			top = procs[top].parent
		}
		sums[top] += p.resident
	}
	return sums
}
