// Package cgroup makes control groups with limits for sandboxes, version 1 and 2.
//
// The groups are made here, not by runsc, because they must outlive the sandbox:
// after a sandbox was killed, its group tells whether memory was the reason.
// runsc joins a group that exists and leaves its settings alone.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountPoint is where every Linux system has its hierarchies.
const mountPoint = "/sys/fs/cgroup"

// Limits of a group. Zero means none.
type Limits struct {
	MemoryBytes int64
	CPUs        float64
	// Processes counts threads of host processes; those of the sandbox's own
	// kernel are among them.
	Processes int64
}

// Tree is a directory of groups, the same in each hierarchy.
type Tree struct {
	version int
	// roots are the hierarchies' mount points: one for version 2, one for each
	// controller for version 1.
	roots map[string]string
	path  string
}

// NewTree prepares a tree at an absolute path such as /sandbox-broker/x. Its
// error says in one sentence why limits cannot be set on this machine.
func NewTree(path string) (*Tree, error) {
	t := &Tree{path: path, roots: map[string]string{}}
	var st unix.Statfs_t
	if err := unix.Statfs(mountPoint, &st); err != nil {
		return nil, fmt.Errorf("cgroups are not mounted at %s: %w", mountPoint, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		t.version = 2
		t.roots["unified"] = mountPoint
	} else {
		t.version = 1
		for _, controller := range []string{"memory", "cpu", "pids"} {
			dir := filepath.Join(mountPoint, controller)
			if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC {
				return nil, fmt.Errorf("the cgroup controller %q is not mounted at %s", controller, dir)
			}
			t.roots[controller] = dir
		}
	}
	if err := t.make(); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// attempts is how often a directory is made before that is given up: another broker
// may remove the one that all share, at the moment it was made.
const attempts = 10

// make makes the tree's own directories, as far as they are missing.
func (t *Tree) make() (err error) {
	for range attempts {
		err = nil
		for _, dir := range t.dirs("") {
			err = errors.Join(err, os.MkdirAll(dir, 0o755))
		}
		if err == nil && t.version == 2 {
			if err = t.enableControllers(); err != nil {
				return err
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return cannotMake(err)
	}
	return nil
}

// enableControllers passes the controllers on from the root of the hierarchy
// down to the tree's children.
func (t *Tree) enableControllers() error {
	dir := mountPoint
	for _, part := range append([]string{""}, strings.Split(strings.Trim(t.path, "/"), "/")...) {
		dir = filepath.Join(dir, part)
		control := filepath.Join(dir, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+memory +cpu +pids"), 0o644); err != nil {
			return cannotPassOn(err)
		}
	}
	return nil
}

// Version is 1 or 2.
func (t *Tree) Version() int { return t.version }

// dirs are the directories of a group in every hierarchy that we set limits in.
func (t *Tree) dirs(name string) map[string]string {
	dirs := map[string]string{}
	for controller, root := range t.roots {
		dirs[controller] = filepath.Join(root, t.path, name)
	}
	return dirs
}

// Group is one sandbox's control group.
type Group struct {
	tree   *Tree
	name   string
	limits Limits
}

// Limits are those that it was made with.
func (g *Group) Limits() Limits { return g.limits }

// Create makes a group with limits. Directories of the tree that somebody has removed
// are made again.
func (t *Tree) Create(name string, limits Limits) (*Group, error) {
	g := &Group{tree: t, name: name, limits: limits}
	err := g.create(limits)
	for n := 0; errors.Is(err, fs.ErrNotExist) && n < attempts; n++ {
		if made := t.make(); made != nil {
			return nil, made
		}
		err = g.create(limits)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// create makes the group, or leaves nothing of it.
func (g *Group) create(limits Limits) error {
	var made []string
	for _, dir := range g.tree.dirs(g.name) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return errors.Join(fmt.Errorf("make cgroup: %w", err), removeDirs(made))
		}
		made = append(made, dir)
	}
	if err := g.set(limits); err != nil {
		return errors.Join(fmt.Errorf("set cgroup limits: %w", err), removeDirs(made))
	}
	return nil
}

// period of the CPU quota, the kernel's default.
const period = 100 * time.Millisecond

func (g *Group) set(l Limits) error {
	type setting struct{ controller, file, value string }
	var settings []setting
	quota := int64(l.CPUs * float64(period.Microseconds()))
	memory, processes := strconv.FormatInt(l.MemoryBytes, 10), strconv.FormatInt(l.Processes, 10)
	if g.tree.version == 2 {
		if l.MemoryBytes > 0 {
			settings = append(settings, setting{"unified", "memory.max", memory}, setting{"unified", "memory.swap.max", "0"}, setting{"unified", "memory.oom.group", "1"})
		}
		if l.CPUs > 0 {
			settings = append(settings, setting{"unified", "cpu.max", fmt.Sprintf("%d %d", quota, period.Microseconds())})
		}
		if l.Processes > 0 {
			settings = append(settings, setting{"unified", "pids.max", processes})
		}
	} else {
		if l.MemoryBytes > 0 {
			settings = append(settings, setting{"memory", "memory.limit_in_bytes", memory}, setting{"memory", "memory.memsw.limit_in_bytes", memory})
		}
		if l.CPUs > 0 {
			settings = append(settings, setting{"cpu", "cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)}, setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)})
		}
		if l.Processes > 0 {
			settings = append(settings, setting{"pids", "pids.max", processes})
		}
	}
	for _, s := range settings {
		file := filepath.Join(g.tree.dirs(g.name)[s.controller], s.file)
		// Kernels without swap accounting lack the swap files.
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && strings.Contains(s.file, "sw") {
			continue
		}
		if err := os.WriteFile(file, []byte(s.value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// SetMemory changes the limit on memory of a group that has one. A limit below what is in
// use is refused: version 2 would kill for it.
func (g *Group) SetMemory(bytes int64) error {
	dir, files := g.tree.dirs(g.name)["unified"], []string{"memory.max"}
	if text, err := os.ReadFile(filepath.Join(dir, "memory.current")); err == nil && g.tree.version == 2 {
		if used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && used > bytes {
			return fmt.Errorf("set the limit on memory: %w", unix.EBUSY)
		}
	}
	if g.tree.version == 1 {
		dir, files = g.tree.dirs(g.name)["memory"], []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	}
	// The limit with swap is never below the one without.
	for range files {
		for _, file := range files {
			err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(bytes, 10)), 0o644)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
				return fmt.Errorf("set the limit on memory: %w", err)
			}
		}
	}
	return nil
}

// SetCPUs changes the limit on processor time of a group that has one; 0 is none.
func (g *Group) SetCPUs(cpus float64) error {
	quota := strconv.FormatInt(int64(cpus*float64(period.Microseconds())), 10)
	file := filepath.Join(g.tree.dirs(g.name)["cpu"], "cpu.cfs_quota_us")
	switch {
	case g.tree.version == 2 && cpus == 0:
		quota = "max"
		fallthrough
	case g.tree.version == 2:
		file = filepath.Join(g.tree.dirs(g.name)["unified"], "cpu.max")
	case cpus == 0:
		quota = "-1"
	}
	if err := os.WriteFile(file, []byte(quota), 0o644); err != nil {
		return fmt.Errorf("set the limit on processor time: %w", err)
	}
	return nil
}

// Path is what goes into the OCI spec as cgroupsPath.
func (g *Group) Path() string { return filepath.Join(g.tree.path, g.name) }

// OutOfMemory reports whether the kernel killed for memory in this group.
func (g *Group) OutOfMemory() bool {
	if g.tree.version == 2 {
		return counter(filepath.Join(g.tree.dirs(g.name)["unified"], "memory.events"), "oom_kill") > 0
	}
	return counter(filepath.Join(g.tree.dirs(g.name)["memory"], "memory.oom_control"), "oom_kill") > 0
}

func counter(file, key string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

// Kill sends SIGKILL to every process of the group.
func (g *Group) Kill() {
	for _, pid := range g.processes() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (g *Group) processes() []int {
	var pids []int
	for _, dir := range g.tree.dirs(g.name) {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Remove kills what is left in the group and removes it. The kernel needs a
// moment between the death of the last process and that.
func (g *Group) Remove(ctx context.Context) error {
	return g.retry(ctx, func() error {
		g.Kill()
		return g.remove()
	})
}

// retry tries to remove the group as long as the kernel calls it busy, until ctx
// ends.
func (g *Group) retry(ctx context.Context, remove func() error) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := remove()
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// remove deletes the group's directories: on version 1 also those that runsc
// made for controllers that we do not use.
func (g *Group) remove() error {
	if g.tree.version == 2 {
		return removeDir(g.tree.dirs(g.name)["unified"])
	}
	controllers, err := os.ReadDir(mountPoint)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range controllers {
		errs = append(errs, removeDir(filepath.Join(mountPoint, c.Name(), g.tree.path, g.name)))
	}
	return errors.Join(errs...)
}

func removeDirs(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeDir(dir))
	}
	return errors.Join(errs...)
}

func removeDir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes every group of the tree: what an earlier process left behind.
func (t *Tree) Sweep(ctx context.Context) error {
	var errs []error
	for _, name := range t.names() {
		errs = append(errs, (&Group{tree: t, name: name}).Remove(ctx))
	}
	return errors.Join(errs...)
}

// closeTimeout bounds the removal of the tree's directory.
const closeTimeout = 5 * time.Second

// Close removes the tree's own directory, which must be empty by now, and the
// directory above it unless another tree is there. The kernel calls a directory busy
// for a moment after the last one in it has gone.
func (t *Tree) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	own := &Group{tree: t}
	err := own.retry(ctx, own.remove)
	above := &Tree{version: t.version, roots: t.roots, path: filepath.Dir(t.path)}
	_ = (&Group{tree: above}).remove()
	return err
}

func (t *Tree) names() []string {
	var names []string
	pattern := filepath.Join(mountPoint, "*", t.path)
	if t.version == 2 {
		pattern = filepath.Join(mountPoint, t.path)
	}
	dirs, _ := filepath.Glob(pattern) // only a malformed pattern is an error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return names
}
