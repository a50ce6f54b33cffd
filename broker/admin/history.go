package admin

import (
	"slices"
	"sync"
	"time"
)

// keptReloads is how many reloads a History remembers.
const keptReloads = 50

// History remembers what became of the last attempts to change the configuration.
// The zero History is empty. It may be used concurrently.
type History struct {
	mu     sync.Mutex
	kept   []Reload // the newest last
	totals Totals
}

// Totals of a History, for the metrics.
type Totals struct {
	Applied, Refused int
	// LastAt is when the files were read the last time, zero if they never were
	// after the start; LastOK says whether they could be used. A change that an
	// administrator wanted and that was refused is not in the files and does not
	// count here.
	LastAt time.Time
	LastOK bool
}

// Add remembers a reload.
func (h *History) Add(r Reload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(r)
	result := r.Result()
	switch result {
	case "applied":
		h.totals.Applied++
	case "refused":
		h.totals.Refused++
	}
	if !r.Beside && (result != "refused" || r.Operation == "") {
		h.totals.LastAt, h.totals.LastOK = r.At, result != "refused"
	}
}

// Note remembers what was no change of the configuration and still made a
// generation: the start, and another executable of a plugin.
func (h *History) Note(r Reload) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(r)
}

func (h *History) keep(r Reload) {
	h.kept = append(h.kept, r)
	if len(h.kept) > keptReloads {
		h.kept = slices.Clone(h.kept[len(h.kept)-keptReloads:])
	}
}

// Reloads returns those that are remembered, the newest first.
func (h *History) Reloads() []Reload {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.kept)
	slices.Reverse(list)
	return list
}

// Totals counts all that were added.
func (h *History) Totals() Totals {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.totals
}
