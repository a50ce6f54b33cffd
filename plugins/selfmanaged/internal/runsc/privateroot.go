package runsc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// privateRoot shows a root file system as it is, for one sandbox alone, and returns where. runsc
// makes a directory in it for each one that the sandbox shares: in what all sandboxes have, the
// others would find these, by their names.
func (s *Sandbox) privateRoot(of string) (string, error) {
	dir := filepath.Join(s.runtime.memory, s.ID+"-root")
	shown := filepath.Join(dir, "shown")
	err := s.runtime.starter.run(func() error {
		options := ""
		for option, path := range map[string]string{"lowerdir": of, "upperdir": filepath.Join(dir, "upper"), "workdir": filepath.Join(dir, "work")} {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			if option == "upperdir" { // whose mode the root directory has, whatever the mask of modes is
				if err := os.Chmod(path, 0o755); err != nil {
					return err
				}
			}
			// A path may have characters that separate options; that of a descriptor has none.
			opened, err := os.Open(path)
			if err != nil {
				return err
			}
			defer opened.Close()
			options += fmt.Sprintf(",%s=/proc/thread-self/fd/%d", option, opened.Fd())
		}
		if err := os.Mkdir(shown, 0o755); err != nil {
			return err
		}
		return unix.Mount("overlay", shown, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.TrimPrefix(options, ","))
	})
	if err != nil {
		return "", errors.Join(fmt.Errorf("show the sandbox a root file system of its own: %w", err), s.removeRoot())
	}
	s.ownRoot = dir
	return shown, nil
}

// removeRoot removes what privateRoot has made.
func (s *Sandbox) removeRoot() error {
	dir := filepath.Join(s.runtime.memory, s.ID+"-root")
	return s.runtime.starter.run(func() error {
		err := unix.Unmount(filepath.Join(dir, "shown"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is mounted
			err = nil
		}
		return errors.Join(err, os.RemoveAll(dir))
	})
}
