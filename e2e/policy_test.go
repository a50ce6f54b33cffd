package e2e_test

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// What the code policy finds is tested beside it; this is its way through the
// whole system.
func TestTheCodePolicyThroughTheWholeSystem(t *testing.T) {
	t.Parallel()
	code := "print('ran')\nimport ctypes"

	audit := real.Broker(t).Execute(t, map[string]any{"language": "python", "code": code})
	assert.Equal(t, audit.Status, "succeeded")
	assert.Equal(t, audit.Stdout, "ran\n")
	assert.Assert(t, is.Len(audit.Findings, 1))
	assert.Equal(t, audit.Findings[0].Line, 2)
	assert.Equal(t, audit.Findings[0].Rule, "python.import.ctypes")

	enforce := startReal(t, `policy = "enforce"`)
	blocked := enforce.Execute(t, map[string]any{"language": "python", "code": code})
	assert.Equal(t, blocked.Status, "blocked")
	assert.Equal(t, blocked.Stdout, "")
	assert.Assert(t, blocked.Error != nil)
	assert.Equal(t, blocked.Error.Code, "SB007")
	assert.Equal(t, blocked.Error.Detail, "line 2: import of ctypes (rule python.import.ctypes)")
	assert.Assert(t, is.Len(blocked.Findings, 1))

	blocked = enforce.Execute(t, map[string]any{"language": "js", "code": "require('fs').rmSync('x')"})
	assert.Equal(t, blocked.Status, "blocked")
	assert.Equal(t, blocked.Findings[0].Rule, "javascript.import.fs")
	fine := enforce.Execute(t, map[string]any{"language": "js", "code": "console.log(1)"})
	assert.Equal(t, fine.Status, "succeeded")
	assert.Assert(t, is.Len(fine.Findings, 0))
}
