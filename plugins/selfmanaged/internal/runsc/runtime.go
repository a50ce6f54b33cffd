package runsc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/cgroup"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestfile"
)

// CgroupMode says how limits on the host are treated.
type CgroupMode string

// The values of CgroupMode.
const (
	CgroupAuto     CgroupMode = "auto"     // set where it is possible
	CgroupRequired CgroupMode = "required" // refuse to start without
)

// Options of a Runtime.
type Options struct {
	// StateDir belongs to the runtime alone; what an earlier one left there is
	// removed.
	StateDir string
	// AbandonedDirs were the StateDir of processes that are no more. What they
	// left is removed.
	AbandonedDirs []string
	// Name distinguishes brokers and their providers in the cgroup tree of the
	// machine, and the last part of StateDir the processes of one provider.
	Name string
	// Binary is the runsc to use, "" to look for one.
	Binary string
	// Guest is the guest binary on the host.
	Guest string
	// Rootfs is HostRootfs, which "" stands for too, or the absolute path of a
	// directory with a root file system.
	Rootfs   string
	Platform string
	Cgroups  CgroupMode
	Limits   confine.Limits
	// Everywhere are directories of this machine that every sandbox sees at the same
	// places, whatever it is started with.
	Everywhere []Mount
	Logger     hclog.Logger
}

// Runtime starts sandboxes.
type Runtime struct {
	binary   string
	version  string
	flags    []string
	bundles  string
	images   string
	memory   string // see newStarter
	root     string
	source   string // Options.Rootfs
	guest    *guestfile.File
	shared   *rootfs
	limits   confine.Limits
	mounts   []Mount      // Options.Everywhere
	tree     *cgroup.Tree // nil if limits cannot be set on this host
	weakness string
	platform string
	rootless bool
	starter  *starter
	logger   hclog.Logger
}

// New checks that sandboxes can be made here, clears away what an earlier
// process left, and prepares the shared root file system. Its errors say in one
// sentence what is missing and what to do.
func New(ctx context.Context, o Options) (*Runtime, error) {
	binary, err := findBinary(o.Binary, o.Guest)
	if err != nil {
		return nil, err
	}
	if err := checkBinary(binary); err != nil {
		return nil, err
	}
	r := &Runtime{
		binary:  binary,
		bundles: filepath.Join(o.StateDir, "bundles"),
		images:  filepath.Join(o.StateDir, "images"),
		memory:  filepath.Join(o.StateDir, "memory"),
		root:    filepath.Join(o.StateDir, "runsc"),
		shared:  &rootfs{parent: filepath.Join(o.StateDir, "rootfs")},
		source:  cmp.Or(o.Rootfs, HostRootfs),
		limits:  o.Limits,
		mounts:  o.Everywhere,
		logger:  o.Logger,

		platform: o.Platform,
		rootless: os.Geteuid() != 0,
	}
	if err := CheckPlatform(r.platform); err != nil {
		return nil, err
	}
	if r.version, err = version(ctx, binary); err != nil {
		return nil, err
	}
	if r.source != HostRootfs {
		if err := checkRootfs(r.source); err != nil {
			return nil, err
		}
	}
	if err := r.setUp(ctx, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// setUp makes what Close removes.
func (r *Runtime) setUp(ctx context.Context, o Options) (err error) {
	r.tree, err = cgroup.NewTree(o.cgroup(o.StateDir))
	switch {
	case err == nil:
		if err := r.tree.Sweep(ctx); err != nil {
			return fmt.Errorf("remove old cgroups: %w", err)
		}
		for _, dir := range o.AbandonedDirs {
			if err := sweepTree(ctx, o.cgroup(dir)); err != nil {
				return fmt.Errorf("remove cgroups of an earlier process: %w", err)
			}
		}
	case o.Cgroups == CgroupRequired:
		return fmt.Errorf("cgroups are required but cannot be used: %w", err)
	default:
		r.weakness = "no host limits on memory, CPU and processes of a sandbox: " + err.Error()
	}
	if r.guest, err = guestfile.Open(o.Guest); err != nil {
		return err
	}
	if err := r.clear(); err != nil {
		return fmt.Errorf("clear the state directory: %w", err)
	}
	if _, err := r.prepare(); err != nil {
		return err
	}
	r.flags = []string{
		"--root=" + r.root, "--network=none", "--platform=" + r.platform,
		noOverlay, "--file-access-mounts=exclusive",
	}
	if r.rootless {
		r.flags = append(r.flags, "--rootless")
	}
	if r.tree == nil {
		r.flags = append(r.flags, "--ignore-cgroups")
	}
	r.starter, err = newStarter(r.memory)
	return err
}

// cgroup is the path of the tree that a process with that state directory has.
func (o Options) cgroup(stateDir string) string {
	return "/sandbox-broker/" + o.Name + "-" + filepath.Base(stateDir)
}

func sweepTree(ctx context.Context, path string) error {
	tree, err := cgroup.NewTree(path)
	if err != nil {
		return err
	}
	return errors.Join(tree.Sweep(ctx), tree.Close())
}

// clear removes everything on disk.
func (r *Runtime) clear() error {
	return errors.Join(os.RemoveAll(r.bundles), os.RemoveAll(r.images), os.RemoveAll(r.memory), os.RemoveAll(r.root), os.RemoveAll(r.shared.parent))
}

// Version of runsc.
func (r *Runtime) Version() string { return r.version }

// Weakness says in one sentence what is not enforced on this host; "" if all is.
func (r *Runtime) Weakness() string { return r.weakness }

// Close removes everything that the runtime made. All sandboxes must have ended.
func (r *Runtime) Close() error {
	if r.starter != nil {
		r.starter.close()
	}
	err := r.clear()
	if r.guest != nil {
		err = errors.Join(err, r.guest.Close())
	}
	if r.tree != nil {
		err = errors.Join(err, r.tree.Close())
	}
	return err
}

// writeBundle writes the OCI bundle of one sandbox.
func (s *Sandbox) writeBundle(cgroupsPath string, env []string, of Template) (string, error) {
	r := s.runtime
	root, err := r.prepare()
	if err != nil {
		return "", err
	}
	if of.Rootfs != "" {
		root = root.replaced(of.Rootfs)
	}
	if len(of.Mounts) > 0 {
		own, err := s.privateRoot(root.dir)
		if err != nil {
			return "", err
		}
		root.dir = own
	}
	dir := filepath.Join(r.bundles, s.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	mounts := slices.Concat(r.mounts, of.Mounts)
	if of.Writable != nil {
		mounts = nil
	}
	for _, m := range r.mounts { // somebody may have removed one
		if err := os.MkdirAll(m.Source, 0o711); err != nil {
			return "", err
		}
	}
	spec := r.spec(root, cgroupsPath, env, of.Limits)
	share(spec, mounts)
	if of.Writable != nil {
		spec.Root.Readonly = false
		spec.Process.Args = append(spec.Process.Args, guest.CommandBuild)
		for _, set := range []*[]string{&spec.Process.Capabilities.Bounding, &spec.Process.Capabilities.Effective, &spec.Process.Capabilities.Permitted} {
			*set = append(slices.Clip(*set), isolation.BuildCapabilities()...)
		}
	}
	config, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
}
