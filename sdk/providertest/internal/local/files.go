package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Files = (*Provider)(nil)

// tree is the files of an instance: /workspace and /tmp, both below its directory,
// which os.Root does not let anybody out of.
type tree struct{ *os.Root }

func (p *Provider) files(instanceID string) (tree, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return tree{}, err
	}
	if err := os.MkdirAll(filepath.Join(i.dir, "tmp"), 0o700); err != nil {
		return tree{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	root, err := os.OpenRoot(i.dir)
	return tree{root}, err
}

// name turns a path of the contract into one below the root.
func name(file string) (string, error) {
	if strings.ContainsRune(file, 0) || len(file) > 4096 {
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "path", "cannot be")
	}
	if !path.IsAbs(file) {
		file = path.Join("/workspace", file)
	}
	file = path.Clean(file)
	for _, place := range []string{"/workspace", "/tmp"} {
		if file == place || strings.HasPrefix(file, place+"/") {
			return file[1:], nil
		}
	}
	return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "path", "must be below /workspace or /tmp")
}

// explain gives an error of the file system its code.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return sdk.Errorf(sdk.CodeNotFound, "no such file")
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTEMPTY):
		return sdk.Errorf(sdk.CodeConflict, "something is in the way: %w", pathless(err))
	case errors.Is(err, syscall.ENAMETOOLONG):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "path", "is too long")
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return e
	}
	return sdk.Errorf(sdk.CodeNotAllowed, "%w", pathless(err))
}

func (t tree) describe(file string) (sdk.FileInfo, error) {
	info, err := t.Lstat(file)
	if err != nil {
		return sdk.FileInfo{}, explain(err)
	}
	f := sdk.FileInfo{Path: "/" + file, Type: sdk.FileOther, Mode: info.Mode().Perm(), ModifiedAt: info.ModTime()}
	switch {
	case info.Mode().IsRegular():
		f.Type, f.Size = sdk.FileRegular, info.Size()
	case info.IsDir():
		f.Type = sdk.FileDirectory
	case info.Mode()&fs.ModeSymlink != 0:
		f.Type = sdk.FileSymlink
		f.Target, err = t.Readlink(file)
	}
	return f, explain(err)
}

// with opens the tree and names the file.
func (p *Provider) with(instanceID, file string, do func(t tree, file string) error) error {
	t, err := p.files(instanceID)
	if err != nil {
		return err
	}
	defer t.Close()
	if file, err = name(file); err != nil {
		return err
	}
	return explain(do(t, file))
}

// StatFile implements sdk.Files.
func (p *Provider) StatFile(_ context.Context, instanceID, file string) (info sdk.FileInfo, err error) {
	return info, p.with(instanceID, file, func(t tree, file string) error {
		info, err = t.describe(file)
		return err
	})
}

// walk calls found for what is below a directory, in the order of paths.
func (t tree) walk(directory string, found func(file string, entry fs.DirEntry) error) error {
	return fs.WalkDir(t.FS(), directory, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == directory {
			return err
		}
		return found(file, entry)
	})
}

// ListFiles implements sdk.Files.
func (p *Provider) ListFiles(_ context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	err = p.with(req.InstanceID, req.Path, func(t tree, directory string) error {
		left := req.Limit
		return t.walk(directory, func(file string, entry fs.DirEntry) error {
			below := strings.TrimPrefix(file, directory+"/")
			if matches(req.Glob, below) {
				if left == 0 {
					truncated = true
					return fs.SkipAll
				}
				left--
				info, err := t.describe(file)
				if err != nil {
					return err
				}
				if err := found([]sdk.FileInfo{info}); err != nil {
					return err
				}
			}
			if entry.IsDir() && strings.Count(below, "/")+1 >= req.Depth {
				return fs.SkipDir
			}
			return nil
		})
	})
	return truncated, err
}

// ReadFile implements sdk.Files.
func (p *Provider) ReadFile(_ context.Context, req sdk.ReadFileRequest) (info sdk.FileInfo, content io.ReadCloser, err error) {
	err = p.with(req.InstanceID, req.Path, func(t tree, name string) error {
		file, err := t.Open(name)
		if err != nil {
			return err
		}
		stat, err := file.Stat()
		if err == nil && !stat.Mode().IsRegular() {
			err = syscall.EISDIR
		}
		if err != nil {
			file.Close()
			return err
		}
		offset := req.Offset
		if offset < 0 {
			offset = max(0, stat.Size()+offset)
		}
		length := stat.Size() - offset
		if req.Length > 0 {
			length = min(length, req.Length)
		}
		info = sdk.FileInfo{Path: "/" + name, Type: sdk.FileRegular, Size: stat.Size(), Mode: stat.Mode().Perm(), ModifiedAt: stat.ModTime()}
		content = struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(file, offset, max(length, 0)), file}
		return nil
	})
	return info, content, err
}

// WriteFile implements sdk.Files.
func (p *Provider) WriteFile(_ context.Context, req sdk.WriteFileRequest, content io.Reader) (info sdk.FileInfo, err error) {
	return info, p.with(req.InstanceID, req.Path, func(t tree, file string) error {
		if req.MakeParents {
			if err := t.MkdirAll(path.Dir(file), 0o755); err != nil {
				return err
			}
		}
		mode := req.Mode
		switch old, err := t.Stat(file); {
		case err == nil && old.IsDir():
			return syscall.EISDIR
		case err == nil && mode == 0:
			mode = old.Mode().Perm()
		case mode == 0:
			mode = 0o644
		}
		if err := t.replace(file, mode, content); err != nil {
			return err
		}
		info, err = t.describe(file)
		return err
	})
}

// replace writes beside the file and renames.
func (t tree) replace(file string, mode fs.FileMode, content io.Reader) error {
	if _, err := t.Stat(path.Dir(file)); err != nil {
		return err
	}
	draft := "draft-" + newID() // beside the workspace, where nobody looks
	w, err := t.OpenFile(draft, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	err = errors.Join(err, w.Chmod(mode), w.Close())
	if err == nil {
		err = t.Rename(draft, file)
	}
	if err != nil {
		_ = t.Remove(draft)
	}
	return err
}

// MakeDirectory implements sdk.Files.
func (p *Provider) MakeDirectory(_ context.Context, instanceID, directory string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	return info, p.with(instanceID, directory, func(t tree, file string) error {
		if old, err := t.Stat(file); err == nil && !old.IsDir() {
			return fs.ErrExist
		}
		if err := t.MkdirAll(file, mode.Perm()|0o700); err != nil {
			return err
		}
		info, err = t.describe(file)
		return err
	})
}

// MoveFile implements sdk.Files.
func (p *Provider) MoveFile(_ context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.transfer(req, func(t tree, from, to string) error { return t.Rename(from, to) })
}

// CopyFile implements sdk.Files.
func (p *Provider) CopyFile(_ context.Context, req sdk.MoveFileRequest) (sdk.FileInfo, error) {
	return p.transfer(req, func(t tree, from, to string) error {
		return fs.WalkDir(t.FS(), from, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			target := to + strings.TrimPrefix(file, from)
			info, err := entry.Info()
			if err != nil {
				return err
			}
			switch {
			case entry.IsDir():
				return t.Mkdir(target, info.Mode().Perm())
			case info.Mode().IsRegular():
				content, err := t.Open(file)
				if err != nil {
					return err
				}
				defer content.Close()
				return t.replace(target, info.Mode().Perm(), content)
			case info.Mode()&fs.ModeSymlink != 0:
				link, err := t.Readlink(file)
				return errors.Join(err, t.Symlink(link, target))
			}
			return nil
		})
	})
}

// transfer checks both ends before it moves or copies.
func (p *Provider) transfer(req sdk.MoveFileRequest, do func(t tree, from, to string) error) (info sdk.FileInfo, err error) {
	return info, p.with(req.InstanceID, req.From, func(t tree, from string) error {
		to, err := name(req.To)
		if err != nil {
			return err
		}
		if _, err := t.Lstat(from); err != nil {
			return err
		}
		if old, err := t.Lstat(to); err == nil && (old.IsDir() || !req.Overwrite) {
			return fs.ErrExist
		}
		if err := do(t, from, to); err != nil {
			return err
		}
		info, err = t.describe(to)
		return err
	})
}

// RemoveFile implements sdk.Files.
func (p *Provider) RemoveFile(_ context.Context, instanceID, file string, recursive bool) error {
	return p.with(instanceID, file, func(t tree, file string) error {
		if _, err := t.Lstat(file); err != nil {
			return err
		}
		if recursive {
			return t.RemoveAll(file)
		}
		return t.Remove(file)
	})
}

// matches is a glob without escapes: *, ?, [a-z], {a,b} and **.
func matches(glob, file string) bool {
	if glob == "" {
		return true
	}
	if before, rest, found := strings.Cut(glob, "{"); found {
		choices, after, _ := strings.Cut(rest, "}")
		return slices.ContainsFunc(strings.Split(choices, ","), func(choice string) bool { return matches(before+choice+after, file) })
	}
	return matchParts(strings.Split(glob, "/"), strings.Split(file, "/"))
}

func matchParts(globs, parts []string) bool {
	switch {
	case len(globs) == 0:
		return len(parts) == 0
	case globs[0] == "**":
		return matchParts(globs[1:], parts) || len(parts) > 0 && matchParts(globs, parts[1:])
	case len(parts) == 0:
		return false
	}
	ok, _ := path.Match(globs[0], parts[0])
	return ok && matchParts(globs[1:], parts[1:])
}
