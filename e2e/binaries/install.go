package binaries

import (
	"os"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// Install copies a program, so that it can be started at once. No process of this test
// is forked while the file is open: it would have it open to write for a moment, and
// the system starts no such program ("text file busy").
func Install(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	assert.NilError(t, err)
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	assert.NilError(t, os.WriteFile(to, text, 0o755))
}
