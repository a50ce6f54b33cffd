package files

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/tarstream"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
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

func (s *service) WriteArchive(stream grpc.ClientStreamingServer[providerv1.WriteArchiveRequest, providerv1.WriteArchiveResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return errNoHeader()
	}
	at, err := s.place("directory", header.GetDirectory())
	if err != nil {
		return err
	}
	dir, err := at.openDirectory()
	if err != nil {
		return err
	}
	defer dir.Close()
	content := filechunk.NewReader(filechunk.Receive(stream, filechunk.FieldOfWriteArchive))
	u := &unpacker{service: s, at: place{root: at.root, name: at.name, field: fieldContent}, dir: dir}
	defer u.close()
	if err := u.unpack(content); err != nil {
		return err
	}
	return stream.SendAndClose(&providerv1.WriteArchiveResponse{Files: u.files, Bytes: u.bytes})
}

// unpacker unpacks one archive.
type unpacker struct {
	service *service
	at      place
	dir     *directory

	// parent is the directory of the last entry: neighbours mostly share it.
	parent     *directory
	parentName string

	files, bytes int64
}

func (u *unpacker) close() {
	if u.parent != nil {
		_ = u.parent.Close()
	}
}

func (u *unpacker) unpack(content io.Reader) error {
	reader := tarstream.NewReader(content)
	for entries := 0; ; entries++ {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return drain(content)
		case err != nil:
			return badArchive(err)
		case entries == maxEntries:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "has more than %d entries", maxEntries)
		}
		if err := u.entry(header, reader); err != nil {
			return err
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

// badArchive tells an archive that makes no sense from a sender that broke off.
func badArchive(err error) error {
	if explained(err) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is a tar archive that is cut off")
	}
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "is not a tar archive without compression")
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
		u.files++
		return u.regular(name, header, content)
	case tar.TypeDir:
		dir, err := u.directory(path.Dir(name))
		if err != nil {
			return err
		}
		return u.makeDirectory(dir, name, fs.FileMode(header.Mode).Perm())
	case tar.TypeSymlink:
		u.files++
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

// directory opens a directory below the archive's, and makes what is missing. It
// goes through no symbolic link: those are the archive's, or code's, which would
// send a file elsewhere than its name says.
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
			next, err = subAsUser(at, part)
		}
		if at != u.dir {
			_ = at.Close()
		}
		if err != nil {
			return nil, u.at.explainBelow(done, err)
		}
		at = next
	}
	u.close()
	u.parent, u.parentName = at, name
	return at, nil
}

// makeDirectory makes the directory name, whose parent is dir, or gives the one
// that is there its mode. Mode 0 leaves that as it is.
func (u *unpacker) makeDirectory(dir *directory, name string, mode fs.FileMode) error {
	base := path.Base(name)
	err := asUser(func() error {
		err := dir.mkdir(base)
		if errors.Is(err, fs.ErrExist) {
			old, statErr := dir.lstat(base)
			switch {
			case statErr != nil:
				return statErr
			case old.isSymlink():
				return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: leads through a symbolic link", name)
			case !old.isDir():
				return unix.ENOTDIR
			}
			err = nil
		}
		if err != nil || mode == 0 {
			return err
		}
		return dir.chmod(base, mode)
	})
	return u.at.explainBelow(name, err)
}

func (u *unpacker) regular(name string, header *tar.Header, content io.Reader) error {
	dir, err := u.directory(path.Dir(name))
	if err != nil {
		return err
	}
	at := place{root: u.at.root, name: path.Join(u.at.name, name), field: fieldContent}
	// What cannot fit is refused before it is sent.
	var disk unix.Statfs_t
	if unix.Statfs(at.root, &disk) == nil && disk.Blocks > 0 && header.Size > int64(disk.Bavail)*disk.Bsize {
		return at.full()
	}
	d, err := u.service.newDraft(at, dir)
	defer d.discard()
	if err != nil {
		return err
	}
	if err := d.fill(content, make([]byte, copyBytes)); err != nil {
		if explained(err) {
			return err
		}
		return badArchive(err)
	}
	u.bytes += header.Size
	if !header.ModTime.IsZero() && header.ModTime.After(time.Unix(0, 0)) {
		if err := asUser(func() error { return dir.setTime(d.name, header.ModTime) }); err != nil {
			return at.explain(err)
		}
	}
	mode := fs.FileMode(header.Mode).Perm()
	if err := u.makeWay(dir, path.Base(name)); err != nil {
		return at.explain(err)
	}
	return d.commit(path.Base(name), mode)
}

// makeWay removes a symbolic link that is where an entry goes. A file is replaced
// by renaming over it; anything else stays and is in the way.
func (u *unpacker) makeWay(dir *directory, name string) error {
	return asUser(func() error {
		old, err := dir.lstat(name)
		if err == nil && old.isSymlink() {
			return dir.remove(name)
		}
		return nil
	})
}

func (u *unpacker) link(name, target string) error {
	if target == "" || len(target) > maxPath {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, fieldContent, "%q: is a symbolic link to nothing or to too long a name", name)
	}
	dir, err := u.directory(path.Dir(name))
	if err != nil {
		return err
	}
	draft := newDraftName()
	err = asUser(func() error {
		old, err := dir.lstat(path.Base(name))
		if err == nil && !old.isRegular() && !old.isSymlink() {
			return place{root: u.at.root, name: path.Join(u.at.name, name), field: fieldContent}.inTheWay(old)
		}
		if err := dir.symlink(target, draft); err != nil {
			return err
		}
		if err := dir.rename(draft, dir, path.Base(name), 0); err != nil {
			_ = dir.remove(draft)
			return err
		}
		return nil
	})
	return u.at.explainBelow(name, err)
}
