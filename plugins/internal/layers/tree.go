package layers

import (
	"context"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Tree is a root file system in memory: names, links, and where the contents are.
type Tree struct {
	root   *node
	limits Limits
	// nodes counts the entries of all layers, and directories that none of them names.
	nodes int
}

// node is a file, a directory or a symbolic link. Hard links are one content under
// several nodes.
type node struct {
	mode     fs.FileMode      // with fs.ModeDir or fs.ModeSymlink
	children map[string]*node // of a directory
	target   string           // of a symbolic link
	content  string           // of a file: the path of what it has
	text     []byte           // of a file that Put has made
	size     int64
}

func (n *node) isDir() bool     { return n.mode&fs.ModeDir != 0 }
func (n *node) isSymlink() bool { return n.mode&fs.ModeSymlink != 0 }

func newDir() *node { return &node{mode: fs.ModeDir | 0o755, children: map[string]*node{}} }

// Bounds of a path that is followed: the links as in Linux, and the elements of the path and
// of the targets of its links, "." and empty ones included.
const (
	maxFollowed = 40
	maxSteps    = 1024
)

// checkEvery is after how many entries Merge looks whether its caller still waits.
const checkEvery = 256

// Merge plays layers, the lowest first. limits are those of all layers together. Errors are
// *InvalidError, or that of ctx.
func Merge(ctx context.Context, layers []*Layer, limits Limits) (*Tree, error) {
	t := &Tree{root: newDir(), limits: limits}
	var names int64
	for _, layer := range layers {
		if names += layer.Used().Names; names > limits.Names {
			return nil, invalid("the names in the image have more than %d bytes", limits.Names)
		}
		// What a layer removes is of lower layers alone, wherever its archive says so: it is
		// removed whole, before there is anything of the layer itself.
		for i, e := range layer.Entries {
			if i%checkEvery == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := t.count(); err != nil {
				return nil, err
			}
			t.remove(e)
		}
		for i, e := range layer.Entries {
			if i%checkEvery == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := t.apply(layer, e); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// count adds an entry, or a directory that is made for one.
func (t *Tree) count() error {
	if t.nodes++; t.nodes > t.limits.Entries {
		return invalid("the image has more than %d entries", t.limits.Entries)
	}
	return nil
}

// remove plays an entry that removes something; others are nothing to it.
func (t *Tree) remove(e entry) {
	switch e.Kind {
	case kindWhiteout:
		if dir, name := t.existingParent(e.Path); dir != nil {
			delete(dir.children, name)
		}
	case kindOpaque:
		if dir := t.existing(e.Path); dir != nil && dir.isDir() {
			dir.children = map[string]*node{}
		}
	}
}

// apply plays an entry that makes something.
func (t *Tree) apply(layer *Layer, e entry) error {
	if e.Path == "" || e.Kind == kindWhiteout || e.Kind == kindOpaque { // the root stays what it is
		return nil
	}
	made := &node{}
	switch e.Kind {
	case kindDirectory:
		made = newDir()
		made.mode = fs.ModeDir | e.Mode
	case kindFile:
		made.mode, made.size = e.Mode, e.Size
		made.content = filepath.Join(layer.dir, filesName, strconv.Itoa(e.File))
	case kindSymlink:
		made.mode, made.target = fs.ModeSymlink|0o777, e.Target
	case kindHardLink:
		of := t.existing(e.Target)
		if of == nil || of.isDir() {
			return invalid("%s is a hard link to %s, which is no file of the image", shown(e.Path), shown(e.Target))
		}
		same := *of
		made = &same
	default:
		return invalid("the index of the layer has an entry of an unknown kind")
	}
	return t.put(e.Path, made)
}

// put places a node in the tree, below directories that are made as needed.
func (t *Tree) put(path string, made *node) error {
	dirPath, name := splitPath(path)
	dir, err := t.directory(dirPath)
	if err != nil {
		return err
	}
	if there := dir.children[name]; there != nil && there.isDir() && made.isDir() {
		there.mode = made.mode
		return nil
	}
	dir.children[name] = made
	return nil
}

// directory returns the directory at a path, made as far as it is missing. Symbolic links
// on the way lead where they would in the sandbox.
func (t *Tree) directory(path string) (*node, error) {
	at, err := t.walk(path, func(dir *node, name string) (*node, error) {
		if err := t.count(); err != nil {
			return nil, err
		}
		made := newDir()
		dir.children[name] = made
		return made, nil
	})
	if err != nil {
		return nil, err
	}
	return at, nil
}

// existing returns what a path leads to, as it is in the tree: its last element is not
// followed. nil for nothing.
func (t *Tree) existing(path string) *node {
	if path == "" {
		return t.root
	}
	dir, name := t.existingParent(path)
	if dir == nil {
		return nil
	}
	return dir.children[name]
}

// existingParent returns the directory that a path is in, nil if there is none.
func (t *Tree) existingParent(path string) (*node, string) {
	dirPath, name := splitPath(path)
	dir, err := t.walk(dirPath, nil)
	if err != nil {
		return nil, ""
	}
	return dir, name
}

// walk follows a path to a directory, and symbolic links on the way, which never leave
// the root. lacking makes a directory that is missing; without it that is an error.
func (t *Tree) walk(path string, lacking func(dir *node, name string) (*node, error)) (*node, error) {
	way := []*node{t.root}
	todo := []string{path} // what is left of the path and of links, the last of which is next
	for followed, steps := 0, 0; len(todo) > 0; steps++ {
		if steps > maxSteps {
			return nil, invalid("%s leads through too many directories", shown(path))
		}
		name, left, more := strings.Cut(todo[len(todo)-1], "/")
		if todo[len(todo)-1] = left; !more {
			todo = todo[:len(todo)-1]
		}
		at := way[len(way)-1]
		if name == "" || name == "." {
			continue
		}
		if name == ".." {
			if len(way) > 1 {
				way = way[:len(way)-1]
			}
			continue
		}
		next := at.children[name]
		switch {
		case next == nil && lacking == nil:
			return nil, invalid("%s does not exist in the image", shown(path))
		case next == nil && len(name) > maxName:
			return nil, invalid("a name in the image has more than %d bytes", maxName)
		case next == nil:
			if len(way) > maxDepth {
				return nil, invalid("a path of the image is more than %d directories deep", maxDepth)
			}
			made, err := lacking(at, name)
			if err != nil {
				return nil, err
			}
			way = append(way, made)
		case next.isDir():
			way = append(way, next)
		case next.isSymlink():
			if followed++; followed > maxFollowed {
				return nil, invalid("%s leads through too many symbolic links", shown(path))
			}
			if strings.HasPrefix(next.target, "/") {
				way = way[:1]
			}
			todo = append(todo, next.target)
		default:
			return nil, invalid("%s has a file where a directory should be", shown(path))
		}
	}
	return way[len(way)-1], nil
}

// elements of a path.
func elements(path string) (list []string) {
	for element := range strings.SplitSeq(path, "/") {
		if element != "" && element != "." {
			list = append(list, element)
		}
	}
	return list
}

// PutDirectory makes sure that there is a directory at a path, and on the way there, which
// no symbolic link replaces: something is mounted there.
func (t *Tree) PutDirectory(path string) {
	at := t.root
	for _, name := range elements(path) {
		next := at.children[name]
		if next == nil || !next.isDir() {
			next = newDir()
			at.children[name] = next
		}
		next.mode |= 0o555
		at = next
	}
}

// PutFile places a file with that text at a path, in the place of whatever is there.
func (t *Tree) PutFile(path, text string) {
	dir, name := splitPath(path)
	t.PutDirectory(dir)
	at := t.root
	for _, element := range elements(dir) {
		at = at.children[element]
	}
	at.children[name] = &node{mode: 0o444, text: []byte(text), size: int64(len(text))}
}

// Program reports whether a path leads to a file that code in a sandbox can execute.
func (t *Tree) Program(path string) bool {
	n := t.follow(path)
	return n != nil && !n.isDir() && n.mode&0o001 != 0
}

// Content is where the content of the file is that a path leads to; "" if that is none.
func (t *Tree) Content(path string) string {
	if n := t.follow(path); n != nil && !n.isDir() {
		return n.content
	}
	return ""
}

// IsDirectory reports whether a path leads to a directory.
func (t *Tree) IsDirectory(path string) bool {
	n := t.follow(path)
	return n != nil && n.isDir()
}

// follow returns what a path leads to in the end; nil for nothing.
func (t *Tree) follow(path string) *node {
	path = strings.Trim(path, "/")
	for range maxFollowed {
		n := t.existing(path)
		if n == nil || !n.isSymlink() {
			return n
		}
		dir, _ := splitPath(path)
		if strings.HasPrefix(n.target, "/") {
			dir = ""
		}
		// walk goes the way to the directory, whatever its elements are.
		path = strings.Trim(joinPath(dir, strings.Trim(n.target, "/")), "/")
		if len(path) > 2*maxPath {
			return nil
		}
	}
	return nil
}
