package artifacts

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Find returns what a pattern names, in the order of names and at most limit.
// A pattern is a path relative to the workspace, in which *, ? and [ ] stand for
// parts of a name and ** for any number of directories. Only regular files are
// found by those; a path without them is returned as it is, for Read to look at.
func Find(workspace, pattern string, limit int) ([]string, error) {
	clean, err := relative(workspace, pattern)
	if err != nil {
		return nil, err
	}
	if !strings.ContainsAny(clean, `*?[\`) {
		return []string{clean}, nil
	}
	if _, err := path.Match(clean, ""); err != nil {
		return nil, errors.New("is no pattern that can be understood")
	}
	root, err := os.Open(workspace)
	if err != nil {
		return nil, errors.New("there is no workspace")
	}
	defer root.Close()
	s := search{tree: newTree(), found: map[string]bool{}}
	s.match(root, "", strings.Split(clean, "/"), 0)
	if len(s.found) == 0 {
		return nil, errors.New("matches no file")
	}
	names := make([]string, 0, len(s.found))
	for name := range s.found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[:min(len(names), limit)], nil
}

// relative takes a path of a workspace in either form.
func relative(workspace, name string) (string, error) {
	name = strings.TrimPrefix(name, workspace+"/")
	clean := path.Clean(name)
	switch {
	case strings.ContainsRune(name, 0):
		return "", errors.New("is no path")
	case path.IsAbs(clean), clean == "..", strings.HasPrefix(clean, "../"):
		return "", fmt.Errorf("is outside of %s", workspace)
	case clean == ".":
		return "", errors.New("is a directory")
	}
	return clean, nil
}

// search collects what matches.
type search struct {
	*tree
	found map[string]bool
}

func (s *search) match(dir *os.File, prefix string, parts []string, depth int) {
	if depth > maxDepth || s.left <= 0 {
		return
	}
	if parts[0] == "**" {
		// It stands for no directory as well; at the end for every file.
		if len(parts) == 1 {
			s.files(dir, prefix, depth, func(path string, _ unix.Stat_t) { s.found[path] = true })
			return
		}
		s.match(dir, prefix, parts[1:], depth+1)
	}
	if _, err := dir.Seek(0, 0); err != nil { // it may have been read for the other meaning of **
		return
	}
	s.entries(dir, func(name string, info unix.Stat_t) {
		matches, _ := path.Match(parts[0], name)
		isDirectory := info.Mode&unix.S_IFMT == unix.S_IFDIR
		switch {
		case parts[0] == "**" && isDirectory:
			s.enter(dir, prefix, name, parts, depth)
		case parts[0] == "**" || !matches:
		case len(parts) > 1 && isDirectory:
			s.enter(dir, prefix, name, parts[1:], depth)
		case len(parts) == 1 && info.Mode&unix.S_IFMT == unix.S_IFREG:
			s.found[prefix+name] = true
		}
	})
}

func (s *search) enter(dir *os.File, prefix, name string, parts []string, depth int) {
	next, err := openDirectory(dir, name)
	if err != nil {
		return
	}
	defer next.Close()
	s.match(next, prefix+name+"/", parts, depth+1)
}
