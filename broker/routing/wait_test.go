package routing_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
)

func TestHowLongARequestWaitsForAProvider(t *testing.T) {
	const limit = 100 * time.Second // of which 90 are for the wait
	for name, c := range map[string]struct {
		others, ready             bool
		grace, after, until, look time.Duration // from the beginning of the wait; no grace: -1
		well                      bool
	}{
		"there is no other":                            {false, false, -1, 0, 90 * time.Second, 90 * time.Second, false},
		"no other is ready":                            {true, false, -1, 0, 90 * time.Second, time.Second, false},
		"another one is ready":                         {true, true, -1, 0, time.Second, time.Second, false},
		"another one has become ready meanwhile":       {true, true, -1, 5 * time.Second, time.Second, time.Second, false},
		"no other is ready, later":                     {true, false, -1, 5 * time.Second, 90 * time.Second, 6 * time.Second, false},
		"its grace goes on, and another one is ready":  {true, true, 20 * time.Second, 5 * time.Second, 20 * time.Second, 6 * time.Second, true},
		"its grace is about to end":                    {true, true, 20 * time.Second, 19500 * time.Millisecond, 20 * time.Second, 20 * time.Second, true},
		"its grace is longer than the creation's time": {true, true, time.Hour, 0, 90 * time.Second, time.Second, true},
		"its grace is over, and no other is ready":     {true, false, 20 * time.Second, 20 * time.Second, 90 * time.Second, 21 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			began, grace := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Time{}
			if c.grace >= 0 {
				grace = began.Add(c.grace)
			}
			w := routing.NewWait(began, limit, c.others, grace)
			until, look, well := w.Next(began.Add(c.after), func() bool { return c.ready })
			assert.Equal(t, until.Sub(began), c.until)
			assert.Equal(t, look.Sub(began), c.look)
			assert.Equal(t, well, c.well)
		})
	}
}

type anything interface{ routing.Provider }

type provider struct {
	anything
	label string
}

func (p provider) Label() string { return p.label }

func TestWhoIsAskedFirst(t *testing.T) {
	candidates := []routing.Provider{provider{label: "a"}, provider{label: "b"}, provider{label: "c"}}
	costs := map[string]float64{"a": 2, "b": 1, "c": 1}
	assert.Equal(t, routing.Offer{Costs: costs}.First(candidates).Label(), "a")
	assert.Equal(t, routing.Offer{Costs: costs, Policy: routing.Cheapest}.First(candidates).Label(), "b")
}
