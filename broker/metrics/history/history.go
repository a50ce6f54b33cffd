package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// Step is the time from one point to the next.
	Step = 10 * time.Second
	// Kept is how many points there are of each series: an hour.
	Kept = int(time.Hour / Step)
	// MaxSeries bounds the series: what comes to be beyond that is left out.
	MaxSeries = 256
)

// Reading is what is counted at one moment. Counts are those since the start of the
// broker.
type Reading struct {
	// Requests that were answered, by their code; "ok" for those without one.
	Requests map[string]float64
	// Latency of the same requests.
	Latency Histogram
	// Executions that have ended, by provider.
	Executions map[string]float64
	// Instances by state, and ready sandboxes by provider, at this moment.
	Instances, Pool map[string]float64
	// Waiting requests at this moment.
	Waiting float64
	// Failovers from any provider to any other.
	Failovers float64
	// Cost of all instances so far, in the operator's unit; nil where nothing has a price.
	Cost *float64
}

// Histogram counts observations.
type Histogram struct {
	// Bounds are the upper bounds of the buckets but the last one, which has none, in
	// seconds and ascending.
	Bounds []float64
	// Counts are cumulative, one for each bound, and Total is all of them.
	Counts []float64
	Total  float64
}

// Series is one figure over time.
type Series struct {
	Name, Label, Unit string
	// Points are as many as the window has; NaN where nothing is known.
	Points []float64
}

// Window is a part of the history, the oldest point first.
type Window struct {
	// From and To are the times of the first and the last point.
	From, To time.Time
	Series   []Series
}

// definition of a figure, in the order in which they are shown.
type definition struct {
	name, unit string
	counts     bool // so that there is 0 where it does not show up
	always     bool // also without any point
}

var definitions = []definition{
	{"requests", "1/s", true, false},
	{"latency_p50", "s", false, true},
	{"latency_p95", "s", false, true},
	{"latency_p99", "s", false, true},
	{"executions", "1/s", true, false},
	{"instances", "", false, false},
	{"pool", "", false, false},
	{"waiting", "", false, true},
	{"cost", "unit", false, true},
	{"failovers", "1/s", true, true},
}

// key of a series: the index of its definition and its label.
type key struct {
	definition int
	label      string
}

// ring holds the points of a series, each in the slot of its step modulo Kept.
type ring [Kept]float64

// Recorder keeps the history. Its methods may be called concurrently.
type Recorder struct {
	read func() Reading

	mu     sync.Mutex
	began  time.Time // the time of step 0
	step   int       // of the last point; -1 before the first
	at     time.Time // of the last point
	last   Reading
	spent  float64 // the most that Cost was
	series map[key]*ring
	known  [Kept]bool // there is a point in the slot
}

// NewRecorder returns a recorder of what read counts. Run fills it.
func NewRecorder(read func() Reading) *Recorder {
	return &Recorder{read: read, step: -1, series: map[key]*ring{}}
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	ticker := time.NewTicker(Step)
	defer ticker.Stop()
	r.record()
	for {
		select {
		case <-ticker.C:
			r.record()
		case <-ctx.Done():
			return
		}
	}
}

// record adds the point of this moment.
func (r *Recorder) record() {
	reading, now := r.read(), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.step < 0 {
		r.began, r.step, r.at = now, 0, now
		r.spent = valueOr(reading.Cost, 0)
		r.known[0] = true
		r.gauges(reading)
		r.last = reading
		return
	}
	step := int(now.Sub(r.began)+Step/2) / int(Step)
	if step <= r.step {
		return // the ticker was late, and then in time again
	}
	for skipped := r.step + 1; skipped <= step && skipped <= r.step+Kept; skipped++ {
		r.clear(skipped % Kept)
	}
	elapsed := now.Sub(r.at).Seconds()
	r.step, r.at = step, now
	r.known[step%Kept] = true
	r.gauges(reading)
	r.rates(reading, elapsed)
	r.last = reading
}

// clear makes room in a slot, and drops series that have no point any more. The caller
// holds mu, as for all that follows.
func (r *Recorder) clear(slot int) {
	r.known[slot] = false
	for k, points := range r.series {
		points[slot] = math.NaN()
		if !slices.ContainsFunc(points[:], func(point float64) bool {
			return !math.IsNaN(point) && (point != 0 || !definitions[k.definition].counts)
		}) {
			delete(r.series, k)
		}
	}
}

func (r *Recorder) gauges(reading Reading) {
	for state, n := range reading.Instances {
		r.set("instances", state, n)
	}
	for provider, n := range reading.Pool {
		r.set("pool", provider, n)
	}
	r.set("waiting", "", reading.Waiting)
}

func (r *Recorder) rates(now Reading, elapsed float64) {
	for code, n := range now.Requests {
		r.set("requests", code, rate(n-r.last.Requests[code], elapsed))
	}
	for provider, n := range now.Executions {
		r.set("executions", provider, rate(n-r.last.Executions[provider], elapsed))
	}
	r.set("failovers", "", rate(now.Failovers-r.last.Failovers, elapsed))
	between := now.Latency.since(r.last.Latency)
	for name, q := range map[string]float64{"latency_p50": .5, "latency_p95": .95, "latency_p99": .99} {
		r.set(name, "", between.quantile(q))
	}
	if now.Cost != nil {
		// What was charged for an instance that was not made comes back: the sum is right,
		// and no step gives money.
		r.set("cost", "", max(0, *now.Cost-r.spent))
		r.spent = max(r.spent, *now.Cost)
	}
}

// set makes a point of the last step.
func (r *Recorder) set(name, label string, value float64) {
	d := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name })
	k := key{d, label}
	points := r.series[k]
	if points == nil {
		if math.IsNaN(value) || value == 0 && definitions[d].counts || len(r.series) >= MaxSeries {
			return
		}
		points = new(ring)
		for slot := range points {
			points[slot] = math.NaN()
		}
		r.series[k] = points
	}
	points[r.step%Kept] = value
}

// Window returns the last points, at most Kept of them. Where the broker is younger than
// that nothing is known of the time before.
func (r *Recorder) Window(points int) Window {
	points = min(max(points, 1), Kept)
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.at
	if r.step < 0 {
		to = time.Now()
	}
	w := Window{From: to.Add(-time.Duration(points-1) * Step), To: to}
	for d := range definitions {
		var labels []string
		for k := range r.series {
			if k.definition == d {
				labels = append(labels, k.label)
			}
		}
		if len(labels) == 0 && definitions[d].always {
			labels = []string{""}
		}
		slices.Sort(labels)
		for _, label := range labels {
			w.Series = append(w.Series, r.window(d, label, points))
		}
	}
	return w
}

func (r *Recorder) window(d int, label string, points int) Series {
	s := Series{Name: definitions[d].name, Label: label, Unit: definitions[d].unit}
	kept := r.series[key{d, label}]
	for step := r.step - points + 1; step <= r.step; step++ {
		value := math.NaN()
		if step >= 0 && kept != nil {
			value = kept[step%Kept]
		}
		// The first point has no time before it to count in.
		if definitions[d].counts && math.IsNaN(value) && step > 0 && r.known[step%Kept] {
			value = 0
		}
		s.Points = append(s.Points, value)
	}
	return s
}

func rate(n, seconds float64) float64 {
	if seconds <= 0 {
		return math.NaN()
	}
	return max(0, n) / seconds
}

func valueOr(p *float64, otherwise float64) float64 {
	if p == nil {
		return otherwise
	}
	return *p
}

// since are the observations that came after an earlier state.
func (h Histogram) since(earlier Histogram) Histogram {
	between := Histogram{Bounds: h.Bounds, Total: h.Total - earlier.Total}
	for i, n := range h.Counts {
		if i < len(earlier.Counts) {
			n -= earlier.Counts[i]
		}
		between.Counts = append(between.Counts, n)
	}
	return between
}

// quantile is about what a share of the observations is not above: within a bucket they
// are taken to be spread evenly, and what is above the last bound counts as that bound.
// It is NaN where there are none.
func (h Histogram) quantile(q float64) float64 {
	if h.Total <= 0 || len(h.Bounds) == 0 || len(h.Counts) != len(h.Bounds) {
		return math.NaN()
	}
	rank := q * h.Total
	i, _ := slices.BinarySearchFunc(h.Counts, rank, func(count, rank float64) int { return cmp.Compare(count, rank) })
	if i == len(h.Bounds) {
		return h.Bounds[len(h.Bounds)-1]
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = h.Bounds[i-1], h.Counts[i-1]
	}
	within := h.Counts[i] - below
	if within <= 0 {
		return h.Bounds[i]
	}
	return lower + (h.Bounds[i]-lower)*(rank-below)/within
}
