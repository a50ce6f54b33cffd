package runsc

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// guestPath is where the guest lies inside a sandbox.
const guestPath = "/opt/sandbox/guest"

// etcFiles are what the loader and the interpreters read of the host's /etc.
// None of them holds a secret. Missing ones are left out.
var etcFiles = []string{"ld.so.cache", "alternatives", "localtime", "mime.types", "ssl/openssl.cnf", "python3", "python3.*"}

// ownFiles stand in for the host's: its users and hosts are nobody's business.
var ownFiles = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/workspace:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
	"etc/group":         "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
	"etc/hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
	"etc/hostname":      "sandbox\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

// systemDirs are on some systems links into /usr, on others directories.
var systemDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// makeRootfs builds the root file system that all sandboxes share, read-only: a
// skeleton onto which the host's /usr is mounted. It returns those mounts.
func makeRootfs(dir, guest string) ([]specs.Mount, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	for _, sub := range []string{"dev", "proc", "tmp", "run", "usr", "workspace", "etc", "opt/sandbox"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	mounts := []specs.Mount{bind("/usr")}
	for _, name := range systemDirs {
		info, err := os.Lstat("/" + name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				return nil, err
			}
			mounts = append(mounts, bind("/"+name))
		default:
			if err := copyTree("/"+name, filepath.Join(dir, name)); err != nil {
				return nil, err
			}
		}
	}
	for _, pattern := range etcFiles {
		matches, err := filepath.Glob(filepath.Join("/etc", pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range matches {
			if err := copyTree(path, filepath.Join(dir, path)); err != nil {
				return nil, err
			}
		}
	}
	for name, content := range ownFiles {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	if err := copyFile(guest, filepath.Join(dir, guestPath), 0o555); err != nil {
		return nil, fmt.Errorf("copy the guest: %w", err)
	}
	return mounts, nil
}

func bind(path string) specs.Mount {
	return specs.Mount{Destination: path, Type: "bind", Source: path, Options: []string{"rbind", "ro", "nosuid", "nodev"}}
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

// Interpreter finds a program among those that a sandbox sees, by the path that
// it has there.
func Interpreter(names ...string) (string, bool) {
	for _, name := range names {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin"} {
			path := filepath.Join(dir, name)
			// A link that leads out of /usr leads nowhere in the sandbox.
			target, err := filepath.EvalSymlinks(path)
			if err != nil || !within("/usr", target) {
				continue
			}
			if _, err := exec.LookPath(path); err == nil {
				return path, true
			}
		}
	}
	return "", false
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
