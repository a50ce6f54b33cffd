package archive

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Summary tells what was unpacked.
type Summary struct {
	// Files are files and symbolic links.
	Files int
	Bytes int64
}

// Unpack puts what a tar stream holds into a directory, which is made if it is not there.
// Links that lead out of the directory, devices and pipes are left out and told to skipped.
// What is in the way of a file is replaced, unless it is a directory.
func Unpack(r io.Reader, dir string, skipped func(name, why string)) (Summary, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Summary{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Summary{}, err
	}
	defer root.Close()
	u := &unpacking{root: root, skipped: skipped}
	stream := &endWatcher{Reader: r}
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return u.done, errors.Join(stream.whole(), u.modes())
		}
		if err != nil {
			return u.done, fmt.Errorf("the archive: %w", err)
		}
		if err := u.entry(header, archive); err != nil {
			return u.done, fmt.Errorf("%q: %w", header.Name, err)
		}
	}
}

// endWatcher knows whether an archive was read to its own end, which is two blocks of zeros.
// The package tar takes one for whole that was cut between two entries.
type endWatcher struct {
	io.Reader
	ended bool
}

// Read implements io.Reader.
func (w *endWatcher) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.ended = w.ended || n == 0 && err != nil
	return n, err
}

// whole is an error if the archive was cut, also if what comes behind its end was.
func (w *endWatcher) whole() error {
	if w.ended {
		return fmt.Errorf("the archive: %w", io.ErrUnexpectedEOF)
	}
	if _, err := io.Copy(io.Discard, w.Reader); err != nil {
		return fmt.Errorf("the archive: %w", err)
	}
	return nil
}

// unpacking is one archive on its way.
type unpacking struct {
	root    *os.Root
	skipped func(name, why string)
	done    Summary
	dirs    []directory
}

// directory gets its mode at the end: it may be one in which nothing can be made.
type directory struct {
	name string
	mode fs.FileMode
}

func (u *unpacking) entry(header *tar.Header, content io.Reader) error {
	clean := path.Clean(header.Name)
	if path.IsAbs(header.Name) || clean == ".." || strings.HasPrefix(clean, "../") {
		return errors.New("its name leads out of the archive")
	}
	if clean == "." {
		return nil // the directory itself
	}
	name := filepath.FromSlash(clean)
	mode := fs.FileMode(header.Mode) & fs.ModePerm
	switch header.Typeflag {
	case tar.TypeDir:
		if err := u.straight(name); err != nil {
			return err
		}
		u.dirs = append(u.dirs, directory{name, mode})
		return u.root.MkdirAll(name, 0o700)
	case tar.TypeReg:
		return u.file(name, mode, content)
	case tar.TypeSymlink:
		return u.link(name, header.Linkname)
	default:
		u.skipped(name, "it is no file, directory or symbolic link")
		return nil
	}
}

// file writes a file beside its place, and puts it there when it is whole.
func (u *unpacking) file(name string, mode fs.FileMode, content io.Reader) error {
	if err := u.makeWay(name); err != nil {
		return err
	}
	part := name + ".part-" + rand.Text()
	file, err := u.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, content)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = u.root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, u.root.Remove(part))
	}
	u.done.Files++
	u.done.Bytes += n
	return nil
}

func (u *unpacking) link(name, target string) error {
	if leads := path.Join(path.Dir(filepath.ToSlash(name)), target); path.IsAbs(target) || leads == ".." || strings.HasPrefix(leads, "../") {
		u.skipped(name, "it is a link that leads out of what is copied, to "+target)
		return nil
	}
	if err := u.makeWay(name); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.done.Files++
	return u.root.Symlink(target, name)
}

// straight refuses what is named by way of a link: whether a link leads out is judged by its
// own place.
func (u *unpacking) straight(name string) error {
	for above := filepath.Dir(name); above != "."; above = filepath.Dir(above) {
		if info, err := u.root.Lstat(above); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return errors.New("its name leads through a symbolic link")
		}
	}
	return nil
}

// makeWay makes the directory that a file is in, where nothing but a directory may be in its
// place.
func (u *unpacking) makeWay(name string) error {
	if err := u.straight(name); err != nil {
		return err
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("a directory is in its place")
	default:
		return nil
	}
}

// modes gives directories theirs, the last one first. Their owner may always look into them.
func (u *unpacking) modes() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.root.Chmod(u.dirs[i].name, u.dirs[i].mode|0o700); err != nil {
			return err
		}
	}
	return nil
}
