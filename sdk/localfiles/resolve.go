package localfiles

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// resolve walks a path below the directory that is at the path root, link by link
// and name by name, and never leaves it: ".." goes back to the directory that it
// came from, and a link to an absolute path is followed if that is below root. It
// returns the directory that the last name is in, and that name. With follow it is
// no symbolic link; it need not exist. The name is "." for the directory itself.
//
// os.Root does the same, but can be led out under gVisor; see directory.sub.
func resolve(top *directory, root, name string, follow bool) (*directory, string, error) {
	first, err := top.duplicate()
	if err != nil {
		return nil, "", err
	}
	passed := []*directory{first}
	defer func() {
		for _, d := range passed {
			d.close()
		}
	}()
	give := func(base string) (*directory, string, error) {
		last := passed[len(passed)-1]
		passed = passed[:len(passed)-1]
		return last, base, nil
	}
	links := 0
	for parts := strings.Split(name, "/"); len(parts) > 0; {
		at, part := passed[len(passed)-1], parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(passed) == 1 {
				return nil, "", errEscapes
			}
			at.close()
			passed = passed[:len(passed)-1]
			continue
		}
		last := len(parts) == 0
		if last && !follow {
			return give(part)
		}
		i, err := at.lstat(part)
		switch {
		case last && errors.Is(err, fs.ErrNotExist):
			return give(part)
		case err != nil:
			return nil, "", err
		case i.isSymlink():
			target, err := at.readlink(part)
			if err != nil {
				return nil, "", err
			}
			if links++; links > maxLinks {
				return nil, "", unix.ELOOP
			}
			if path.IsAbs(target) {
				if target, err = filepath.Rel(root, target); err != nil || !filepath.IsLocal(target) {
					return nil, "", errEscapes
				}
				for _, d := range passed[1:] {
					d.close()
				}
				passed = passed[:1]
			}
			parts = append(strings.Split(target, "/"), parts...)
		case last:
			return give(part)
		case len(passed) > maxDepth:
			return nil, "", errTooDeep
		default:
			sub, err := at.sub(part)
			if err != nil {
				return nil, "", err
			}
			passed = append(passed, sub)
		}
	}
	return give(".")
}

// resolveDirectory opens a directory by a path, as resolve understands it.
func resolveDirectory(top *directory, root, name string) (*directory, error) {
	dir, base, err := resolve(top, root, name, true)
	if err != nil || base == "." {
		return dir, err
	}
	defer dir.close()
	return dir.sub(base)
}

// openBelow opens a directory by a path that holds no links.
func openBelow(top *directory, name string) (*directory, error) {
	at, err := top.duplicate()
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			return nil, err
		}
		if part == "." {
			continue
		}
		var next *directory
		next, err = at.sub(part)
		at.close()
		at = next
	}
	return at, err
}
