package packagelayers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// entryBytes is what a name takes of the disk beside its content.
const entryBytes = 512

// sumOf is the sum of all that a sandbox can see of a directory, and what it takes of the
// disk. Times of directories say nothing, and no link is followed.
func sumOf(ctx context.Context, dir string) (sum string, bytes int64, err error) {
	all := sha256.New()
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		bytes += entryBytes + info.Size()
		// What follows each name has a form of its own, and its length before it.
		_, _ = fmt.Fprintf(all, "%d %s %o ", len(rel), rel, info.Mode())
		switch {
		case info.IsDir():
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			_, _ = fmt.Fprintf(all, "%d %s ", len(target), target)
			return err
		case info.Mode().IsRegular():
			_, _ = fmt.Fprintf(all, "%d %d ", info.ModTime().UnixNano(), info.Size())
			return addFile(all, path)
		default:
			return fmt.Errorf("%s is neither a file, a directory nor a link", rel)
		}
	})
	return hex.EncodeToString(all.Sum(nil)), bytes, err
}

func addFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}
