package pluginhost

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/sdk/hostfile"
)

// executableName keeps a plugin's name from leaving the plugin directory.
var executableName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// executable is a plugin's file, opened and checked. What is checked is the
// descriptor, and the descriptor is what runs: nobody can swap the file in
// between.
type executable struct {
	name string
	// path as the operator knows it, for argv[0] and for the log.
	path   string
	file   *os.File
	script bool
	// version is the file's fingerprint.
	version string
}

// openExecutable finds name in dir and refuses what somebody else could have
// changed. A pin is the SHA-256 of the file in hexadecimal, "" for none.
func openExecutable(dir, name, pin string) (*executable, error) {
	if !executableName.MatchString(name) {
		return nil, notStarted(fmt.Sprintf("the plugin name %.140q is not a file name of the form %s", name, executableName))
	}
	path := filepath.Join(dir, name)
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notStarted(fmt.Sprintf("there is no plugin %q in the plugin directory", name), path)
	}
	if err != nil {
		return nil, notStarted(fmt.Sprintf("the plugin %q cannot be read", name), err.Error())
	}
	if err := hostfile.CheckPath(filepath.Dir(resolved)); err != nil {
		return nil, notStarted(fmt.Sprintf("the plugin %q lies in a directory that others may change", name), err.Error())
	}
	// O_NONBLOCK so that a FIFO of that name cannot hold us.
	file, err := os.OpenFile(resolved, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, notStarted(fmt.Sprintf("the plugin %q cannot be read", name), err.Error())
	}
	e := &executable{name: name, path: path, file: file}
	if err := e.check(pin); err != nil {
		file.Close()
		return nil, err
	}
	return e, nil
}

func (e *executable) check(pin string) error {
	info, err := e.file.Stat()
	switch {
	case err != nil:
		return notStarted(fmt.Sprintf("the plugin %q cannot be read", e.name), err.Error())
	case !info.Mode().IsRegular():
		return notStarted(fmt.Sprintf("the plugin %q is not a regular file", e.name), e.path)
	case info.Mode().Perm()&0o111 == 0:
		return notStarted(fmt.Sprintf("the plugin %q is not executable", e.name), "chmod +x "+e.path)
	}
	if err := hostfile.Check(info); err != nil {
		return notStarted(fmt.Sprintf("the plugin %q may be changed by others", e.name), e.path+": "+err.Error())
	}
	start := make([]byte, 2)
	if _, err := e.file.ReadAt(start, 0); err != nil {
		return notStarted(fmt.Sprintf("the plugin %q is empty or cannot be read", e.name), e.path)
	}
	e.script = bytes.Equal(start, []byte("#!"))
	e.version = fingerprint(info)
	if pin == "" {
		return nil
	}
	if e.script {
		// The interpreter opens the script again by name, so a checksum
		// taken before says nothing about what runs.
		return notStarted(fmt.Sprintf("the plugin %q is a script, and sha256 can pin programs only", e.name), e.path)
	}
	want, err := hex.DecodeString(pin)
	if err != nil || len(want) != sha256.Size {
		return notStarted(fmt.Sprintf("the sha256 of plugin %q is not 64 hexadecimal digits", e.name))
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(e.file, 0, info.Size())); err != nil {
		return notStarted(fmt.Sprintf("the plugin %q cannot be read", e.name), err.Error())
	}
	if subtle.ConstantTimeCompare(hash.Sum(nil), want) != 1 {
		return notStarted(fmt.Sprintf("the plugin %q does not have the pinned sha256", e.name),
			fmt.Sprintf("%s has %x", e.path, hash.Sum(nil)))
	}
	return nil
}

// fingerprint tells one version of a file from another without reading it. Who
// writes a file in place within the clock's resolution fools it, and nobody who
// installs one does: a running program cannot be written, only replaced.
func fingerprint(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d:%d:%d", stat.Dev, stat.Ino, stat.Size, info.ModTime().UnixNano())
}

// runPath is what to execute: for a program a link in dir to the descriptor, which is
// what was checked, so that the process is called as its plugin is. A script's
// interpreter opens the file again by its name.
func (e *executable) runPath(dir string) (path string, file *os.File, err error) {
	if e.script {
		return e.path, nil, nil
	}
	path = filepath.Join(dir, e.name)
	if err := os.Symlink(watchdog.FilePath(), path); err != nil {
		return "", nil, err
	}
	return path, e.file, nil
}

func (e *executable) close() { e.file.Close() }
