package runsc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// MadeWith is what a checkpoint needs to find as it was, by what it is, so that a copy of it
// can be started: its processes have opened files and mapped parts of them, and gVisor does
// not look whether these have changed. The paths are those of the interpreters in a sandbox.
func (r *Runtime) MadeWith(interpreters []string) (map[string]string, error) {
	guest, err := r.guest.Digest()
	if err != nil {
		return nil, err
	}
	runsc, err := os.Stat(r.binary)
	if err != nil {
		return nil, fmt.Errorf("look at runsc: %w", err)
	}
	return map[string]string{
		"gVisor":         fmt.Sprintf("%s %s %d %d", r.version, r.platform, runsc.Size(), runsc.ModTime().UnixNano()),
		"sandbox-guest":  guest,
		"limits":         fmt.Sprintf("%+v", r.limits),
		"programs in it": r.programs(interpreters),
		"file system":    r.source,
	}, nil
}

// programs identifies what sandboxes execute. A package that is upgraded puts a file in the
// place of another, which changes the directory.
func (r *Runtime) programs(interpreters []string) string {
	root := r.source
	if root == HostRootfs {
		root = "/"
	}
	paths := []string{"etc/ld.so.cache", "usr/lib", "usr/lib64", "usr/local/lib"}
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-*")) // the pattern is well-formed
	for _, dir := range libraries {
		paths = append(paths, "usr/lib/"+filepath.Base(dir))
	}
	for _, path := range interpreters {
		paths = append(paths, path, filepath.Dir(path))
		if target, err := filepath.EvalSymlinks(filepath.Join(root, path)); err == nil {
			if inside, err := filepath.Rel(root, target); err == nil {
				paths = append(paths, inside)
			}
		}
	}
	slices.Sort(paths)
	sum := sha256.New()
	for _, path := range slices.Compact(paths) {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil {
			continue // it was not there either when the checkpoint was taken, or the sum is another
		}
		_, _ = fmt.Fprintln(sum, path, info.Size(), info.ModTime().UnixNano()) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}
