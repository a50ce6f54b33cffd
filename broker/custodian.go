package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
)

// custodyInterval is how often the broker looks whether its directories are still there.
const custodyInterval = 2 * time.Second

// keepInPlace makes again what somebody removes while the broker runs. The state file
// looks after itself (package store), the audit log too.
func (b *broker) keepInPlace(ctx context.Context) {
	look := time.NewTicker(custodyInterval)
	defer look.Stop()
	told := false
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		again, err := b.state.makeAgain(b.previewKey)
		if again {
			b.logger.Error("the state directory, or a part of it, was removed while the broker ran; it was made again", "directory", b.state.path)
		}
		if err == nil {
			err = b.launcher.KeepInPlace()
		}
		if err == nil {
			err = b.backups.keepInPlace()
		}
		if err != nil && !told {
			b.logger.Error("a directory of the broker was removed, and cannot be made again", "error", err)
		}
		told = err != nil
	}
}

// makeAgain makes what is missing of the directory, and says whether anything was.
func (d *stateDir) makeAgain(previewKey []byte) (again bool, err error) {
	if !d.inPlace() {
		if err := privateDir(d.path); err != nil {
			return false, err
		}
		lock, err := lockIn(d.path)
		if err != nil {
			return false, err // another broker has begun there, perhaps
		}
		old := d.lock
		d.lock, again = lock, true
		if err := old.Close(); err != nil {
			return again, err
		}
	}
	for path, content := range map[string][]byte{d.idFile(): []byte(d.id + "\n"), d.previewKeyFile(): previewKey} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := privatefile.Write(path, content); err != nil {
			return again, err
		}
		again = true
	}
	d.making.Lock()
	defer d.making.Unlock()
	for dir := range d.dirs {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, path := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
			if err := privateDir(path); err != nil {
				return again, err
			}
		}
		again = true
	}
	return again, nil
}

// inPlace reports whether the lock that the broker holds is the one in the directory.
func (d *stateDir) inPlace() bool {
	var held, there unix.Stat_t
	if unix.Fstat(int(d.lock.Fd()), &held) != nil || unix.Lstat(filepath.Join(d.path, lockName), &there) != nil {
		return false
	}
	return held.Dev == there.Dev && held.Ino == there.Ino
}
