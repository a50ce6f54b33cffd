package pool

import (
	"testing"

	"gotest.tools/v3/assert"
)

func TestDemandOfTheLastMinute(t *testing.T) {
	const now = 1000
	for name, c := range map[string]struct {
		share   int
		asked   map[int64]int // by second
		seconds int64
		rate    float64
		burst   int
	}{
		"nothing":                        {share: 3, seconds: 1, rate: 3},
		"a minute ago":                   {asked: map[int64]int{now - 60: 7}, seconds: 1},
		"just within the minute":         {asked: map[int64]int{now - 59: 7}, seconds: 1, rate: 7, burst: 7},
		"the largest burst":              {asked: map[int64]int{now - 30: 2, now - 20: 5, now: 3}, seconds: 1, rate: 10, burst: 5},
		"about the end of a second":      {asked: map[int64]int{now - 31: 2, now - 30: 4}, seconds: 1, rate: 6, burst: 6},
		"more than a second between":     {asked: map[int64]int{now - 31: 2, now - 29: 4}, seconds: 1, rate: 6, burst: 4},
		"as long as making one takes":    {asked: map[int64]int{now - 31: 2, now - 29: 4}, seconds: 2, rate: 6, burst: 6},
		"a share is no burst":            {share: 5, asked: map[int64]int{now: 1}, seconds: 1, rate: 6, burst: 1},
		"a place of a minute before":     {asked: map[int64]int{now - 60: 7, now: 2}, seconds: 1, rate: 2, burst: 2},
		"a window longer than the past":  {asked: map[int64]int{now - 59: 1, now - 58: 1}, seconds: 10, rate: 2, burst: 2},
		"evenly two a second for long":   {asked: map[int64]int{now - 3: 2, now - 2: 2, now - 1: 2, now: 2}, seconds: 1, rate: 8, burst: 4},
		"evenly, and sandboxes are slow": {asked: map[int64]int{now - 3: 2, now - 2: 2, now - 1: 2, now: 2}, seconds: 3, rate: 8, burst: 8},
	} {
		t.Run(name, func(t *testing.T) {
			d := &demand{share: c.share}
			for second := now - 100; second <= now; second++ {
				for range c.asked[int64(second)] {
					d.note(int64(second))
				}
			}
			assert.Equal(t, d.rate(now), c.rate)
			assert.Equal(t, d.burst(now, c.seconds), c.burst)
		})
	}
}

func TestDemandOfTheFirstSeconds(t *testing.T) {
	d := &demand{}
	assert.Equal(t, d.rate(0), 0.0, "a place that was never used counts nothing")
	d.note(0)
	d.note(0)
	assert.Equal(t, d.rate(0), 2.0)
	assert.Equal(t, d.burst(1, 1), 2)
}
