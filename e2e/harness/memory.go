package harness

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Memory watches how much memory processes hold, until the test ends.
type Memory struct {
	allowed int64
	pids    map[string]int
	before  map[string]int64

	mu   sync.Mutex
	most map[string]int64
}

// WatchMemory begins to watch. Each process may hold so many bytes more than now.
func WatchMemory(t testing.TB, allowed int64, pids map[string]int) *Memory {
	m := &Memory{allowed: allowed, pids: pids, before: map[string]int64{}, most: map[string]int64{}}
	for name, pid := range pids {
		m.before[name] = anonymous(t, pid)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				m.look(t)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return m
}

func (m *Memory) look(t testing.TB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, pid := range m.pids {
		m.most[name] = max(m.most[name], anonymous(t, pid))
	}
}

// Check fails the test if a process has held too much since the watch began.
func (m *Memory) Check(t testing.TB, what string) {
	t.Helper()
	m.look(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.pids {
		more := m.most[name] - m.before[name]
		t.Logf("%s: the %s held %d MiB more than the %d MiB before", what, name, more>>20, m.before[name]>>20)
		assert.Check(t, more < m.allowed, "%s: the %s held %d MiB more", what, name, more>>20)
	}
}

// anonymous is the memory of a process that is its own, in bytes.
func anonymous(t testing.TB, pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kb int64
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	t.Error("no RssAnon")
	return 0
}
