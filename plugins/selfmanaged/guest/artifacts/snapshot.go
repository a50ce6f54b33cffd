package artifacts

import (
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Dir is the directory in the workspace whose new files go back by themselves.
const Dir = "artifacts"

// Snapshot is what lay below Dir at some time.
type Snapshot map[string]stamp

// stamp tells a file from itself at another time.
type stamp struct {
	inode, size              uint64
	modifiedSec, modifiedNS  int64
	statusSec, statusChanged int64
}

// Make makes Dir in a workspace unless something has that name, and says whether it did.
// asUser does something with the rights of the user whose directory it shall be. Without
// room for a directory there is none.
func Make(workspace string, asUser func(func() error) error) bool {
	path := filepath.Join(workspace, Dir)
	// To become another user takes several system calls, and it is there mostly: one tells.
	var there unix.Stat_t
	if unix.Lstat(path, &there) == nil {
		return false
	}
	return asUser(func() error { return unix.Mkdir(path, 0o755) }) == nil
}

// Take looks at a workspace as it is.
func Take(workspace string) Snapshot {
	dir, err := descend(workspace, Dir)
	if err != nil {
		return nil // there is none, or nothing that is a directory
	}
	defer dir.Close()
	s := Snapshot{}
	newTree().files(dir, Dir+"/", 0, func(path string, info unix.Stat_t) {
		s[path] = stamp{
			inode: info.Ino, size: uint64(info.Size), modifiedSec: info.Mtim.Sec, modifiedNS: info.Mtim.Nsec,
			statusSec: info.Ctim.Sec, statusChanged: info.Ctim.Nsec,
		}
	})
	return s
}

// Changed returns the files of a workspace that are new or others since then, in
// the order of their names.
func (s Snapshot) Changed(workspace string) []string {
	now := Take(workspace)
	maps.DeleteFunc(now, func(path string, info stamp) bool {
		before, was := s[path]
		return was && before == info
	})
	return slices.Sorted(maps.Keys(now))
}
