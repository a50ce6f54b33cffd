package localfiles

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/tarstream"
)

const (
	// maxEntries bounds an archive: each entry costs memory of the sandbox's
	// kernel, whatever its size.
	maxEntries = 200_000
	// maxTrailer is how much may follow the end of an archive. tar pads it to a
	// block of its own, of 10 KiB as a rule.
	maxTrailer = 1 << 20
)

// fieldContent is what errors about an archive itself name.
const fieldContent = "content"

// WriteArchive implements sdk.Archiver.
func (f *Files) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
	at, err := f.place(instanceID, "directory", directory)
	if err != nil {
		return sdk.ArchiveSummary{}, err
	}
	dir, err := at.open()
	if err != nil {
		return sdk.ArchiveSummary{}, err
	}
	defer dir.close()
	at.field = fieldContent
	u := &unpacker{at: at, dir: dir, content: &broken{Reader: untilDone{ctx, content}}}
	defer u.close()
	err = u.unpack()
	return u.summary, err
}

// unpacker unpacks one archive.
type unpacker struct {
	at      place
	dir     *directory
	content *broken

	// parent is the directory of the last entry: neighbours mostly share it.
	parent     *directory
	parentName string

	summary sdk.ArchiveSummary
}

func (u *unpacker) close() { u.parent.close() }

func (u *unpacker) unpack() error {
	reader := tarstream.NewReader(u.content)
	for entries := 0; ; entries++ {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return drain(u.content)
		case err != nil:
			return u.content.explain(err)
		case entries == maxEntries:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d entries", maxEntries)
		}
		if err := u.entry(header, reader); err != nil {
			return err
		}
	}
}

// broken remembers why a stream ended before its end.
type broken struct {
	io.Reader
	err error
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// explain tells an archive that makes no sense from a sender that broke off.
func (b *broken) explain(err error) error {
	switch {
	case b.err != nil:
		return b.err
	case explained(err):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is a tar archive that is cut off")
	default:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is not a tar archive without compression")
	}
}

// drain reads what follows the archive's end, so that the sender can finish.
func drain(content io.Reader) error {
	n, err := io.Copy(io.Discard, io.LimitReader(content, maxTrailer+1))
	if err == nil && n > maxTrailer {
		err = sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d bytes behind the end of the archive", maxTrailer)
	}
	return err
}

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	name, err := entryName(header)
	if err != nil {
		return err
	}
	refuse := func(why string) error {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: %s", header.Name, why)
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuse("is a sparse file, of which an archive may make any size")
		}
	}
	if name == "." && header.Typeflag != tar.TypeXGlobalHeader {
		if header.Typeflag == tar.TypeDir {
			return nil // the directory itself
		}
		return refuse("has no name")
	}
	switch header.Typeflag {
	case tar.TypeXGlobalHeader: // such as git archive writes
		return nil
	case tar.TypeReg:
		u.summary.Files++
		return u.regular(name, header, content)
	case tar.TypeDir:
		dir, err := u.directory(path.Dir(name))
		if err != nil {
			return err
		}
		return u.makeDirectory(dir, name, fs.FileMode(header.Mode).Perm())
	case tar.TypeSymlink:
		u.summary.Files++
		return u.link(name, header.Linkname)
	case tar.TypeLink:
		return refuse("is a hard link")
	case tar.TypeGNUSparse:
		return refuse("is a sparse file, of which an archive may make any size")
	default:
		return refuse("is neither a file, a directory nor a symbolic link")
	}
}

// entryName checks the name of an entry. It need not be UTF-8.
func entryName(header *tar.Header) (string, error) {
	name := header.Name
	parts := strings.Split(name, "/")
	tooLong := slices.ContainsFunc(parts, func(part string) bool { return len(part) > maxName })
	switch {
	case strings.HasPrefix(name, "/"):
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: is an absolute name", name)
	case slices.Contains(parts, ".."):
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: has .. in its name", name)
	case tooLong || len(name) > maxPath || len(parts) > maxDepth:
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%.100q…: is too long a name", name)
	case strings.ContainsRune(name, 0) || strings.ContainsRune(header.Linkname, 0):
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: has a NUL in its name", name)
	}
	return path.Clean(name), nil
}

// directory opens a directory below the archive's, and makes what is missing. It goes
// through no symbolic link: those are the archive's, or code's, which would send a file
// elsewhere than its name says.
func (u *unpacker) directory(name string) (*directory, error) {
	if name == "." {
		return u.dir, nil
	}
	if u.parent != nil && u.parentName == name {
		return u.parent, nil
	}
	at, done := u.dir, ""
	for part := range strings.SplitSeq(name, "/") {
		done = path.Join(done, part)
		err := u.makeDirectory(at, done, 0)
		var next *directory
		if err == nil {
			next, err = u.at.sub(at, part)
		}
		if at != u.dir {
			at.close()
		}
		if err != nil {
			return nil, u.at.below(done).explain(err)
		}
		at = next
	}
	u.close()
	u.parent, u.parentName = at, name
	return at, nil
}

// makeDirectory makes the directory name, whose parent is dir, or gives the one that is
// there its mode. Mode 0 leaves that as it is.
func (u *unpacker) makeDirectory(dir *directory, name string, mode fs.FileMode) error {
	at, base := u.at.below(name), path.Base(name)
	return at.explain(at.as(func() error {
		err := dir.mkdir(base)
		if errors.Is(err, fs.ErrExist) {
			old, statErr := dir.lstat(base)
			switch {
			case statErr != nil:
				return statErr
			case old.isSymlink():
				return at.refuse(sdk.CodeInvalidRequest, "leads through a symbolic link")
			case !old.isDir():
				return unix.ENOTDIR
			}
			err = nil
		}
		if err != nil || mode == 0 {
			return err
		}
		return dir.chmod(base, mode)
	}))
}

func (u *unpacker) regular(name string, header *tar.Header, content io.Reader) error {
	dir, err := u.directory(path.Dir(name))
	if err != nil {
		return err
	}
	at, base := u.at.below(name), path.Base(name)
	// What cannot fit is refused before it is sent.
	var disk unix.Statfs_t
	if unix.Statfs(at.path, &disk) == nil && disk.Blocks > 0 && header.Size > int64(disk.Bavail)*disk.Bsize {
		return at.full()
	}
	d, err := at.newDraft(dir)
	defer d.discard()
	if err != nil {
		return err
	}
	if err := d.fill(content, make([]byte, copyBytes)); err != nil {
		return u.content.explain(err)
	}
	u.summary.Bytes += header.Size
	err = at.as(func() error {
		if header.ModTime.After(time.Unix(0, 0)) {
			if err := dir.setTime(d.name, header.ModTime); err != nil {
				return err
			}
		}
		// A link that is where the entry goes is replaced, and not followed. Anything else
		// but a file stays, and is in the way.
		if old, err := dir.lstat(base); err == nil && old.isSymlink() {
			return dir.remove(base)
		}
		return nil
	})
	if err != nil {
		return at.explain(err)
	}
	return d.commit(base, fs.FileMode(header.Mode).Perm())
}

func (u *unpacker) link(name, target string) error {
	at, base := u.at.below(name), path.Base(name)
	if target == "" || len(target) > maxPath {
		return at.refuse(sdk.CodeInvalidRequest, "is a symbolic link to nothing or to too long a name")
	}
	dir, err := u.directory(path.Dir(name))
	if err != nil {
		return err
	}
	draft := newDraftName()
	return at.explain(at.as(func() error {
		old, err := dir.lstat(base)
		if err == nil && !old.isRegular() && !old.isSymlink() {
			return at.inTheWay(old)
		}
		if err := dir.symlink(target, draft); err != nil {
			return err
		}
		err = dir.rename(draft, dir, base, 0)
		if err != nil {
			_ = dir.remove(draft)
		}
		return err
	}))
}
