package history_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counters are what is counted, changed between two steps.
type counters struct {
	mu    sync.Mutex
	now   history.Reading
	takes time.Duration
}

func (c *counters) read() history.Reading {
	c.mu.Lock()
	now, takes := c.now, c.takes
	c.takes = 0
	c.mu.Unlock()
	time.Sleep(takes)
	return now
}

// stall makes the next reading take a while.
func (c *counters) stall(takes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes = takes
}

func (c *counters) set(r history.Reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = r
}

// recording runs a recorder in a bubble, whose time is made up.
func recording(t *testing.T, test func(t *testing.T, c *counters, r *history.Recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counters{}
		r := history.NewRecorder(c.read)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		test(t, c, r)
		cancel()
		<-ended
	})
}

// step lets the time of a step pass with a reading at its end.
func step(c *counters, r history.Reading) {
	c.set(r)
	time.Sleep(history.Step)
	synctest.Wait()
}

// points of a series as text, with a dot for what is not known.
func points(t *testing.T, w history.Window, name, label string) string {
	t.Helper()
	for _, s := range w.Series {
		if s.Name != name || s.Label != label {
			continue
		}
		text := ""
		for _, p := range s.Points {
			if math.IsNaN(p) {
				text += ". "
				continue
			}
			text += fmt.Sprintf("%.4g ", p)
		}
		return text
	}
	return "none"
}

func TestCountsBecomeRates(t *testing.T) {
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		step(c, history.Reading{Requests: map[string]float64{"ok": 20}, Executions: map[string]float64{"a": 5}, Failovers: 1, Waiting: 3})
		step(c, history.Reading{Requests: map[string]float64{"ok": 20, "SB008": 10}, Executions: map[string]float64{"a": 15}, Failovers: 1})
		w := r.Window(5)
		assert.Equal(t, w.To.Sub(w.From), 4*history.Step)
		assert.Equal(t, w.To, time.Now())
		assert.Equal(t, points(t, w, "requests", "ok"), ". . . 2 0 ", "nothing is known before the second reading")
		assert.Equal(t, points(t, w, "requests", "SB008"), ". . . 0 1 ", "what shows up was nothing before")
		assert.Equal(t, points(t, w, "executions", "a"), ". . . 0.5 1 ")
		assert.Equal(t, points(t, w, "failovers", ""), ". . . 0.1 0 ")
		assert.Equal(t, points(t, w, "waiting", ""), ". . 0 3 0 ")
		assert.Equal(t, points(t, w, "cost", ""), ". . . . . ", "nothing has a price")
		assert.Equal(t, points(t, r.Window(1), "requests", "SB008"), "1 ")
	})
}

func TestWhatIsAtOneMoment(t *testing.T) {
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		step(c, history.Reading{Instances: map[string]float64{"live": 2, "paused": 0}, Pool: map[string]float64{"a": 4}})
		step(c, history.Reading{Instances: map[string]float64{"live": 3, "paused": 0}})
		w := r.Window(3)
		assert.Equal(t, points(t, w, "instances", "live"), ". 2 3 ")
		assert.Equal(t, points(t, w, "instances", "paused"), ". 0 0 ")
		assert.Equal(t, points(t, w, "pool", "a"), ". 4 . ", "a provider that is down says nothing")
	})
}

func TestLatenciesAreThoseOfTheStep(t *testing.T) {
	bounds := []float64{.01, .1, 1}
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		first := history.Histogram{Bounds: bounds, Counts: []float64{100, 100, 100}, Total: 100}
		step(c, history.Reading{Latency: first})
		step(c, history.Reading{Latency: first})
		step(c, history.Reading{Latency: history.Histogram{Bounds: bounds, Counts: []float64{100, 150, 199}, Total: 200}})
		w := r.Window(3)
		assert.Equal(t, points(t, w, "latency_p50", ""), "0.005 . 0.1 ", "between two steps nobody asked")
		assert.Equal(t, points(t, w, "latency_p95", ""), "0.0095 . 0.9265 ")
		assert.Equal(t, points(t, w, "latency_p99", ""), "0.0099 . 1 ")
		step(c, history.Reading{Latency: history.Histogram{Bounds: bounds, Counts: []float64{100, 150, 199}, Total: 300}})
		assert.Equal(t, points(t, r.Window(1), "latency_p50", ""), "1 ", "beyond the last bound")
	})
}

func TestWhatIsGivenBackMakesNoStepEarn(t *testing.T) {
	cost := func(amount float64) history.Reading { return history.Reading{Cost: &amount} }
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		for _, amount := range []float64{1, 3, 2, 2.5, 4} {
			step(c, cost(amount))
		}
		assert.Equal(t, points(t, r.Window(5), "cost", ""), "1 2 0 0 1 ")
	})
}

func TestAnHourIsKept(t *testing.T) {
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		step(c, history.Reading{Requests: map[string]float64{"SB000": 10}})
		quiet := history.Reading{Requests: map[string]float64{"SB000": 10}, Instances: map[string]float64{"live": 1}}
		for range history.Kept - 1 {
			step(c, quiet)
		}
		w := r.Window(10 * history.Kept)
		assert.Equal(t, w.To.Sub(w.From), time.Hour-history.Step)
		assert.Equal(t, points(t, w, "requests", "SB000")[:6], "1 0 0 ")
		step(c, quiet)
		w = r.Window(history.Kept)
		assert.Equal(t, points(t, w, "requests", "SB000"), "none", "it was nothing for an hour")
		assert.Equal(t, len(w.Series), 7, "and the others are there")
	})
}

func TestTheNumberOfSeriesIsBounded(t *testing.T) {
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		many := map[string]float64{}
		for i := range 10 * history.MaxSeries {
			many[fmt.Sprint(i)] = 1
		}
		step(c, history.Reading{Executions: many})
		assert.Assert(t, len(r.Window(1).Series) < history.MaxSeries+10)
	})
}

// A machine that was asleep, or a process that was stopped.
func TestAGapIsNotKnown(t *testing.T) {
	recording(t, func(t *testing.T, c *counters, r *history.Recorder) {
		c.set(history.Reading{Failovers: 10})
		c.stall(3*history.Step + history.Step/10)
		time.Sleep(5 * history.Step)
		synctest.Wait()
		assert.Equal(t, points(t, r.Window(6), "failovers", ""), ". . . . 0.2439 0 ", "10 in 41 seconds")
	})
}

func TestWithoutAnyReading(t *testing.T) {
	w := history.NewRecorder(func() history.Reading { return history.Reading{} }).Window(2)
	assert.Equal(t, points(t, w, "waiting", ""), ". . ")
}
