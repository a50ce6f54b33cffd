package layers

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
)

// Files are what is in the tree, to be read. Symbolic links lead where they would in a
// sandbox, and nowhere else.
func (t *Tree) Files() *Files { return &Files{tree: t} }

// Files is a file system that cannot be written to.
type Files struct{ tree *Tree }

var (
	_ fs.ReadDirFS  = (*Files)(nil)
	_ fs.StatFS     = (*Files)(nil)
	_ fs.ReadLinkFS = (*Files)(nil)
)

// find returns what a path is, its last element followed or not.
func (f *Files) find(op, path string, follow bool) (*node, error) {
	if !fs.ValidPath(path) {
		return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
	}
	if path == "." {
		return f.tree.root, nil
	}
	look := f.tree.existing
	if follow {
		look = f.tree.follow
	}
	if n := look(path); n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: path, Err: fs.ErrNotExist}
}

// Open implements fs.FS.
func (f *Files) Open(path string) (fs.File, error) {
	n, err := f.find("open", path, true)
	if err != nil {
		return nil, err
	}
	opened := &file{nodeInfo: f.info(path, n)}
	switch {
	case n.isDir():
	case n.content == "":
		opened.Reader = bytes.NewReader(n.text)
	default:
		content, err := os.Open(n.content)
		if err != nil {
			return nil, err
		}
		opened.Reader, opened.content = content, content
	}
	return opened, nil
}

// ReadDir implements fs.ReadDirFS.
func (f *Files) ReadDir(path string) ([]fs.DirEntry, error) {
	n, err := f.find("readdir", path, true)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: fs.ErrInvalid}
	}
	list := make([]fs.DirEntry, 0, len(n.children))
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		list = append(list, fs.FileInfoToDirEntry(f.info(name, n.children[name])))
	}
	return list, nil
}

// Stat implements fs.StatFS.
func (f *Files) Stat(path string) (fs.FileInfo, error) {
	n, err := f.find("stat", path, true)
	if err != nil {
		return nil, err
	}
	return f.info(path, n), nil
}

// Lstat implements fs.ReadLinkFS.
func (f *Files) Lstat(path string) (fs.FileInfo, error) {
	n, err := f.find("lstat", path, false)
	if err != nil {
		return nil, err
	}
	return f.info(path, n), nil
}

// ReadLink implements fs.ReadLinkFS.
func (f *Files) ReadLink(path string) (string, error) {
	n, err := f.find("readlink", path, false)
	if err != nil {
		return "", err
	}
	if !n.isSymlink() {
		return "", &fs.PathError{Op: "readlink", Path: path, Err: fs.ErrInvalid}
	}
	return n.target, nil
}

func (f *Files) info(path string, n *node) nodeInfo {
	_, name := splitPath(path)
	info := nodeInfo{node: n, name: name}
	if n.content != "" {
		if of, err := os.Stat(n.content); err == nil {
			info.modified = of.ModTime()
		}
	}
	return info
}

// nodeInfo describes a node under one of its names.
type nodeInfo struct {
	node     *node
	name     string
	modified time.Time
}

var _ fs.FileInfo = nodeInfo{}

func (i nodeInfo) Name() string       { return i.name }
func (i nodeInfo) Size() int64        { return i.node.size }
func (i nodeInfo) Mode() fs.FileMode  { return i.node.mode }
func (i nodeInfo) ModTime() time.Time { return i.modified }
func (i nodeInfo) IsDir() bool        { return i.node.isDir() }
func (i nodeInfo) Sys() any           { return nil }

// file is an open file, or a directory that says no more than what it is.
type file struct {
	nodeInfo
	io.Reader
	content *os.File // nil for none
}

func (f *file) Stat() (fs.FileInfo, error) { return f.nodeInfo, nil }

func (f *file) Read(p []byte) (int, error) {
	if f.Reader == nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	return f.Reader.Read(p)
}

func (f *file) Close() error {
	if f.content == nil {
		return nil
	}
	return f.content.Close()
}
