// Package hostfile says whether a file or directory of this machine can be changed
// by somebody besides root and the user of this process. What such a user can change
// must not be executed, nor shown to others as a system.
//
// Files in a sandbox are not its matter.
package hostfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Check says who besides root and ourselves may write a file or directory, and how to
// change that; nil if nobody may.
func Check(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner is unknown")
	}
	mode := info.Mode()
	switch {
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d", stat.Uid)
	case mode.Perm()&0o002 != 0:
		return errors.New("everybody may write it (chmod o-w)")
	case mode.Perm()&0o020 != 0 && !privateGroup(stat.Gid):
		return fmt.Errorf("group %d may write it (chmod g-w)", stat.Gid)
	}
	return nil
}

// CheckPath is Check for what a path leads to. The error names the path.
func CheckPath(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := Check(info); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// CheckWithDirectories is CheckPath for a file or directory and for the directory that
// it is in: that of its name and, where the name is a link, that of its target. Whoever
// may write one of them can put another file in its place.
func CheckWithDirectories(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, each := range []string{filepath.Dir(path), filepath.Dir(resolved), resolved} {
		if err := CheckPath(each); err != nil {
			return err
		}
	}
	return nil
}

// privateGroup reports whether a group is the user's own: many systems give each
// user a group of the same name and a umask of 002, so that everything a build
// makes is writable by that group.
func privateGroup(gid uint32) bool {
	group, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10))
	if err != nil {
		return false
	}
	me, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	return err == nil && me.Gid == group.Gid && me.Username == group.Name
}
