package pidnamespace_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/pidnamespace"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
}

// children are the processes whose parent is this one.
func children(t *testing.T) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	assert.NilError(t, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err == nil && strings.Contains(string(text), "\nPPid:\t"+strconv.Itoa(os.Getpid())+"\n") {
			found[pid] = true
		}
	}
	return found
}

func TestANamespaceEndsWithAllThatRunsInIt(t *testing.T) {
	needsRoot(t)
	for range 20 {
		n, err := pidnamespace.New()
		assert.NilError(t, err)
		assert.Assert(t, children(t)[n.PID()])

		// nsenter starts the program as a child of its own, in the namespace.
		cmd := exec.Command("nsenter", "--pid=/proc/"+strconv.Itoa(n.PID())+"/ns/pid", "sh", "-c",
			// The child of a child is orphaned: process 1 takes it, and the kernel reaps it.
			"(true & true) ; (sleep 1000 &) ; echo $$; exec sleep 1000")
		out, err := cmd.StdoutPipe()
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		var b [8]byte
		read, err := out.Read(b[:])
		assert.NilError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(b[:read])))
		assert.NilError(t, err)
		assert.Assert(t, pid > 1 && pid < 10, "process %d", pid)

		n.Kill()
		_ = cmd.Wait() // it was killed
		n.Wait()
		n.Kill() // of nothing any more
		assert.Assert(t, !children(t)[n.PID()])
	}
}

// The clone has no descriptors of its own that would keep a pipe open.
func TestANamespaceHoldsNoDescriptors(t *testing.T) {
	needsRoot(t)
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer r.Close()
	n, err := pidnamespace.New()
	assert.NilError(t, err)
	defer n.Wait()
	defer n.Kill()
	assert.NilError(t, w.Close())
	read, err := r.Read(make([]byte, 1))
	assert.Equal(t, read, 0)
	assert.ErrorContains(t, err, "EOF")
}

func TestProcessOneIgnoresSignalsFromOutsideButTheLast(t *testing.T) {
	needsRoot(t)
	n, err := pidnamespace.New()
	assert.NilError(t, err)
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGURG, unix.SIGUSR1, unix.SIGPROF} {
		assert.NilError(t, syscall.Kill(n.PID(), s))
	}
	ns, err := n.Open()
	assert.NilError(t, err)
	assert.NilError(t, ns.Close())
	assert.NilError(t, syscall.Kill(n.PID(), 0))
	n.Kill()
	n.Wait()
	assert.ErrorIs(t, syscall.Kill(n.PID(), 0), unix.ESRCH)
}

// inOwnMounts calls a function on a thread that has a mount namespace of its own, and ends.
func inOwnMounts(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	assert.NilError(t, <-done)
}

func TestProcessOneMountsWhatShowsItsNamespace(t *testing.T) {
	needsRoot(t)
	var n *pidnamespace.Namespace
	var seen []string
	inOwnMounts(t, func() (err error) {
		n, err = pidnamespace.New(
			pidnamespace.Mount{Type: "proc", Target: "/proc", Instead: true},
			pidnamespace.Mount{Type: "tmpfs", Target: "/mnt", Options: "no_such_option", IfKnown: true},
		)
		if err == nil {
			seen, err = filepath.Glob("/proc/[0-9]*")
		}
		return err
	})
	assert.DeepEqual(t, seen, []string{"/proc/1"})
	assert.Assert(t, children(t)[n.PID()], "our own /proc is as it was")
	n.Kill()
	n.Wait()
}

func TestWhatCannotBeMountedIsSaid(t *testing.T) {
	needsRoot(t)
	before := children(t)
	proc := pidnamespace.Mount{Type: "proc", Target: "/proc", Instead: true}
	for name, c := range map[string]struct {
		mounts []pidnamespace.Mount
		says   string
	}{
		"a place that is not there": {[]pidnamespace.Mount{proc, {Type: "tmpfs", Target: "/nowhere"}}, "mount /nowhere: no such file or directory"},
		"nothing to replace":        {[]pidnamespace.Mount{{Type: "proc", Target: "/nowhere", Instead: true}}, "unmount /nowhere: no such file or directory"},
		"unknown options":           {[]pidnamespace.Mount{{Type: "tmpfs", Target: "/mnt", Options: "no_such_option"}}, "mount /mnt: invalid argument"},
		"more than there is room":   {[]pidnamespace.Mount{proc, proc, proc}, "3 mounts are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnMounts(t, func() error {
				_, err := pidnamespace.New(c.mounts...)
				assert.Check(t, is.ErrorContains(err, c.says))
				return nil
			})
		})
	}
	assert.DeepEqual(t, children(t), before)
}

func BenchmarkNamespace(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("a PID namespace needs root")
	}
	for b.Loop() {
		n, err := pidnamespace.New()
		if err != nil {
			b.Fatal(err)
		}
		n.Kill()
		n.Wait()
	}
}
