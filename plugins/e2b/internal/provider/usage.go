package provider

import (
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// usage counts what is paid for.
type usage struct {
	mu      sync.Mutex
	since   map[string]time.Time // of sandboxes that run
	spent   time.Duration        // by those that do not any more
	created int
	failed  int
}

// begin counts from now on.
func (u *usage) begin(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	u.since[id] = time.Now()
}

// finish ends the counting for a sandbox that ended or was paused.
func (u *usage) finish(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if since, ok := u.since[id]; ok {
		u.spent += time.Since(since)
		delete(u.since, id)
	}
}

// creation counts one that ended.
func (u *usage) creation(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		u.failed++
		return
	}
	u.created++
}

func (u *usage) metrics(costPerSecond float64) []sdk.Metric {
	u.mu.Lock()
	defer u.mu.Unlock()
	seconds := u.spent
	for _, since := range u.since {
		seconds += time.Since(since)
	}
	counter := func(name, help string, value float64) sdk.Metric {
		return sdk.Metric{Name: name, Help: help, Kind: sdk.MetricCounter, Value: value}
	}
	all := []sdk.Metric{
		{Name: "sandboxes_running", Help: "Sandboxes that run, as far as this process knows.", Kind: sdk.MetricGauge, Value: float64(len(u.since))},
		counter("sandboxes_created_total", "Sandboxes that were made.", float64(u.created)),
		counter("sandboxes_failed_total", "Creations that failed.", float64(u.failed)),
		counter("sandbox_seconds_total", "Seconds that sandboxes ran while this process was there.", seconds.Seconds()),
	}
	if costPerSecond > 0 {
		all = append(all, counter("cost_total", "What these seconds cost, in the currency of cost_per_second.", seconds.Seconds()*costPerSecond))
	}
	return all
}
