package nemesis_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
)

const (
	// soonestDeath is how long after the begin of a harm its broker counts as dead at the
	// soonest: its lease lasts five seconds, it counts as dead five seconds later, and it has
	// renewed the lease at most a quarter of these ago, or a little more on a busy machine.
	soonestDeath = 6500 * time.Millisecond
	// leaseTime is how long ago a broker has renewed its lease at the most that has one.
	leaseTime = 5 * time.Second
	// steady is how long a broker has to be ready until it has certainly renewed its lease.
	steady = 2 * time.Second
	// lookEvery is how often it is looked whether it is.
	lookEvery = 200 * time.Millisecond
)

// health knows when a broker may count as dead with the others.
type health struct {
	mu     sync.Mutex
	harms  int       // that last
	since  time.Time // begin of the illness; zero for none
	better time.Time // since when it is ready again; zero while it is not
	past   []model.Window
}

// begin notes the begin of a harm.
func (h *health) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.harms++
	h.better = time.Time{}
	if h.since.IsZero() {
		h.since = time.Now()
	}
}

// end notes the end of a harm.
func (h *health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.harms--
}

// looked notes whether the broker was ready at a moment.
func (h *health) looked(at time.Time, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.since.IsZero() && !ready:
		h.since = at.Add(-leaseTime) // nobody has harmed it; but the machine has others to serve
	case h.since.IsZero():
	case h.harms > 0 || !ready:
		h.better = time.Time{}
	case h.better.IsZero():
		h.better = at
	case at.Sub(h.better) >= steady:
		if from := h.since.Add(soonestDeath); from.Before(at) {
			h.past = append(h.past, model.Window{From: from, To: at})
		}
		h.since, h.better = time.Time{}, time.Time{}
	}
}

// ill reports whether the broker may not have got over a harm yet.
func (b *broker) ill() bool {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	return !b.health.since.IsZero()
}

// windows are those in which the broker may have counted as dead.
func (b *broker) windows() (all []model.Window) {
	b.health.mu.Lock()
	defer b.health.mu.Unlock()
	for _, w := range b.health.past {
		w.Broker = b.id()
		all = append(all, w)
	}
	return all
}

// deaths says how often brokers may have counted as dead, and for how long together.
func (f *fleet) deaths() string {
	times, together := 0, time.Duration(0)
	for _, b := range f.brokers {
		for _, w := range b.windows() {
			times++
			together += w.To.Sub(w.From)
		}
	}
	return fmt.Sprintf("%d times, for %s together", times, together.Round(time.Second))
}

// watch looks after the health of a broker.
func (b *broker) watch() {
	b.closed.Add(1)
	defer b.closed.Done()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			at := time.Now()
			b.health.looked(at, b.ready())
		case <-b.closing:
			return
		}
	}
}

// sourceOf names the broker that a connection comes from, by its process.
func (f *fleet) sourceOf(from net.Addr) string {
	_, port, err := net.SplitHostPort(from.String())
	if err != nil {
		return "?"
	}
	inode := inodeOf(port)
	for _, b := range f.brokers {
		b.mu.Lock()
		cmd := b.cmd
		b.mu.Unlock()
		if cmd == nil || inode == "" {
			continue
		}
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		if err != nil {
			continue
		}
		for _, fd := range open {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+inode+"]" {
				return b.name
			}
		}
	}
	return "?"
}

// inodeOf is that of the socket with a local port of 127.0.0.1.
func inodeOf(port string) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		return ""
	}
	local := fmt.Sprintf("0100007F:%04X", n)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[1] == local {
			return fields[9]
		}
	}
	return ""
}

// addresses counts those that freeAddress gave.
var addresses atomic.Uint32

var firstAddress = rand.Uint32()

// freeAddress is one that the broker comes back to after each death. It is below the range from
// which the system takes ports for connections.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+(firstAddress+addresses.Add(1))%10000)
		if l, err := net.Listen("tcp", address); err == nil {
			assert.NilError(t, l.Close())
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}
