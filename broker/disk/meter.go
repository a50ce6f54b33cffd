// Package disk tells operators how long the broker waits for its own disk, while it
// waits: a slow disk is seen in the log and in the metrics before anything is refused
// for it. How long who waits, and what is refused then, is decided by those who write:
// packages audit and store.
package disk

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// slowAfter is how long a wait may take before the log tells of it.
const slowAfter = time.Second

// Options of a Meter.
type Options struct {
	// Of is what is written, as the log names it: "audit log".
	Of     string
	Logger hclog.Logger
	// Bound is how long requests wait at most, for the log.
	Bound func() time.Duration
}

// Meter measures how long the disk takes. Its methods may be called concurrently.
type Meter struct {
	options Options

	mu      sync.Mutex
	waits   map[*wait]struct{}
	counts  []uint64 // by bucket, the last for those above all bounds
	sum     time.Duration
	slow    int           // ended waits of the time in which the disk is slow
	longest time.Duration // of them
	told    bool          // the log has told of it
}

type wait struct {
	began time.Time
	timer *time.Timer
}

// bounds of the buckets in seconds, from a good disk to one that is ill.
var bounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// NewMeter returns a meter that has measured nothing yet.
func NewMeter(o Options) *Meter {
	return &Meter{options: o, waits: map[*wait]struct{}{}, counts: make([]uint64, len(bounds)+1)}
}

// Begin begins a wait for the disk. The caller must call end when it is over.
func (m *Meter) Begin() (end func()) {
	w := &wait{began: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits[w] = struct{}{}
	// Who refuses earlier tells earlier.
	w.timer = time.AfterFunc(min(slowAfter, m.options.Bound()/2), m.tell)
	return func() { m.end(w) }
}

// tell has the log say that the disk is slow, once until it is not.
func (m *Meter) tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waits) == 0 || m.told {
		return // it has just ended
	}
	m.told = true
	m.options.Logger.Warn("the disk is slow; requests wait for it, each until its own deadline",
		"of", m.options.Of, "waited", m.oldest().Round(time.Millisecond).String(), "refused_after", m.options.Bound().String())
}

func (m *Meter) end(w *wait) {
	w.timer.Stop()
	took := time.Since(w.began)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waits, w)
	at, _ := slices.BinarySearch(bounds, took.Seconds())
	m.counts[at]++
	m.sum += took
	switch {
	case !m.told:
	case took >= min(slowAfter, m.options.Bound()/2):
		m.slow++
		m.longest = max(m.longest, took)
	case len(m.waits) == 0:
		m.options.Logger.Info("the disk is no longer slow", "of", m.options.Of, "slow_writes", m.slow, "longest", m.longest.Round(time.Millisecond).String())
		m.told, m.slow, m.longest = false, 0, 0
	}
}

// oldest is how long the oldest wait lasts. The caller holds mu.
func (m *Meter) oldest() time.Duration {
	var longest time.Duration
	for w := range m.waits {
		longest = max(longest, time.Since(w.began))
	}
	return longest
}

// State is what a meter has measured.
type State struct {
	// Waiting is how long the disk has been waited for at this moment.
	Waiting time.Duration
	// Count and Sum are of the waits that have ended, and Buckets how many of them
	// took at most so many seconds.
	Count   uint64
	Sum     time.Duration
	Buckets map[float64]uint64
}

// State returns what was measured.
func (m *Meter) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := State{Waiting: m.oldest(), Sum: m.sum, Buckets: map[float64]uint64{}}
	for i, bound := range bounds {
		s.Count += m.counts[i]
		s.Buckets[bound] = s.Count
	}
	s.Count += m.counts[len(bounds)]
	return s
}
