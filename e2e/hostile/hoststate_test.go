package hostile_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// hostState is what of the host must stay as it is, by name.
func hostState(t *testing.T, c *canaries) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, p := range harness.Processes(t) {
		if p.PID == 1 || p.PID == c.process.Process.Pid {
			state[fmt.Sprintf("process %d", p.PID)] = processState(t, p.PID)
		}
	}
	for _, tree := range []string{filepath.Dir(c.file), "/etc", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/boot", "/dev"} {
		files(t, tree, state)
	}
	text, err := os.ReadFile(c.file)
	assert.NilError(t, err)
	state["canary"] = string(text)
	entries, err := os.ReadDir("/")
	assert.NilError(t, err)
	state["/"] = fmt.Sprint(entries)
	for _, tree := range []string{"kernel", "fs", "vm", "net/core", "net/ipv4", "net/ipv6"} {
		sysctls(t, filepath.Join("/proc/sys", tree), state)
	}
	for _, file := range []string{"/proc/modules", "/proc/swaps", "/proc/self/cgroup", "/proc/filesystems"} {
		text, err := os.ReadFile(file)
		if err == nil {
			state[file] = string(text)
		}
	}
	if modules, ok := state["/proc/modules"]; ok { // but not who uses them
		var names []string
		for line := range strings.Lines(modules) {
			names = append(names, strings.Fields(line)[0])
		}
		slices.Sort(names)
		state["/proc/modules"] = strings.Join(names, " ")
	}
	mounts(t, state)
	// Groups come and go; what would run a program of an attacker is in the roots.
	for _, name := range []string{"release_agent", "notify_on_release", "cgroup.subtree_control", "cgroup.clone_children"} {
		for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			paths, err := filepath.Glob(filepath.Join(hierarchy, name))
			assert.NilError(t, err)
			for _, path := range paths {
				if text, err := os.ReadFile(path); err == nil {
					state[path] = string(text)
				}
			}
		}
	}
	return state
}

// processState tells a process that was stopped, signalled or replaced.
func processState(t *testing.T, pid int) string {
	t.Helper()
	var kept []string
	for _, name := range []string{"stat", "status", "cgroup", "limits"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		assert.NilError(t, err)
		switch name {
		case "stat": // when it was started, and its niceness
			fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
			kept = append(kept, "priority", fields[15], fields[16], "start", fields[19])
		case "status":
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
				if slices.Contains([]string{"TracerPid", "Uid", "Gid", "SigBlk", "SigIgn", "SigCgt", "CapEff", "Cpus_allowed"}, key) ||
					key == "State" && strings.ContainsAny(value[:2], "TtZX") {
					kept = append(kept, key+":"+value)
				}
			}
		default:
			kept = append(kept, string(text))
		}
	}
	return strings.Join(kept, "\n")
}

func files(t *testing.T, tree string, state map[string]string) {
	t.Helper()
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case path == "/dev/pts", path == "/dev/shm", path == "/dev/mqueue", path == "/dev/.lxc":
			return fs.SkipDir
		case strings.HasPrefix(path, "/dev/loop"), strings.HasPrefix(path, "/dev/dm-"), strings.HasPrefix(path, "/dev/mapper"):
			return nil
		}
		info, err := entry.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(path, "/dev") { // what terminals are used for is told by their times
			state[path] = info.Mode().String()
			return nil
		}
		state[path] = fmt.Sprintf("%v %d %v", info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() && info.Size() < 1<<18 {
			text, err := os.ReadFile(path)
			if err == nil {
				state[path] += fmt.Sprintf(" %x", sha256.Sum256(text))
			}
		}
		return nil
	})
	assert.NilError(t, err)
}

// volatile are sysctls that change by themselves, or only ever report.
var volatile = []string{
	"ns_last_pid", "dentry-state", "file-nr", "inode-nr", "inode-state", "aio-nr", "nr", "tainted", "random", "stat_refresh",
	"compact_memory", "drop_caches", "neigh", "conf", "flush", "perf_event_max_sample_rate", "netdev_rss_key", "epoll", "sched_domain",
	"user_reserve_kbytes", "admin_reserve_kbytes", "min_free_kbytes", "shm_next_id", "sem_next_id", "msg_next_id", "keys", "mptcp", "quota",
}

func sysctls(t *testing.T, tree string, state map[string]string) {
	t.Helper()
	err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || slices.Contains(volatile, entry.Name()) || entry.IsDir() {
			if err == nil && entry.IsDir() && slices.Contains(volatile, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			state[path] = string(text)
		}
		return nil
	})
	assert.NilError(t, err)
}

// mounts of this test's own namespace. Engines and brokers of other tests mount
// things below the directory for temporary files.
func mounts(t *testing.T, state map[string]string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		point := fields[4]
		if !strings.HasPrefix(point, os.TempDir()) && !strings.HasPrefix(point, "/run/docker") && !strings.HasPrefix(point, "/var/lib/docker") {
			state["mount "+fields[0]+" "+point] = strings.Join(fields[2:], " ")
		}
	}
}

// drift is how far the host's clock was set, seen from a time before.
func drift(since time.Time) time.Duration {
	now := time.Now()
	return (now.Round(0).Sub(since.Round(0)) - now.Sub(since)).Abs()
}
