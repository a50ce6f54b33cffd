package local

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Archiver = (*Provider)(nil)

// ReadArchive implements sdk.Archiver.
func (p *Provider) ReadArchive(_ context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	t, err := p.files(req.InstanceID)
	if err != nil {
		return nil, err
	}
	directory, err := name(req.Directory)
	if err == nil {
		_, err = t.Stat(directory)
	}
	if err != nil {
		return nil, errors.Join(explain(err), t.Close())
	}
	paths := req.Paths
	if len(paths) == 0 {
		paths = []string{"."}
	}
	reader, writer := io.Pipe()
	go func() {
		defer t.Close()
		w := tar.NewWriter(writer)
		var err error
		for _, part := range paths {
			if err == nil {
				err = t.pack(w, directory, path.Join(directory, part))
			}
		}
		if err == nil {
			err = w.Close()
		}
		writer.CloseWithError(explain(err))
	}()
	return reader, nil
}

func (t tree) pack(w *tar.Writer, directory, start string) error {
	return fs.WalkDir(t.FS(), start, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == directory {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = t.Readlink(file); err != nil {
				return err
			}
		case !info.Mode().IsRegular() && !info.IsDir():
			return nil
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header.Name = strings.TrimPrefix(file, directory+"/")
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := t.Open(file)
		if err != nil {
			return err
		}
		defer content.Close()
		_, err = io.Copy(w, content)
		return err
	})
}

// WriteArchive implements sdk.Archiver.
func (p *Provider) WriteArchive(_ context.Context, instanceID, directory string, content io.Reader) (summary sdk.ArchiveSummary, err error) {
	return summary, p.with(instanceID, directory, func(t tree, directory string) error {
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return sdk.Errorf(sdk.CodeInvalidRequest, "not an archive: %w", err)
			}
			if err := t.unpack(directory, header, r); err != nil {
				return err
			}
			if header.Typeflag == tar.TypeReg {
				summary.Files++
				summary.Bytes += header.Size
			}
		}
	})
}

func (t tree) unpack(directory string, header *tar.Header, content io.Reader) error {
	refused := sdk.FieldErrorf(sdk.CodeInvalidRequest, "path", "the entry %q leads out or is of another type", header.Name)
	if path.IsAbs(header.Name) || !fs.ValidPath(path.Clean(header.Name)) {
		return refused
	}
	file := path.Join(directory, header.Name)
	for above := path.Dir(file); above != directory && above != "."; above = path.Dir(above) {
		if info, err := t.Lstat(above); err == nil && !info.IsDir() {
			return refused
		}
	}
	if err := t.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return t.replace(file, header.FileInfo().Mode().Perm(), content)
	case tar.TypeDir:
		return t.MkdirAll(file, header.FileInfo().Mode().Perm()|0o700)
	case tar.TypeSymlink:
		_ = t.Remove(file)
		return t.Symlink(header.Linkname, file)
	default:
		return refused
	}
}
