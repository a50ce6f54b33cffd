// Package machine has machines that are Debian with systemd, for tests of packages: a
// container of systemd-nspawn in which systemd is process 1, with a network of its own that
// has nothing but loopback. What a test does to one is gone with it.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// commandTimeout bounds what is run in a machine.
const commandTimeout = 3 * time.Minute

// Machine is a machine that runs.
type Machine struct {
	// Root is its root directory, as this machine sees it.
	Root string

	// Network is its own, with nothing but loopback.
	*Network

	t      testing.TB
	init   int      // its process 1
	groups []string // the directories of its cgroup, in each hierarchy that systemd looks at
}

// Boot starts a machine, which ends with the test. The test is skipped where the machine
// cannot be, and fails in CI.
func Boot(t testing.TB) *Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "a machine of one's own takes root")
	}
	binaries.Needs(t, "systemd-nspawn", "systemd-container")
	binaries.Needs(t, "nsenter", "util-linux")
	_, file, _, _ := runtime.Caller(0)
	debian := filepath.Join(filepath.Dir(file), "..", "..", "..", ".cache", "debian")
	if _, err := os.Stat(debian + ".stamp"); err != nil {
		binaries.Missing(t, "there is no Debian to install packages in: make test-all PART=installed builds it")
	}
	m := &Machine{t: t}
	m.layOut(debian)
	m.boot()
	return m
}

// layOut makes the root directory: what is written to it stands before the Debian that all
// machines share.
func (m *Machine) layOut(debian string) {
	m.t.Helper()
	dir, err := os.MkdirTemp("", "machine-")
	assert.NilError(m.t, err)
	m.t.Cleanup(func() { assert.Check(m.t, os.RemoveAll(dir)) })
	assert.NilError(m.t, os.Chmod(dir, 0o755))
	m.Root = filepath.Join(dir, "root")
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, path := range []string{m.Root, upper, work} {
		assert.NilError(m.t, os.Mkdir(path, 0o755))
	}
	assert.NilError(m.t, unix.Mount("overlay", m.Root, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", debian, upper, work)))
	m.t.Cleanup(func() { assert.Check(m.t, unix.Unmount(m.Root, unix.MNT_DETACH)) })
}

func (m *Machine) boot() {
	t := m.t
	t.Helper()
	name := filepath.Base(filepath.Dir(m.Root))
	for _, hierarchy := range []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(hierarchy); err == nil {
			m.groups = append(m.groups, filepath.Join(hierarchy, name))
		}
	}
	if len(m.groups) == 0 {
		m.groups = []string{filepath.Join("/sys/fs/cgroup", name)}
	}
	for _, group := range m.groups {
		assert.NilError(t, os.Mkdir(group, 0o755))
	}
	// Without a service manager of this machine's the container stays in the cgroup in
	// which it is started.
	var log bytes.Buffer
	nspawn := exec.Command("/bin/sh", "-c", `for group in $0; do echo $$ >"$group/cgroup.procs" || exit; done; exec "$@"`, strings.Join(m.groups, " "),
		"systemd-nspawn", "--quiet", "--directory="+m.Root, "--register=no", "--keep-unit", "--private-network", "--boot",
		"--console=pipe", "--capability=all", "--machine="+name)
	nspawn.Stdout, nspawn.Stderr = &log, &log
	nspawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel looks at the thread that has started the process.
		runtime.LockOSThread()
		err := nspawn.Start()
		started <- err
		if err == nil {
			_ = nspawn.Wait()
		}
		close(ended)
	}()
	assert.NilError(t, <-started)
	t.Cleanup(func() {
		_ = nspawn.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Error("the machine does not stop")
			_ = nspawn.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Log(log.String())
		}
		m.removeGroups()
	})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		select {
		case <-ended:
			return poll.Error(fmt.Errorf("systemd-nspawn ended: %s", log.String()))
		default:
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn.Process.Pid))
		if err != nil {
			return poll.Continue("no process 1 yet: %v", err)
		}
		fields := strings.Fields(string(children))
		if len(fields) != 1 {
			return poll.Continue("no process 1 yet")
		}
		if m.init, err = strconv.Atoi(fields[0]); err != nil {
			return poll.Error(err)
		}
		if name, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", m.init)); err != nil || filepath.Base(name) != "systemd" {
			return poll.Continue("process 1 is still %s: %v", name, err)
		}
		state, err := m.command("systemctl", "is-system-running").CombinedOutput()
		if strings.TrimSpace(string(state)) != "running" {
			return poll.Continue("it is %s: %v", state, err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
	m.Network = Enter(t, m.init)
	// The first version of cgroups is for containers to read alone, and a machine writes.
	m.Run("sh", "-c", "[ -e /sys/fs/cgroup/cgroup.controllers ] || for d in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,rw $d; done")
}

// removeGroups removes what the container has left of its cgroup.
func (m *Machine) removeGroups() {
	for _, group := range m.groups {
		var all []string
		err := filepath.WalkDir(group, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				all = append(all, path)
			}
			return err
		})
		assert.Check(m.t, err)
		for i := len(all) - 1; i >= 0; i-- {
			assert.Check(m.t, os.Remove(all[i]))
		}
	}
}

// command is one that root runs in the machine.
func (m *Machine) command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(m.init), "--all", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}, argv...)...)
}

// With is the machine for a part of its test.
func (m *Machine) With(t testing.TB) *Machine {
	part := *m
	part.t = t
	return &part
}

// Try runs a command as root and returns what it has said, on standard output and error.
func (m *Machine) Try(argv ...string) (string, error) {
	m.t.Helper()
	cmd := m.command(argv...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(commandTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	return out.String(), err
}

// Run is Try for what has to work.
func (m *Machine) Run(argv ...string) string {
	m.t.Helper()
	out, err := m.Try(argv...)
	assert.NilError(m.t, err, "%q: %s", argv, out)
	return out
}

// Write writes a file into the machine.
func (m *Machine) Write(path, content string, mode os.FileMode) {
	m.t.Helper()
	to := filepath.Join(m.Root, path)
	assert.NilError(m.t, os.MkdirAll(filepath.Dir(to), 0o755))
	assert.NilError(m.t, os.WriteFile(to, []byte(content), mode))
	assert.NilError(m.t, os.Chmod(to, mode))
}
