// Package tier marks tests that the gate leaves out.
package tier

import "testing"

// Reason is the reason of a skip by Full.
const Reason = "make test-all runs it"

// Full skips the test in the gate, which runs with -short: the test takes long, and a quicker one
// sees the same mechanism break.
func Full(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(Reason)
	}
}
