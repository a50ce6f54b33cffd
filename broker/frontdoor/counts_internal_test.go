package frontdoor

import (
	"testing"

	"gotest.tools/v3/assert"
)

// This test is inside the package: how much is kept is nobody else's matter.

func TestExecutionsAreCountedByContext(t *testing.T) {
	var c Counts[int]
	assert.Equal(t, c.Last(1), 0)
	assert.Equal(t, c.Next(1), 1)
	assert.Equal(t, c.Next(1), 2)
	assert.Equal(t, c.Next(2), 1)
	assert.Equal(t, c.Last(1), 2)
	c.Forget(1)
	assert.Equal(t, c.Next(1), 1)
	for i := range 2 * maxCounts {
		c.Next(i)
	}
	assert.Equal(t, len(c.last), maxCounts)
}
