package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// SharedMemoryDir is where programs put shared memory that has a name, inside the
// sandbox.
const SharedMemoryDir = "/dev/shm"

// errUsed is answered where somebody still uses the sandbox.
var errUsed = sdk.Errorf(sdk.CodeConflict, "something runs in the sandbox")

// Reset implements guestv1.GuestServiceServer.
//
// A process, a socket or a mount that it finds is not removed but reported: what was
// left in spite of all that ends with an execution is a sign that something is wrong.
func (g *guest) Reset(ctx context.Context, _ *guestv1.ResetRequest) (*guestv1.ResetResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.outlives:
		// It has sockets itself, and its file systems are not its own to replace.
		return nil, sdk.Errorf(sdk.CodeNotSupported, "a sandbox that is reached by a network is not used again")
	case g.runtime == nil:
		return nil, sdk.Errorf(sdk.CodeUnavailable, "not prepared")
	case g.running.any() || g.contexts.any():
		return nil, errUsed
	}
	server := g.runtime.drain()
	if err := errors.Join(onlyProcesses(os.Getpid(), server), noSockets()); err != nil {
		return nil, sdk.Errorf(sdk.CodeConflict, "%w", err)
	}
	if err := errors.Join(emptyWorkspace(g.names), empty(TemporaryDir), empty(SharedMemoryDir)); err != nil {
		return nil, sdk.Errorf(sdk.CodeConflict, "%w", err)
	}
	if err := g.runtime.refill(ctx); err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	return &guestv1.ResetResponse{}, nil
}

// drain ends all interpreters that wait, and returns the PID of the fork server, 0 for
// none.
func (in *interpreters) drain() (server int) {
	for _, r := range in.allReserves() {
		r.drain()
	}
	return in.forks.pid()
}

// refill makes the warm interpreters anew.
func (in *interpreters) refill(ctx context.Context) error {
	for _, r := range in.allReserves() {
		if err := r.refill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lastEnds is how long a process may take to be gone from /proc that was waited for, and
// a socket from /proc/net that was closed.
const lastEnds = 100 * time.Millisecond

// onlyProcesses reports processes beside those with these PIDs.
func onlyProcesses(known ...int) error {
	for end := time.Now().Add(lastEnds); ; time.Sleep(time.Millisecond) {
		others, err := otherProcesses(known)
		if err != nil || len(others) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes are left: %v", others)
		}
	}
}

func otherProcesses(known []int) (others []int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && !slices.Contains(known, pid) {
			others = append(others, pid)
		}
	}
	return others, err
}

// noSockets reports sockets of the Internet's protocols, which the kernel may keep for a
// while after whoever had them has ended. It waits for those that are just being closed.
func noSockets() error {
	for end := time.Now().Add(lastEnds); ; time.Sleep(5 * time.Millisecond) {
		if err := openSockets(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func openSockets() error {
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile("/proc/net/" + name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if lines := strings.Count(string(text), "\n"); lines > 1 { // the first says what is what
			return fmt.Errorf("%d sockets are left in %s", lines-1, name)
		}
	}
	return nil
}

// empty puts a new file system of the same kind in the place of one that has only files
// of programs.
func empty(dir string) error {
	var was unix.Statfs_t
	if err := unix.Statfs(dir, &was); err != nil {
		return fmt.Errorf("measure %s: %w", dir, err)
	}
	// One that is busy is left alone.
	if err := unix.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if dir == SharedMemoryDir {
		flags |= unix.MS_NOEXEC
	}
	options := fmt.Sprintf("mode=1777,size=%d", int64(was.Blocks)*was.Bsize)
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}
