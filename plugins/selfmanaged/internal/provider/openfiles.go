package provider

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Open files that the plugin takes, generously.
const (
	// filesPerSandbox are the pipes of a sandbox and the descriptor of its
	// process.
	filesPerSandbox = 4
	// filesBeside are the plugin's own and those of sandboxes that are being
	// made. runsc itself, which has the same limit, ends with fewer than about
	// 200 without saying why.
	filesBeside = 256
)

// checkOpenFiles refuses a limit on open files that is too low for so many
// sandboxes, and passes the limit on to what the plugin starts: Go raises its own
// from the soft to the hard limit, but gives its children the soft one.
func checkOpenFiles(sandboxes int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit on open files: %w", err)
	}
	const remedy = "raise the limit (LimitNOFILE= in the unit of the service, or ulimit -Hn)"
	if limit.Max < filesBeside+filesPerSandbox {
		return sdk.Errorf(sdk.CodeInvalidConfig, "no sandbox can be made with at most %d open files: %s", limit.Max, remedy)
	}
	if room := (limit.Max - filesBeside) / filesPerSandbox; uint64(sandboxes) > room {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "max_sandboxes",
			"is more than the %d that at most %d open files allow: lower it, or %s", room, limit.Max, remedy)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("pass on the limit on open files: %w", err)
	}
	return nil
}
