package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Pack writes what is in a directory, with names below it. Sockets, pipes and devices are
// left out and told to skipped.
func Pack(ctx context.Context, w io.Writer, dir string, skipped func(name string)) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		return add(archive, path, filepath.ToSlash(name), entry, skipped)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func add(archive *tar.Writer, path, name string, entry fs.DirEntry, skipped func(string)) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		skipped(path)
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	// Who owns a file here is nobody's business there.
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(archive, file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
