// Command gvisor-sentry-prewarmer starts gVisor's kernel with a table of file descriptors
// that is large enough from the beginning. A runsc looks for a program of this name in the
// directory gvisor-bin beside itself; gVisor's official releases bring their own, and
// `make runsc` takes this one.
//
//	gvisor-sentry-prewarmer PROGRAM ARGV0 [ARGUMENT]...
//
// gVisor's kernel moves its standard streams to descriptors above 250. Linux lets a
// process that has threads wait for all processors before its table may grow, which takes
// about 10 ms; a process that is alone with its table does not wait, and keeps the table
// when it executes another program.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// highest is a descriptor that makes the table as large as gVisor needs it, and no larger.
const highest = 255

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: gvisor-sentry-prewarmer PROGRAM ARGV0 [ARGUMENT]...")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "gvisor-sentry-prewarmer:", run(os.Args[1], os.Args[2:]))
	os.Exit(1)
}

// run becomes the program, or says why it cannot.
func run(program string, argv []string) error {
	// This thread gets a table of its own, as the Go runtime has started others by now.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return fmt.Errorf("get a table of file descriptors: %w", err)
	}
	// The kernel closes it with the next program. Without it that one is only slower.
	_, _ = unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, highest)
	return fmt.Errorf("execute %s: %w", program, syscall.Exec(program, argv, os.Environ()))
}
