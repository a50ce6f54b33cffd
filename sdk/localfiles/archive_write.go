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

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/tarstream"
)

const (
	// maxEntries bounds an archive: each entry costs an inode, whatever its size.
	maxEntries = 200_000
	// maxTrailer is how much may follow the end of an archive. tar pads it to a block
	// of its own, of 10 KiB as a rule.
	maxTrailer = 1 << 20
)

// fieldContent is what errors about an archive itself name.
const fieldContent = "content"

// WriteArchive implements sdk.Archiver.
func (f *Files) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
	at, err := f.at(instanceID, "directory", directory, true)
	return using(at, err, func(at place) (sdk.ArchiveSummary, error) {
		info, err := at.root.Stat(at.name)
		switch {
		case err != nil:
			return sdk.ArchiveSummary{}, err
		case !info.IsDir():
			return sdk.ArchiveSummary{}, at.refuse(sdk.CodeConflict, "is not a directory")
		}
		at.field = fieldContent
		u := &unpacker{at: at}
		err = u.unpack(&broken{Reader: untilDone{ctx, content}})
		return u.summary, err
	})
}

// unpacker unpacks one archive.
type unpacker struct {
	at      place
	summary sdk.ArchiveSummary
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

func (u *unpacker) unpack(content *broken) error {
	reader := tarstream.NewReader(content)
	for entries := 0; ; entries++ {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return drain(content)
		case err != nil:
			return content.explain(err)
		case entries == maxEntries:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d entries", maxEntries)
		}
		if err := u.entry(header, reader); err != nil {
			return content.explain(err)
		}
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

// explain tells an archive that makes no sense from a sender that broke off and from a
// file that cannot be written.
func (b *broken) explain(err error) error {
	if b.err != nil {
		return b.err
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is a tar archive that is cut off")
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is not a tar archive without compression")
	default:
		return err
	}
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
	at := u.at.below(name)
	switch header.Typeflag {
	case tar.TypeXGlobalHeader: // such as git archive writes
		return nil
	case tar.TypeReg:
		return u.regular(at, header, content)
	case tar.TypeDir:
		if err := u.parents(at); err != nil {
			return err
		}
		return at.explain(u.directory(at, fs.FileMode(header.Mode).Perm()))
	case tar.TypeSymlink:
		return at.explain(u.link(at, header.Linkname))
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

// parents makes the directories above an entry. They lead through no symbolic link:
// those are the archive's, or code's, and would send a file elsewhere than its name
// says.
func (u *unpacker) parents(at place) error {
	below := strings.TrimPrefix(strings.TrimPrefix(at.name, u.at.name), "/")
	for i, char := range below {
		if char != '/' {
			continue
		}
		parent := u.at.below(below[:i])
		if err := u.directory(parent, 0); err != nil {
			return parent.explain(err)
		}
	}
	return nil
}

// directory makes a directory whose parent is there, or gives the one that is there its
// mode. Mode 0 leaves that as it is.
func (u *unpacker) directory(at place, mode fs.FileMode) error {
	err := at.root.Mkdir(at.name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		old, err := at.root.Lstat(at.name)
		switch {
		case err != nil:
			return err
		case old.Mode().Type() == fs.ModeSymlink:
			return at.refuse(sdk.CodeInvalidRequest, "leads through a symbolic link")
		case !old.IsDir():
			return at.refuse(sdk.CodeConflict, "is not a directory")
		}
	} else if err != nil {
		return err
	}
	if mode == 0 {
		return nil
	}
	return at.root.Chmod(at.name, mode)
}

func (u *unpacker) regular(at place, header *tar.Header, content io.Reader) error {
	if err := u.parents(at); err != nil {
		return err
	}
	modified := header.ModTime
	if !modified.After(time.Unix(0, 0)) {
		modified = time.Time{}
	}
	// A link that is where the entry goes is replaced, and not followed.
	if old, err := at.root.Lstat(at.name); err == nil && old.Mode().Type() == fs.ModeSymlink {
		if err := at.root.Remove(at.name); err != nil {
			return at.explain(err)
		}
	}
	counted := &counter{Reader: content}
	if err := at.write(counted, fs.FileMode(header.Mode).Perm(), modified); err != nil {
		return at.explain(err)
	}
	u.summary.Files++
	u.summary.Bytes += counted.n
	return nil
}

// counter counts what is read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (u *unpacker) link(at place, target string) error {
	if target == "" || len(target) > maxPath {
		return at.refuse(sdk.CodeInvalidRequest, "is a symbolic link to nothing or to too long a name")
	}
	if err := u.parents(at); err != nil {
		return err
	}
	old, err := at.root.Lstat(at.name)
	if err == nil && !old.Mode().IsRegular() && old.Mode().Type() != fs.ModeSymlink {
		return at.inTheWay(old)
	}
	draft := at.draft()
	if err := draft.become(at, draft.root.Symlink(target, draft.name)); err != nil {
		return err
	}
	u.summary.Files++
	return nil
}
