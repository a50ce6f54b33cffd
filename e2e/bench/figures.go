package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/perf/benchmath"
)

// quantity is what a figure is of. Its name has the unit, for files of figures.
type quantity string

const (
	p50       quantity = "p50_ms"
	p95       quantity = "p95_ms"
	p99       quantity = "p99_ms"
	rate      quantity = "per_second"
	memory    quantity = "memory_mb"
	processes quantity = "processes"
	processor quantity = "cpu_percent"
	syncs     quantity = "syncs"
)

// show is a figure with its unit.
func (q quantity) show(v float64) string {
	switch q {
	case p50, p95, p99:
		precision := 1
		if math.Abs(v) < 10 {
			precision = 2
		}
		return fmt.Sprintf("%.*f ms", precision, v)
	case rate:
		return fmt.Sprintf("%.1f a second", v)
	case memory:
		return fmt.Sprintf("%.1f MB", v)
	case processor:
		return fmt.Sprintf("%.2f %% of a CPU", v)
	case syncs:
		return fmt.Sprintf("%.2f syncs", v)
	default:
		return fmt.Sprintf("%.1f %s", v, q)
	}
}

// word is the quantity's name in the table.
func (q quantity) word() string {
	switch q {
	case p50, p95, p99:
		return string(q[:3])
	case rate:
		return "rate"
	case processor:
		return "CPU"
	case memory:
		return "memory"
	default:
		return string(q)
	}
}

// quantities that a table shows, in its order.
var quantities = []quantity{p50, p95, p99, rate, memory, processes, processor, syncs}

// lowerIsBetter is so of every quantity but one.
func (q quantity) lowerIsBetter() bool { return q != rate }

// figures are values of some quantities.
type figures map[quantity]float64

// times of measurements of one kind.
type times []time.Duration

// percentile is the smallest time that so many percent do not exceed.
func (t times) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// figures are the percentiles, none of no times.
func (t times) figures() figures {
	f := figures{}
	if len(t) > 0 {
		sorted := times(slices.Sorted(slices.Values(t)))
		f[p50], f[p95], f[p99] = ms(sorted.percentile(50)), ms(sorted.percentile(95)), ms(sorted.percentile(99))
	}
	return f
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// series is what was measured of one thing. Its turns are far enough apart in time to
// be taken for independent of each other, which neighbours among thousands of requests
// are not: so all that is said about noise is from the turns.
type series struct {
	N     int       `json:"n"`     // measurements
	All   figures   `json:"all"`   // of all measurements
	Turns []figures `json:"turns"` // of each turn
}

// of are the values of a quantity in the turns.
func (s series) of(q quantity) []float64 {
	values := make([]float64, 0, len(s.Turns))
	for _, f := range s.Turns {
		if v, ok := f[q]; ok {
			values = append(values, v)
		}
	}
	return values
}

// way is how two values are put beside each other.
type way string

const (
	asRatio      way = "ratio"
	asDifference way = "difference"
)

func (w way) put(a, b float64) float64 {
	if w == asDifference {
		return a - b
	}
	return a / b
}

// none is what says that two are the same.
func (w way) none() float64 {
	if w == asDifference {
		return 0
	}
	return 1
}

// show is a value with its unit.
func (w way) show(q quantity, v float64) string {
	if w == asRatio {
		return fmt.Sprintf("%.2fx", v)
	}
	sign := ""
	if v >= 0 {
		sign = "+"
	}
	return sign + q.show(v)
}

// confidence of the intervals.
const confidence = 0.95

// estimate is a value, and bounds between which the true one lies with that confidence.
// Where there were too few turns to tell, Sure is false.
type estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Sure  bool    `json:"sure"`
}

// estimated takes the bounds from what the turns say: they are those of the median,
// from the order of the values alone, whatever their distribution is.
func estimated(value float64, turns []float64) estimate {
	e := estimate{Value: value}
	if len(turns) == 0 {
		return e
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(turns, &benchmath.DefaultThresholds), confidence)
	if len(s.Warnings) > 0 {
		return e
	}
	e.Low, e.High, e.Sure = s.Lo, s.Hi, true
	return e
}

// beyond says whether the value stands to v as it does for more than noise: the
// bounds are on the same side of v.
func (e estimate) beyond(v float64) bool {
	return e.Sure && (e.Value < v && e.High < v || e.Value > v && e.Low > v)
}

// paired puts two series beside each other that were measured in turn: each turn of
// the one with that of the other, so that what drifts between turns cancels out.
func paired(w way, q quantity, a, b series) estimate {
	var each []float64
	for i := range min(len(a.Turns), len(b.Turns)) {
		x, first := a.Turns[i][q]
		y, second := b.Turns[i][q]
		if first && second {
			each = append(each, w.put(x, y))
		}
	}
	return estimated(w.put(a.All[q], b.All[q]), each)
}

// distinct says with which probability two samples that were not taken in turn differ
// so much by chance, and whether that is little.
func distinct(a, b []float64) (p float64, really bool) {
	thresholds := &benchmath.DefaultThresholds
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(a), thresholds), benchmath.NewSample(slices.Clone(b), thresholds))
	return c.P, c.P < c.Alpha
}
