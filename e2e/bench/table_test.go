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
}
