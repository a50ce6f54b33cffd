package memory

import (
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestTheLessIsFreeTheSoonerTheGuardLooks(t *testing.T) {
	for free, want := range map[int64]time.Duration{
		-1 << 40:            20 * time.Millisecond,
		0:                   20 * time.Millisecond,
		perPause - 1:        20 * time.Millisecond,
		perPause:            40 * time.Millisecond,
		480 << 20:           100 * time.Millisecond,
		64 << 30:            250 * time.Millisecond,
		math.MaxInt64:       250 * time.Millisecond,
		math.MaxInt64 - 123: 250 * time.Millisecond,
	} {
		assert.Equal(t, pause(free), want, "%d", free)
	}
}
