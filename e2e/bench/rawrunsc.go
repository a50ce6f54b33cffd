package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rawRunsc runs a program with `runsc run` alone: the flags, root file system,
// mounts and limits are those of a sandbox that the plugin started, only its
// process 1 is the program and not the guest.
type rawRunsc struct {
	program program
	argv    []string // up to "run"
	config  specs.Spec
	dir     string
	group   string // cgroup above those of the sandboxes, "" for none
	started atomic.Int64
}

// newRawRunsc copies what the broker's plugin does; it must have a sandbox. The
// caller owes a stop, before that of the broker.
func newRawRunsc(d *daemon, p program, argv ...string) (*rawRunsc, error) {
	r := &rawRunsc{program: p, dir: filepath.Join(d.dir, "raw")}
	model, err := runscProcess(d)
	if err != nil {
		return nil, err
	}
	run := slices.Index(model, "run") // runscProcess has seen it
	bundle, ok := strings.CutPrefix(model[run+1], "--bundle=")
	if !ok {
		return nil, fmt.Errorf("the plugin starts runsc in a way that is not known here: %q", model)
	}
	for _, arg := range model[:run] {
		if strings.HasPrefix(arg, "--root=") {
			arg = "--root=" + filepath.Join(r.dir, "root")
		}
		r.argv = append(r.argv, arg)
	}
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &r.config); err != nil {
		return nil, err
	}
	r.config.Process.Args = append(argv, p.code)
	r.config.Process.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	if r.config.Linux.CgroupsPath != "" {
		if err := r.limits(r.config.Linux.CgroupsPath); err != nil {
			return nil, err
		}
		r.group = fmt.Sprintf("/sandbox-broker-bench-%d", os.Getpid())
	}
	return r, os.MkdirAll(filepath.Join(r.dir, "root"), 0o700)
}

// runscProcess is the command line of some sandbox of the broker.
func runscProcess(d *daemon) ([]string, error) {
	all, err := listProcesses()
	if err != nil {
		return nil, err
	}
	for _, p := range descendants(all, d.cmd.Process.Pid) {
		argv := p.argv()
		if slices.Contains(argv, "run") && slices.ContainsFunc(argv, func(a string) bool { return strings.HasPrefix(a, "--bundle=") }) {
			return argv, nil
		}
	}
	return nil, errors.New("the broker has no sandbox to take as a model")
}

// limits puts into the specification what the plugin writes into the cgroup of
// that path itself, beside the memory.
func (r *rawRunsc) limits(path string) error {
	unified := "/sys/fs/cgroup" + path
	if _, err := os.Stat(unified); err == nil {
		return r.readLimits(filepath.Join(unified, "cpu.max"), "", filepath.Join(unified, "pids.max"))
	}
	return r.readLimits("/sys/fs/cgroup/cpu"+path+"/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu"+path+"/cpu.cfs_period_us", "/sys/fs/cgroup/pids"+path+"/pids.max")
}

// readLimits reads CPU time and processes. Without a file for the period it
// stands behind the quota.
func (r *rawRunsc) readLimits(quotaFile, periodFile, pidsFile string) error {
	var quota, pids int64
	var period uint64
	text, err := os.ReadFile(quotaFile)
	if err == nil && periodFile != "" {
		var more []byte
		more, err = os.ReadFile(periodFile)
		text = append(append(text, ' '), more...)
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &quota, &period)
	}
	if err == nil {
		text, err = os.ReadFile(pidsFile)
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &pids)
	}
	if err != nil {
		return fmt.Errorf("limits of a sandbox: %w", err)
	}
	r.config.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	r.config.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	return nil
}

// run runs the program in a fresh sandbox, from writing the bundle to removing
// it. It may be called from several goroutines.
func (r *rawRunsc) run() (err error) {
	id := fmt.Sprintf("raw%06d", r.started.Add(1))
	config := r.config
	linux := *config.Linux
	config.Linux = &linux
	if r.group != "" {
		linux.CgroupsPath = r.group + "/" + id
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	bundle := filepath.Join(r.dir, id)
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bundle)) }()
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		return err
	}
	cmd := exec.Command(r.argv[0], append(slices.Clone(r.argv[1:]), "run", "--bundle="+bundle, id)...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("runsc run: %w: %s", err, failed.Stderr)
	}
	if err != nil {
		return err
	}
	return r.program.check(string(out))
}

// stop removes what runsc leaves: a mount, and the parents of its cgroups.
func (r *rawRunsc) stop() error {
	root := filepath.Join(r.dir, "root")
	for unix.Unmount(filepath.Join(root, "null-netns"), unix.MNT_DETACH) == nil {
	}
	err := os.RemoveAll(r.dir)
	if r.group == "" {
		return err
	}
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(hierarchy + r.group) // the pattern is well-formed
		for _, dir := range groups {
			if e := os.Remove(dir); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}
