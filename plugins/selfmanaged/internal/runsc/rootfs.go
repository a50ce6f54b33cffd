package runsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestfile"
	"github.com/sandbox-broker/sandbox-broker/sdk/hostfile"
)

// HostRootfs, as Options.Rootfs, shows sandboxes this machine's own programs.
const HostRootfs = "host"

// etcFiles are what the loader and the interpreters read of the host's /etc.
// None of them holds a secret. Missing ones are left out.
var etcFiles = []string{"ld.so.cache", "alternatives", "localtime", "mime.types", "ssl/openssl.cnf", "ssl/certs/ca-certificates.crt", "python3", "python3.*"}

// ownFiles stand in for the host's: its users and hosts are nobody's business.
var ownFiles = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/workspace:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	"etc/group":         "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"etc/hostname":      "sandbox\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"etc/resolv.conf":   "nameserver 127.0.0.1\n", // the guest's, where there is a network
}

// gitSettings let git use a repository in /workspace itself, which is root's: git trusts
// the directories of its user alone. Root file systems of make rootfs have the same.
const gitSettings = "[safe]\n\tdirectory = *\n"

// MountPoints are the directories that a root file system has so that sandboxes can be
// started with it; the guest is mounted onto a file at confine.GuestPath. None of them is a
// link, which would lead elsewhere.
func MountPoints() []string {
	return []string{"dev", "proc", "sys", "tmp", "run", "workspace", "home/user", "mnt/user-data", "etc", "opt/sandbox"}
}

// OwnFiles stand in for those of an image: users and names of a sandbox are not the
// image's business.
func OwnFiles() map[string]string {
	own := maps.Clone(ownFiles)
	own["etc/gitconfig"] = gitSettings
	return own
}

// systemDirs are on some systems links into /usr, on others directories.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// CheckRootfs finds what makes a value of Options.Rootfs unusable.
func CheckRootfs(source string) error {
	if source == "" || source == HostRootfs {
		return nil
	}
	return checkRootfs(source)
}

// checkRootfs finds what makes a directory unusable as a root file system, and
// whether somebody else may change what sandboxes run as root.
func checkRootfs(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("must be %q or an absolute path, which %q is not", HostRootfs, dir)
	}
	info, err := os.Stat(filepath.Join(dir, "usr"))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the root file system cannot be looked at: %w", err)
	}
	if err != nil || !info.IsDir() {
		return fmt.Errorf("there is no root file system at %s: make one with `make rootfs`", dir)
	}
	err = hostfile.CheckWithDirectories(dir)
	for _, name := range append([]string{"usr", "var", "etc", "opt", "usr/bin", "usr/local", "usr/local/bin", "usr/lib"}, systemDirs...) {
		// What is a link there leads elsewhere on this machine than in a sandbox.
		path := filepath.Join(dir, name)
		if info, missing := os.Lstat(path); err == nil && missing == nil && info.IsDir() {
			err = hostfile.CheckPath(path)
		}
	}
	if err != nil {
		return fmt.Errorf("the root file system may be changed by others: %w", err)
	}
	return nil
}

// makeRootfs builds the root file system that all sandboxes share, read-only: a
// skeleton onto which the programs are mounted, those of the host or those of the
// directory source. It returns these mounts.
func makeRootfs(dir string, guest *guestfile.File, source string) ([]specs.Mount, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	for _, sub := range []string{"dev", "proc", "tmp", "run", "usr", "workspace", "home/user", "mnt/user-data", "etc", "opt/sandbox"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	root, etc := "/", etcFiles
	shown, dirs := []string{"usr"}, systemDirs
	if source != HostRootfs {
		// Nothing in it is a secret of this machine, so it is shown whole.
		root, etc = source, []string{"*"}
		dirs = append([]string{"var"}, systemDirs...)
		opt, err := filepath.Glob(filepath.Join(root, "opt", "*"))
		if err != nil {
			return nil, err
		}
		for _, path := range opt {
			if name := filepath.Join("opt", filepath.Base(path)); name != filepath.Dir(confine.GuestPath)[1:] {
				dirs = append(dirs, name)
			}
		}
	}
	for _, name := range dirs {
		info, err := os.Lstat(filepath.Join(root, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				return nil, err
			}
			shown = append(shown, name)
		default:
			if err := copyTree(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
	}
	for _, pattern := range etc {
		matches, err := filepath.Glob(filepath.Join(root, "etc", pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range matches {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			if err := copyTree(path, filepath.Join(dir, rel)); err != nil {
				return nil, err
			}
		}
	}
	own := maps.Clone(ownFiles)
	if source == HostRootfs {
		own["etc/gitconfig"] = gitSettings
	}
	for name, content := range own {
		if err := replaceFile(filepath.Join(dir, name), content); err != nil {
			return nil, err
		}
	}
	if err := guest.Install(filepath.Join(dir, confine.GuestPath)); err != nil {
		return nil, fmt.Errorf("copy the guest: %w", err)
	}
	if err := letOthersRead(dir); err != nil {
		return nil, err
	}
	var mounts []specs.Mount
	for _, name := range shown {
		mounts = append(mounts, specs.Mount{
			Destination: "/" + name, Type: "bind", Source: filepath.Join(root, name),
			Options: []string{"rbind", "ro", "nosuid", "nodev"},
		})
	}
	return mounts, nil
}

// letOthersRead has the users of a sandbox see what is there, whatever mask of modes the
// broker was started with.
func letOthersRead(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		switch {
		case info.IsDir():
			return os.Chmod(path, 0o755)
		case info.Mode().IsRegular():
			return os.Chmod(path, mode|mode&0o500>>3|mode&0o500>>6)
		default:
			return nil
		}
	})
}

// replaceFile writes a file in the place of what was copied there, which may be a
// link.
func replaceFile(path, content string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// copyTree copies a file, a link as a link, or a directory with what others may
// read of it.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return os.MkdirAll(target, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case info.Mode().IsRegular() && info.Mode()&0o004 != 0:
			return copyFile(path, target, 0o644)
		default:
			return nil
		}
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Programs identifies what sandboxes without a template of their own execute: another text
// when an interpreter, or the libraries beside it, are others. The paths are those of
// programs in a sandbox.
func (r *Runtime) Programs(paths []string) string { return r.source + " " + r.programs(paths) }

// Interpreter finds a program among those that a sandbox sees, by the path that
// it has there.
func (r *Runtime) Interpreter(_ context.Context, names ...string) (string, bool, error) {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
			path := filepath.Join(dir, name)
			found, err := r.hasProgram(path)
			if found || err != nil {
				return path, found, err
			}
		}
	}
	return "", false, nil
}

// hasProgram reports whether a path leads to a program inside the sandbox. A link
// that leads out of what is shown there leads nowhere.
func (r *Runtime) hasProgram(path string) (bool, error) {
	if r.source == HostRootfs {
		target, err := filepath.EvalSymlinks(path)
		if err != nil || !within("/usr", target) {
			return false, nil
		}
		_, err = exec.LookPath(path)
		return err == nil, nil
	}
	root, err := os.OpenRoot(r.source)
	if err != nil {
		return false, fmt.Errorf("open the root file system: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(path[1:])
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0, nil
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
