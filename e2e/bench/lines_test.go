package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// sampleLines are two rows with everything that a line may have.
func sampleLines() []line {
	quick := inTurns(p50, 7.9, 7.8, 7.9, 8, 7.7, 7.9, 8)
	slow := inTurns(p50, 9.5, 9.4, 9.5, 9.6, 9.3, 9.5, 9.6)
	like := inTurns(p50, 7.9, 7.7, 8, 7.9, 7.8, 8, 7.9)
	one, two, raw := inTurns(rate, 10, 10, 11, 9, 10, 10, 10), inTurns(rate, 9, 9, 9, 9, 9, 9, 9), inTurns(rate, 12, 12, 12, 12, 12, 12, 12)
	first := line{Row: "single", What: "one", Ours: &quick, Old: &like, BesideWhat: "bare", Beside: &slow, Load: "0.50"}
	first.Claims = []claim{ratio(p50).atMost(0.8).about(first, nil), difference(p50).about(first, nil)}
	second := line{Row: "rate/1", What: "as fast as possible", Ours: &one, Old: &two, BesideWhat: "raw", Beside: &raw, Load: "0.50"}
	second.Claims = []claim{ratio(rate).atLeast(0.9).about(second, nil)}
	third := line{Row: "rate/2", What: "the same by two", Ours: &two, Old: &two, BesideWhat: "raw", Beside: &raw, Load: "1.25"}
	third.Claims = []claim{ratio(rate).to("rate/1").atLeast(1).about(third, []line{first, second})}
	size := inTurns(memory, 28, 27, 28, 29, 28, 28, 31)
	fourth := line{Row: "size", What: "idle", Ours: &size, Load: "1.25"}
	fourth.Claims = []claim{own(memory).atMost(30).about(fourth, nil)}
	return []line{first, second, third, fourth, {Row: "absent", What: "what is not here", Note: "not measured: it is not here", Load: "1.25"}}
}

func TestTheTable(t *testing.T) {
	for name, old := range map[string]bool{"table.md": false, "table_old.md": true} {
		t.Run(name, func(t *testing.T) {
			text := tableHead(old)
			for _, l := range sampleLines() {
				text += l.row(old)
			}
			golden.Assert(t, text, name)
			cells := strings.Count(tableHead(old), "|") / 2
			for row := range strings.Lines(text) {
				assert.Equal(t, strings.Count(row, "|"), cells, row)
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	certain := func(v float64) estimate { return estimate{Value: v, Low: v - 0.1, High: v + 0.1, Sure: true} }
	for name, c := range map[string]struct {
		claim claim
		found estimate
		want  string
	}{
		"no aim":                     {ratio(p50), certain(1), ""},
		"below what is allowed":      {ratio(p50).atMost(1), certain(0.8), "met"},
		"so near that it may be not": {ratio(p50).atMost(1), certain(0.95), "met, within noise"},
		"above":                      {ratio(p50).atMost(1), certain(1.2), "missed"},
		"perhaps above":              {ratio(p50).atMost(1), certain(1.05), "missed, within noise"},
		"more than asked for":        {ratio(rate).atLeast(3), certain(3.2), "met"},
		"less":                       {ratio(rate).atLeast(3), certain(2.8), "missed"},
		"nobody knows how sure":      {ratio(rate).atLeast(3), estimate{Value: 2}, "missed"},
		"exactly":                    {own(syncs).atMost(1), estimate{Value: 1, Low: 1, High: 1, Sure: true}, "met"},
	} {
		t.Run(name, func(t *testing.T) {
			c.claim.Found = c.found
			assert.Equal(t, c.claim.verdict(), c.want)
		})
	}
}
