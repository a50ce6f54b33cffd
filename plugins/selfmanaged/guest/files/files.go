// Package files serves the files of the sandbox: the provider's capabilities
// files, file_search, file_watch, file_mode and archives, by the same gRPC services
// that a provider serves, ignoring instance IDs.
//
// Two things keep a call to what code in the sandbox may touch itself. Every path is
// resolved below /workspace or /tmp, the only places where code can write, whatever links
// and renames code plays with meanwhile (see package localfiles). And every system call
// that names a file is made with the rights of the user that code runs as (see AsUser), so
// the kernel refuses what it would refuse to code.
package files

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve/services"
)

// maxWatchers is how many calls of WatchFiles there may be at once.
const maxWatchers = 16

// Options of the services.
type Options struct {
	// Roots are the directories below which files may be touched. Relative
	// paths begin at the first.
	Roots []string
	// Room returns an error when memory is scarce, which files take as well; nil
	// if nobody knows. It is asked now and then while something is written.
	Room func() error
}

// Register adds the services to a server, as services.RegisterFiles does.
func Register(registrar grpc.ServiceRegistrar, o Options) {
	services.RegisterFiles(registrar, localfiles.New(localfiles.Options{
		Directory: func(string) (string, error) { return "/", nil },
		Places:    o.Roots, As: AsUser, Room: o.Room, Watchers: maxWatchers,
	}))
}

// userID is the user and group that code runs as.
const userID = 1000

// AsUser runs f with the rights of the user that code runs as: what f makes
// belongs to that user, and root's power over files is gone. Only the rights of
// the present thread change, as Linux has it and Go's own wrappers do not, so f
// must not wait for another goroutine, and is kept short. A descriptor that f opens keeps what it
// was opened for, so reading and writing need no AsUser.
//
// setfsuid would say it better, but gVisor lacks it.
func AsUser(f func() error) error {
	if os.Geteuid() != 0 {
		return f() // a test of an ordinary user
	}
	runtime.LockOSThread()
	if err := setThreadIDs(userID); err != nil {
		return err // still locked: the thread ends with the goroutine
	}
	defer func() {
		if setThreadIDs(0) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

// setThreadIDs sets the effective group and user of this thread, in the order in
// which it has the right to. The real and the saved ones stay root's, which is the
// way back.
func setThreadIDs(id uintptr) error {
	const keep = ^uintptr(0)
	group := func() error { return errnoOf(unix.SYS_SETRESGID, keep, id, keep) }
	user := func() error { return errnoOf(unix.SYS_SETRESUID, keep, id, keep) }
	first, second := group, user
	if id == 0 {
		first, second = user, group
	} else if err := errnoOf(unix.SYS_SETGROUPS, 0, 0, 0); err != nil {
		return fmt.Errorf("leave the groups of root: %w", err)
	}
	if err := first(); err != nil {
		return fmt.Errorf("change the rights of a thread: %w", err)
	}
	if err := second(); err != nil {
		return fmt.Errorf("change the rights of a thread: %w", err)
	}
	return nil
}

func errnoOf(call, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(call, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
