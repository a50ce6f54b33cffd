package layers

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limits of what a layer, or an image, may hold. They bound what it takes of the machine.
type Limits struct {
	// Entries of its archives.
	Entries int
	// Bytes of all files together, and of the archives, holes and padding included.
	Bytes int64
	// Names is how many bytes all paths and targets of links have together. They are held
	// in memory.
	Names int64
}

// DefaultLimits are far above those of any image in wide use.
func DefaultLimits() Limits { return Limits{Entries: 500_000, Bytes: 32 << 30, Names: 256 << 20} }

// String says them in words.
func (l Limits) String() string {
	return fmt.Sprintf("%d entries, %d bytes, and %d bytes of names", l.Entries, l.Bytes, l.Names)
}

// Without is what is left of limits when that much was used, which may be less than nothing.
func (l Limits) Without(used Limits) Limits {
	return Limits{Entries: l.Entries - used.Entries, Bytes: l.Bytes - used.Bytes, Names: l.Names - used.Names}
}

// Bounds of names, as those of Linux.
const (
	maxPath  = 4095
	maxName  = 255
	maxDepth = 128
)

// kind is what an entry of a layer does.
type kind byte

const (
	kindDirectory kind = iota + 1
	kindFile
	kindSymlink
	kindHardLink
	kindWhiteout // removes what lower layers have there
	kindOpaque   // removes what lower layers have in this directory
)

// entry is one line of a layer's index.
type entry struct {
	// Path without a leading slash; "" for the root.
	Path string
	Kind kind
	Mode fs.FileMode // permissions alone
	// Target of a link: as it is of a symbolic one, like Path of a hard one.
	Target string
	// File is the number of the content, Size its length in bytes.
	File int
	Size int64
}

// Layer is an unpacked layer.
type Layer struct {
	// DiffID is the SHA-256 sum of its archive, uncompressed: "sha256:" and 64 digits.
	DiffID string
	dir    string
	index
}

// index is what is kept of a layer beside the contents.
type index struct {
	Entries []entry
	// Skipped counts devices, pipes and sockets.
	Skipped int
	// Bytes of the archive, or of its files if these are more; 0 in an index of before it
	// was kept.
	Bytes int64
}

// Names in the directory of a layer.
const (
	indexName = "index"
	filesName = "files"
)

// InvalidError says what of a layer is refused.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// Unpack reads the archive of a layer, uncompressed, and keeps it in dir, an empty
// directory; to have it on the disk is for the caller. Errors of the archive itself are
// *InvalidError.
func Unpack(ctx context.Context, archive io.Reader, dir string, limits Limits) (*Layer, error) {
	if err := os.Mkdir(filepath.Join(dir, filesName), 0o700); err != nil {
		return nil, err
	}
	u := &unpacking{
		dir: dir, limits: limits,
		// A tar archive of empty files is all headers.
		source: &bounded{ctx: ctx, from: archive, left: limits.Bytes, sum: sha256.New()},
	}
	err := u.all()
	if err == nil {
		// Padding behind the end counts for the sum.
		_, err = io.Copy(io.Discard, u.source)
	}
	switch {
	case u.source.failed != nil:
		return nil, fmt.Errorf("read the layer: %w", u.source.failed)
	case u.source.exceeded:
		return nil, invalid("the layer has more than %d bytes, which is what the image may still have", limits.Bytes)
	case err != nil:
		return nil, err
	}
	u.Bytes = max(limits.Bytes-u.source.left, u.written)
	layer := &Layer{DiffID: "sha256:" + hex.EncodeToString(u.source.sum.Sum(nil)), dir: dir, index: u.index}
	return layer, writeIndex(filepath.Join(dir, indexName), &u.index)
}

func writeIndex(path string, i *index) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// Names may be any bytes, which JSON could not hold.
	err = gob.NewEncoder(f).Encode(i)
	return errors.Join(err, f.Close())
}

// Open returns a layer that was unpacked in dir, whose sum that was.
func Open(dir, diffID string) (*Layer, error) {
	f, err := os.Open(filepath.Join(dir, indexName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	layer := &Layer{DiffID: diffID, dir: dir}
	if err := gob.NewDecoder(f).Decode(&layer.index); err != nil {
		return nil, fmt.Errorf("read the index of the layer %s: %w", diffID, err)
	}
	return layer, nil
}

// Skipped counts entries that no sandbox could use: devices, pipes, sockets.
func (l *Layer) Skipped() int { return l.index.Skipped }

// Used is what a layer takes of the limits of an image.
func (l *Layer) Used() Limits {
	used := Limits{Entries: len(l.Entries) + l.index.Skipped}
	for _, e := range l.Entries {
		used.Names += e.names()
		used.Bytes += e.Size
	}
	used.Bytes = max(used.Bytes, l.Bytes)
	return used
}

func (e *entry) names() int64 { return int64(len(e.Path) + len(e.Target)) }

// bounded reads until there was too much, and sums up what it has read.
type bounded struct {
	ctx      context.Context
	from     io.Reader
	left     int64
	sum      hash.Hash
	exceeded bool
	// failed is what the source said, which is no fault of the archive.
	failed error
}

var errTooMuch = errors.New("too much")

func (b *bounded) Read(p []byte) (int, error) {
	if b.failed = b.ctx.Err(); b.failed != nil {
		return 0, b.failed
	}
	n, err := b.from.Read(p)
	b.sum.Write(p[:n])
	if b.left -= int64(n); b.left < 0 {
		b.exceeded = true
		return 0, errTooMuch
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// unpacking is one call of Unpack.
type unpacking struct {
	index
	dir     string
	limits  Limits
	source  *bounded
	files   int
	written int64
	seen    int
	names   int64
}

func (u *unpacking) all() error {
	archive := tar.NewReader(u.source)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return invalid("the layer is no proper tar archive: %s", err)
		}
		if u.seen++; u.seen > u.limits.Entries {
			return invalid("the layer has more than %d entries, which is what the image may still have", u.limits.Entries)
		}
		if err := u.one(header, archive); err != nil {
			return err
		}
	}
}

// one keeps one entry of the archive.
func (u *unpacking) one(header *tar.Header, content io.Reader) error {
	path, err := cleanPath(header.Name)
	if err != nil {
		return err
	}
	if special, err := u.whiteout(path); special || err != nil {
		return err
	}
	e := entry{Path: path, Mode: permissions(header)}
	switch header.Typeflag {
	case tar.TypeDir:
		e.Kind = kindDirectory
		e.Mode |= 0o700
	case tar.TypeSymlink:
		if header.Linkname == "" || len(header.Linkname) > maxPath || strings.ContainsRune(header.Linkname, 0) {
			return invalid("%s is a link that leads nowhere", shown(path))
		}
		e.Kind, e.Target = kindSymlink, header.Linkname
	case tar.TypeLink:
		e.Kind = kindHardLink
		if e.Target, err = cleanPath(header.Linkname); err != nil {
			return fmt.Errorf("%s: %w", shown(path), err)
		}
	case tar.TypeReg, tar.TypeGNUSparse:
		e.Kind = kindFile
		if e.File, e.Size, err = u.keep(content, e.Mode, header.ModTime); err != nil {
			return fmt.Errorf("%s: %w", shown(path), err)
		}
	case tar.TypeXGlobalHeader:
		return nil
	default:
		u.Skipped++
		return nil
	}
	if path == "" && e.Kind != kindDirectory {
		return invalid("the root of the layer is no directory")
	}
	return u.add(e)
}

// add keeps a line of the index.
func (u *unpacking) add(e entry) error {
	if u.names += e.names(); u.names > u.limits.Names {
		return invalid("the names in the layer have more than %d bytes, which is what the image may still have", u.limits.Names)
	}
	// They may be pieces of a header of a megabyte, which would be kept with them.
	e.Path, e.Target = strings.Clone(e.Path), strings.Clone(e.Target)
	u.Entries = append(u.Entries, e)
	return nil
}

// Names by which layers remove what lower ones have.
const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	reservedPrefix = ".wh..wh."
)

// whiteout keeps an entry that removes something; special is false for any other.
func (u *unpacking) whiteout(path string) (special bool, err error) {
	dir, name := splitPath(path)
	if !strings.HasPrefix(name, whiteoutPrefix) {
		return false, nil
	}
	switch removed := name[len(whiteoutPrefix):]; {
	case name == opaqueName:
		return true, u.add(entry{Path: dir, Kind: kindOpaque})
	case strings.HasPrefix(name, reservedPrefix): // marks of other formats
	case removed == "" || removed == "." || removed == "..":
		return true, invalid("%s removes nothing that could have a name", shown(path))
	default:
		return true, u.add(entry{Path: joinPath(dir, removed), Kind: kindWhiteout})
	}
	return true, nil
}

// keep writes the content of a file under the next number.
func (u *unpacking) keep(content io.Reader, mode fs.FileMode, modified time.Time) (number int, size int64, err error) {
	number = u.files
	u.files++
	path := filepath.Join(u.dir, filesName, strconv.Itoa(number))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, 0, err
	}
	// A hole of a sparse file takes no bytes of the archive, but here it does.
	size, err = io.Copy(f, io.LimitReader(content, u.limits.Bytes-u.written+1))
	u.written += size
	if err == nil && u.written > u.limits.Bytes {
		err = invalid("the files of the layer have more than %d bytes, which is what the image may still have", u.limits.Bytes)
	} else if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		err = invalid("the layer ends in the middle of a file")
	}
	err = errors.Join(err, f.Chmod(mode|0o400), f.Close())
	if err == nil && !modified.IsZero() && modified.Unix() < math.MaxUint32 && modified.Unix() > 0 {
		// Python compares the time of a source with what it has compiled.
		err = os.Chtimes(path, modified, modified)
	}
	return number, size, err
}

// permissions are who may read and execute an entry in a sandbox, where all code is one
// user that is not root. What belongs to another user of the image is that one's too.
func permissions(header *tar.Header) fs.FileMode {
	mode := fs.FileMode(header.Mode) & 0o555
	if header.Uid != 0 {
		mode |= mode >> 6
	}
	return mode
}

// cleanPath is a path of an archive below its root. What leaves the root is refused, not
// corrected: no tool writes that by accident.
func cleanPath(name string) (string, error) {
	if len(name) > maxPath {
		return "", invalid("a path of the layer has more than %d bytes", maxPath)
	}
	if strings.ContainsRune(name, 0) {
		return "", invalid("%s has a zero byte in its name", shown(name))
	}
	var elements []string
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == ".":
			continue
		case element == "..":
			return "", invalid("%s leaves the root file system", shown(name))
		case len(element) > maxName:
			return "", invalid("a name in the layer has more than %d bytes", maxName)
		}
		elements = append(elements, element)
	}
	if len(elements) > maxDepth {
		return "", invalid("a path of the layer is more than %d directories deep", maxDepth)
	}
	return strings.Join(elements, "/"), nil
}

// splitPath is the directory of a path and its last name.
func splitPath(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// shown is a path in an error: hostile ones are long, or no text.
func shown(path string) string {
	const most = 120
	if len(path) > most {
		return fmt.Sprintf("%q...", path[:most])
	}
	return fmt.Sprintf("%q", path)
}

// Archive is that of a layer with these directories, absolute paths, and nothing else.
func Archive(directories ...string) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range directories {
		// Nothing is written but to memory.
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.Trim(dir, "/") + "/", Mode: 0o755})
	}
	_ = w.Close()
	return &b
}
