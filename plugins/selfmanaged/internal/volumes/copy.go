package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// copyBytes is how much is copied between two looks at the context.
const copyBytes = 64 << 20

// copyOf fills a directory with the files of another volume, which nobody uses meanwhile.
// The blocks are its own: shared ones would take room of the disk with each write, which a
// volume has reserved.
func (s *Store) copyOf(ctx context.Context, from, dir string, size int64) error {
	done, err := s.changing.Take(ctx, from)
	if err != nil {
		return err
	}
	defer done()
	lock, err := lockPath(filepath.Join(s.dir(from), lockFile), unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noSuchVolume("from")
	case errors.Is(err, errInUse):
		return sdk.FieldErrorf(sdk.CodeConflict, "from", "is in use: a copy is made of a volume that no instance has")
	case err != nil:
		return err
	}
	defer lock.Close()
	r, err := readRecord(s.dir(from))
	if err != nil {
		return err
	}
	if size < r.Size {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "size", "must be at least that of the volume that is copied, %d MiB", r.Size>>20)
	}
	// What an earlier process has written may not be in the image yet.
	if err := s.mountOnce(s.dir(from), func(string) error { return nil }); err != nil {
		return err
	}
	image := filepath.Join(dir, imageFile)
	if err := copyImage(ctx, filepath.Join(s.dir(from), imageFile), image, r.Size); err != nil {
		return fmt.Errorf("copy a volume: %w", err)
	}
	if size == r.Size {
		return nil
	}
	return s.grow(ctx, image)
}

func copyImage(ctx context.Context, from, to string, size int64) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for at := int64(0); at < size && err == nil; {
		var start, end int64
		if start, err = in.Seek(at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			err = nil // nothing but holes behind it
			break
		} else if err != nil {
			break
		}
		if end, err = in.Seek(start, unix.SEEK_HOLE); err != nil {
			break
		}
		err = copyRange(ctx, in, out, start, min(end, size))
		at = end
	}
	return errors.Join(err, out.Sync(), out.Close())
}

func copyRange(ctx context.Context, in, out *os.File, start, end int64) error {
	for start < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(end-start, copyBytes)
		if _, err := in.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(start, io.SeekStart); err != nil {
			return err
		}
		// Not io.CopyN of the files: copy_file_range may share the blocks as well.
		if _, err := io.CopyN(struct{ io.Writer }{out}, struct{ io.Reader }{in}, n); err != nil {
			return err
		}
		start += n
	}
	return nil
}

// grow has the file system of an image take all of it.
func (s *Store) grow(ctx context.Context, image string) error {
	for _, command := range [][]string{{"e2fsck", "-f", "-p", image}, {"resize2fs", image}} {
		program, err := exec.LookPath(command[0])
		if err != nil {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "size", "must be that of the volume that is copied: this machine has no %s", command[0])
		}
		cmd := exec.CommandContext(ctx, program, command[1:]...)
		cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/"
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		// e2fsck says by 1 that it has repaired what was left to do.
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && command[0] == "e2fsck" && exit.ExitCode() == 1 {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %.500s", command[0], err, out)
		}
	}
	return nil
}
