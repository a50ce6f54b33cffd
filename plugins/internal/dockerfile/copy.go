package dockerfile

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Copy is a COPY, or an ADD of files.
type Copy struct {
	// From is the stage whose files they are; nil for those of the context.
	From *Stage
	// Sources are relative paths without "..", which may have wildcards.
	Sources []string
	// To is absolute. Into says that it is a directory, also if there is none yet.
	To   string
	Into bool
	// Mode of files and directories, in place of their own; nil for these.
	Mode *fs.FileMode
	// OfUser says that another user than root has them.
	OfUser bool
	// Add says that archives are meant to be unpacked, which is not done.
	Add bool
}

// Files is where a COPY finds its sources. Nothing in it leads out of it.
type Files interface {
	fs.FS
	fs.ReadLinkFS
}

// Skip reports whether a path is left out.
type Skip func(path string) (bool, error)

// maxCopied is how many files and directories one COPY may have.
const maxCopied = 500_000

// Archive writes what is copied as a tar archive. there says whether To is a directory
// already. The sum is that of names, modes and contents, wherever they go; an *Error has no
// line.
func (c *Copy) Archive(ctx context.Context, files Files, skip Skip, there bool, to io.Writer) (sum string, err error) {
	a := &archiving{ctx: ctx, copy: c, files: files, skip: skip, tar: tar.NewWriter(to), sum: sha256.New()}
	for _, source := range c.Sources {
		if err := a.source(source, c.Into || there); err != nil {
			return "", err
		}
	}
	if err := a.tar.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(a.sum.Sum(nil)), nil
}

// archiving is one call of Archive.
type archiving struct {
	ctx   context.Context
	copy  *Copy
	files Files
	skip  Skip
	tar   *tar.Writer
	sum   hash.Hash
	count int
}

func (a *archiving) skipped(path string) (bool, error) {
	if a.skip == nil || path == "." {
		return false, nil
	}
	return a.skip(path)
}

func lacking(source string) error {
	return &Error{Reason: fmt.Sprintf("there is no %s to copy", quoted(source))}
}

// source writes one source, or what its wildcards match.
func (a *archiving) source(source string, into bool) error {
	matches := []string{source}
	if strings.ContainsAny(source, `*?[\`) {
		found, err := fs.Glob(a.files, source)
		if err != nil {
			return &Error{Reason: fmt.Sprintf("%s is no pattern: %s", quoted(source), err)}
		}
		matches = found
	}
	written := 0
	for _, match := range matches {
		left, err := a.skipped(match)
		if err != nil {
			return err
		}
		info, err := fs.Stat(a.files, match)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return lacking(source)
		case err != nil:
			return &Error{Reason: fmt.Sprintf("%s cannot be copied: it leads out of the context, or cannot be read", quoted(match))}
		case info.IsDir(): // what is in it may be meant though it is not
			if err := a.directory(match, ""); err != nil {
				return err
			}
			written++
		case left:
		case !info.Mode().IsRegular():
			return &Error{Reason: fmt.Sprintf("%s is neither a file nor a directory", quoted(match))}
		default:
			name := a.copy.To
			if into || len(matches) > 1 {
				name = path.Join(name, path.Base(match))
			}
			if err := a.file(match, path.Base(match), name); err != nil {
				return err
			}
			written++
		}
	}
	if written == 0 {
		return lacking(source)
	}
	return nil
}

// directory writes what is in a directory, which is not written itself: below is what its
// names are below.
func (a *archiving) directory(dir, below string) error {
	entries, err := fs.ReadDir(a.files, dir)
	if err != nil {
		return err
	}
	if below == "" {
		// It is there, also if nothing is in it.
		a.note("into", "", 0, 0, "")
	}
	slices.SortFunc(entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
	for _, entry := range entries {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		from, relative := path.Join(dir, entry.Name()), path.Join(below, entry.Name())
		left, err := a.skipped(from)
		if err != nil {
			return err
		}
		info, err := a.files.Lstat(from)
		if err != nil {
			return err
		}
		name := path.Join(a.copy.To, relative)
		switch {
		case info.IsDir():
			if !left {
				if err := a.entry(tar.Header{Typeflag: tar.TypeDir, Name: name + "/"}, relative, info); err != nil {
					return err
				}
			}
			err = a.directory(from, relative)
		case left:
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = a.files.ReadLink(from); err == nil {
				err = a.entry(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}, relative, info)
			}
		case info.Mode().IsRegular():
			err = a.file(from, relative, name)
		default: // a device, a pipe or a socket
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// note adds to the sum.
func (a *archiving) note(kind, name string, mode fs.FileMode, size int64, target string) {
	_ = json.NewEncoder(a.sum).Encode([]any{kind, []byte(name), mode, size, []byte(target)})
}

// entry writes the header of an entry, all that there is of it but for a file.
func (a *archiving) entry(h tar.Header, relative string, info fs.FileInfo) error {
	if a.count++; a.count > maxCopied {
		return &Error{Reason: fmt.Sprintf("it copies more than %d files", maxCopied)}
	}
	mode := info.Mode().Perm()
	if a.copy.Mode != nil && h.Typeflag != tar.TypeSymlink {
		mode = *a.copy.Mode
	}
	h.Mode, h.Format = int64(mode), tar.FormatPAX
	if h.Typeflag != tar.TypeDir { // what changes by itself is no part of a directory
		h.ModTime = info.ModTime().Truncate(time.Second)
	}
	h.Name = strings.TrimPrefix(h.Name, "/")
	if a.copy.OfUser {
		h.Uid, h.Gid = 1, 1
	}
	a.note(string(h.Typeflag), relative, mode, h.Size, h.Linkname)
	return a.tar.WriteHeader(&h)
}

// file writes a file.
func (a *archiving) file(from, relative, name string) error {
	f, err := a.files.Open(from)
	if err != nil {
		return &Error{Reason: fmt.Sprintf("%s cannot be read", quoted(from))}
	}
	defer f.Close()
	// It may be another one by now.
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return &Error{Reason: fmt.Sprintf("%s is no file any more", quoted(from))}
	}
	var begin [512]byte
	n, err := io.ReadFull(f, begin[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Reason: fmt.Sprintf("%s cannot be read", quoted(from))}
	}
	if a.copy.Add && isArchive(begin[:n]) {
		return &Error{Reason: fmt.Sprintf("ADD of the archive %s, which would be unpacked, is not supported: use COPY, and RUN tar", quoted(from))}
	}
	if err := a.entry(tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size()}, relative, info); err != nil {
		return err
	}
	both := io.MultiWriter(a.tar, a.sum)
	left := info.Size() - int64(n)
	if left < 0 {
		return changed(from)
	}
	if _, err := both.Write(begin[:n]); err != nil {
		return err
	}
	for left > 0 {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		copied, err := io.CopyN(both, f, min(left, 16<<20))
		left -= copied
		if errors.Is(err, io.EOF) {
			return changed(from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func changed(path string) error {
	return &Error{Reason: fmt.Sprintf("%s has changed while it was copied", quoted(path))}
}

// isArchive reports whether a file begins as what ADD unpacks.
func isArchive(begin []byte) bool {
	for _, magic := range []string{"\x1f\x8b", "BZh", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd"} {
		if strings.HasPrefix(string(begin), magic) {
			return true
		}
	}
	return len(begin) >= 262 && string(begin[257:262]) == "ustar"
}
