package main

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestAPercentileIsATimeThatWasMeasured(t *testing.T) {
	var hundred times
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond) // not in order
	}
	for name, c := range map[string]struct {
		of   times
		p    int
		want time.Duration
	}{
		"the median of a hundred":               {hundred, 50, 50 * time.Millisecond},
		"all but one of a hundred":              {hundred, 99, 99 * time.Millisecond},
		"the slowest of few, where few are 1 %": {hundred[:3], 99, 100 * time.Millisecond},
		"the middle of three":                   {hundred[:3], 50, 99 * time.Millisecond},
		"the only one":                          {hundred[:1], 50, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.of.percentile(c.p), c.want) })
	}
	assert.DeepEqual(t, hundred.figures(), figures{p50: 50, p95: 95, p99: 99})
	assert.DeepEqual(t, times(nil).figures(), figures{})
}

func TestFewMeasurementsTellNoPercentile(t *testing.T) {
	for name, c := range map[string]struct {
		count int
		want  figures
	}{
		"a hundred": {100, figures{p50: 1, p95: 2, p99: 3, rate: 4}},
		"fewer":     {99, figures{p50: 1, p95: 2, rate: 4}},
		"very few":  {19, figures{p50: 1, rate: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.DeepEqual(t, figures{p50: 1, p95: 2, p99: 3, rate: 4}.sure(c.count), c.want)
		})
	}
}

// inTurns is a series with a value for each turn.
func inTurns(q quantity, all float64, turns ...float64) series {
	s := series{N: len(turns), All: figures{q: all}}
	for _, v := range turns {
		s.Turns = append(s.Turns, figures{q: v})
	}
	return s
}

func TestTheBoundsComeFromTurnsThatArePaired(t *testing.T) {
	drifting := []float64{10, 20, 30, 40, 50, 60, 70, 80, 90}
	half := []float64{5, 10, 15, 20, 25, 30, 35, 40, 45}
	for name, c := range map[string]struct {
		way        way
		allA, allB float64
		a, b       []float64
		want       estimate
		noise      bool
	}{
		"a ratio that no drift hides":       {asRatio, 25, 50, half, drifting, estimate{Value: 0.5, Low: 0.5, High: 0.5, Sure: true}, false},
		"a difference":                      {asDifference, 4.5, 3.5, []float64{2, 3, 4, 5, 6, 7}, []float64{1, 2, 3, 4, 5, 6}, estimate{Value: 1, Low: 1, High: 1, Sure: true}, false},
		"one outlier of nine is none":       {asRatio, 25, 50, append([]float64{1000}, half[1:]...), drifting, estimate{Value: 0.5, Low: 0.5, High: 0.5, Sure: true}, false},
		"now more, now less":                {asRatio, 1.5, 1.5, []float64{1, 2, 1, 2, 1, 2}, []float64{2, 1, 2, 1, 2, 1}, estimate{Value: 1, Low: 0.5, High: 2, Sure: true}, true},
		"five are too few for any interval": {asRatio, 15, 30, half[:5], drifting[:5], estimate{Value: 0.5}, true},
		"none":                              {asRatio, 1, 2, nil, nil, estimate{Value: 0.5}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := paired(c.way, p50, inTurns(p50, c.allA, c.a...), inTurns(p50, c.allB, c.b...))
			assert.DeepEqual(t, got, c.want)
			assert.Equal(t, got.beyond(c.way.none()), !c.noise)
		})
	}
}

func TestTurnsWithoutAQuantityAreLeftOut(t *testing.T) {
	a := series{All: figures{p99: 2}, Turns: []figures{{p99: 2}, {}, {p99: 4}}}
	b := series{All: figures{p99: 1}, Turns: []figures{{p99: 1}, {p99: 1}, {}}}
	assert.DeepEqual(t, a.of(p99), []float64{2, 4})
	assert.DeepEqual(t, paired(asRatio, p99, a, b), estimate{Value: 2})
}

func TestSamplesOfTwoRuns(t *testing.T) {
	low, high := []float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9, 10, 11, 12}
	for name, c := range map[string]struct {
		a, b []float64
		want bool
	}{
		"all above":                    {low, high, true},
		"the same":                     {low, low, false},
		"three of each prove nothing":  {low[:3], high[:3], false},
		"nothing":                      {nil, nil, false},
		"of many, most of them higher": {append(low, high...), append(high, high...), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, really := distinct(c.a, c.b)
			assert.Equal(t, really, c.want)
		})
	}
}
