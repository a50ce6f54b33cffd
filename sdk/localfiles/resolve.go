package localfiles

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

var errEscapes = errors.New("leads out through a symbolic link")

// resolve takes the symbolic links out of a name: relative ones, and those to absolute
// paths that are in this place as code sees it, which os.Root alone would refuse. What
// code changes behind it leads nowhere else: os.Root sees to that, whatever the name.
func (at place) resolve(name string, follow bool) (string, error) {
	done, links := ".", 0
	for parts := strings.Split(name, "/"); len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done == "." {
				return "", errEscapes
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		if len(parts) == 0 && !follow {
			return next, nil
		}
		info, err := at.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path.Join(append([]string{next}, parts...)...), nil // who asks will hear of it
		case err != nil:
			return "", err
		case info.Mode().Type() != fs.ModeSymlink:
			done = next
			continue
		}
		target, err := at.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if path.IsAbs(target) {
			if target, err = filepath.Rel(at.top, path.Clean(target)); err != nil || !filepath.IsLocal(target) {
				return "", errEscapes
			}
			done = "."
		}
		parts = append(strings.Split(target, "/"), parts...)
	}
	return done, nil
}
