package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// fakeSide takes as long as it says, and writes down its name for each measurement.
func fakeSide(name string, took time.Duration, log *[]string) *side {
	return &side{name, func(_ context.Context, count int) (m measured, err error) {
		for range count {
			*log = append(*log, name)
			m.took = append(m.took, took)
			m.within += took
		}
		return m, nil
	}}
}

func TestSidesTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		contest contest
		count   int
		order   string
		turns   int
	}{
		"each first as often as last":        {contest{turns: 2}, 4, "aabb bbaa", 2},
		"alternating within each turn":       {contest{turns: 2, singly: true}, 4, "abab baba", 2},
		"the first ones do not count":        {contest{turns: 2, warm: 1}, 2, "ab ba ab", 2},
		"no more turns than measurements":    {contest{turns: 9}, 2, "ab ba", 2},
		"as many as there are, in any split": {contest{turns: 2}, 5, "aabb bbbaaa", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			// The bare side is that of both entries, and measured once.
			a, b := fakeSide("a", 2*time.Millisecond, &log), fakeSide("b", 4*time.Millisecond, &log)
			lines, err := c.contest.run(t.Context(), c.count, []entry{
				{row: "one", ours: []*side{a}, beside: b, claims: []claim{ratio(p50).atMost(0.8)}},
				{row: "two", ours: []*side{b, a}, claims: []claim{ratio(rate).to("one")}},
			})
			assert.NilError(t, err)
			assert.Equal(t, strings.Join(log, ""), strings.ReplaceAll(c.order, " ", ""))
			assert.Equal(t, len(lines), 2)
			assert.Equal(t, lines[0].Ours.N, c.count)
			assert.Equal(t, len(lines[0].Ours.Turns), c.turns)
			assert.DeepEqual(t, lines[0].Ours.All, figures{p50: 2, p95: 2, p99: 2, rate: 500})
			assert.Equal(t, lines[0].Claims[0].Found.Value, 0.5)
			assert.Check(t, is.Nil(lines[0].Old))
			assert.Equal(t, lines[1].Claims[0].Found.Value, 0.5)
			assert.Equal(t, lines[1].Old.All[p50], 2.0)
		})
	}
}

func TestAFailureNamesTheSide(t *testing.T) {
	broken := errors.New("it broke")
	_, err := contest{turns: 1}.run(t.Context(), 1, []entry{{row: "one", ours: []*side{{"ours", alone(func() error { return broken })}}}})
	assert.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "ours")
}

func TestAllTurnsMeasureAsOftenAsTheyAreTold(t *testing.T) {
	none := func() error { return nil }
	for name, turn := range map[string]turn{
		"one after the other": spaced(0, none),
		"at a constant rate":  steady(1e6, none),
		"by many clients":     sustained(3, 2, func(int) error { return none() }),
		"by one":              alone(none),
		"at once":             atOnce(none),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := turn(t.Context(), 7)
			assert.NilError(t, err)
			assert.Equal(t, len(m.took), 7)
		})
	}
}

func TestSyncsBetweenARequestAndItsAnswer(t *testing.T) {
	at := func(s float64) time.Time { return time.UnixMicro(int64(s * 1e6)) }
	trace := `100 9.500000 fdatasync(3)               = 0
100 10.100000 fdatasync(3 <unfinished ...>
101 10.200000 +++ exited with 0 +++
100 10.300000 <... fdatasync resumed>) = 0
100 10.400000 fsync(4)                = 0
102 10.600000 fdatasync(3)               = 0
102 20.000000 --- SIGURG {si_signo=SIGURG} ---
102 20.100000 fdatasync(3)               = 0
`
	got := syncsWithin([]span{{at(10), at(10.5)}, {at(20), at(20.5)}, {at(30), at(31)}}, []byte(trace))
	assert.DeepEqual(t, got, &series{N: 3, All: figures{syncs: 1}, Turns: []figures{{syncs: 2}, {syncs: 1}, {syncs: 0}}})
}
