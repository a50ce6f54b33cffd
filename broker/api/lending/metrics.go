package lending

import (
	"context"
	"math"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// glance is how long the use of processors is looked at for one answer.
	glance = 100 * time.Millisecond
	// lookTime is how long a provider may take to look once.
	lookTime = 10 * time.Second
)

// Measure asks a provider once what an instance uses.
func Measure(ctx context.Context, meter sdk.Meter, instanceID string) (sdk.InstanceMetrics, error) {
	patience, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	m, err := meter.InstanceMetrics(patience, instanceID)
	switch {
	case RanOut(ctx, patience, err):
		return m, sdk.Errorf(sdk.CodeUnavailable, "the provider did not say within %s what the sandbox uses", lookTime)
	case err == nil && m.MeasuredAt.IsZero():
		m.MeasuredAt = time.Now()
	}
	return m, err
}

// Glance asks twice, with a moment between: the last of the two, and the share of the
// processors that was used between them, in percent as CPUPercent has it.
func Glance(ctx context.Context, meter sdk.Meter, instanceID string) (now sdk.InstanceMetrics, percent float64, err error) {
	before, err := Measure(ctx, meter, instanceID)
	if err != nil {
		return before, 0, err
	}
	select {
	case <-time.After(glance):
	case <-ctx.Done():
		return before, 0, ctx.Err()
	}
	now, err = Measure(ctx, meter, instanceID)
	return now, CPUPercent(before, now), err
}

// CPUPercent is how much of its processors an instance has used from one look to the next,
// in percent of all that it has, to two places. How many it has may not be known: the
// percentage is of one then.
func CPUPercent(before, now sdk.InstanceMetrics) float64 {
	took := now.MeasuredAt.Sub(before.MeasuredAt)
	if took <= 0 || now.CPUTime <= before.CPUTime {
		return 0
	}
	share := float64(now.CPUTime-before.CPUTime) / float64(took)
	if now.CPULimit > 0 {
		share = min(share/now.CPULimit, 1)
	}
	return math.Round(share*1e4) / 100
}
