package e2e_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
)

// A core file would hold every secret that there is.
func TestNothingLeavesACoreFile(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	for name, pid := range map[string]int{"broker": b.PID, "plugin": b.Plugin("mock")} {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		assert.NilError(t, err)
		assert.Assert(t, noCore.Match(limits), "%s: %s", name, limits)
	}
}

var noCore = regexp.MustCompile(`(?m)^Max core file size +0 +0 `)
