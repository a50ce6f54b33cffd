package runsc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
)

// rootfs is the root file system that sandboxes share. It is made again when somebody
// has removed it, or a part: beside what is left, which sandboxes may still use.
type rootfs struct {
	parent string

	mu   sync.Mutex
	made int
	current
}

// current is the latest of them.
type current struct {
	dir    string
	mounts []specs.Mount // of the programs onto it
}

// prepare makes what starting a sandbox needs of the state directory, as far as it is
// not there, and returns the root file system.
func (r *Runtime) prepare() (current, error) {
	for _, dir := range []string{r.bundles, r.images, r.memory, r.root} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return current{}, fmt.Errorf("prepare the state directory: %w", err)
		}
	}
	s := r.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made > 0 && s.whole() {
		return s.current, nil
	}
	if s.made > 0 {
		r.logger.Warn("somebody has removed the root file system of the sandboxes, or a part of it; it is made again", "directory", s.dir)
	}
	s.made++
	dir := filepath.Join(s.parent, strconv.Itoa(s.made))
	mounts, err := makeRootfs(dir, r.guest, r.source)
	if err != nil {
		s.made-- // the next one tries again
		return current{}, errors.Join(fmt.Errorf("prepare the root file system: %w", err), os.RemoveAll(dir))
	}
	s.current = current{dir, mounts}
	return s.current, nil
}

// whole reports whether nothing is missing that a sandbox does not start without, or
// that stands in for what is the host's business.
func (c current) whole() bool {
	paths := []string{confine.GuestPath, "dev", "proc", "tmp", "run", "workspace", "home/user", "mnt/user-data"}
	for name := range ownFiles {
		paths = append(paths, name)
	}
	for _, m := range c.mounts {
		paths = append(paths, m.Destination)
	}
	for _, path := range paths {
		if _, err := os.Lstat(filepath.Join(c.dir, path)); err != nil {
			return false
		}
	}
	return true
}

// replaced is another root file system, which is shown whole, with the same guest.
func (c current) replaced(dir string) current {
	return current{dir: dir, mounts: []specs.Mount{{
		Destination: confine.GuestPath, Type: "bind", Source: filepath.Join(c.dir, confine.GuestPath),
		Options: []string{"bind", "ro", "nosuid", "nodev"},
	}}}
}
