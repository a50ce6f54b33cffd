// Package filelock has locks that processes of this machine share. What is locked, and by
// which file, is for its users.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// look is how often a lock is tried again that another process has.
const look = 50 * time.Millisecond

// Lock is a file that is locked as long as it is open: the kernel gives it free when its
// process ends, however that ends.
type Lock struct{ file *os.File }

// Try locks a file, shared with others or alone; nil if others have it.
func Try(path string, alone bool) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if alone {
		how = unix.LOCK_EX
	}
	switch err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, file.Close()
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return &Lock{file}, nil
}

// Take waits until it has a lock.
func Take(ctx context.Context, path string, alone bool) (*Lock, error) {
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		l, err := Try(path, alone)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Is says whether the file at a path is the one that is locked, and not another one that
// somebody has put there since.
func (l *Lock) Is(path string) (bool, error) {
	at, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	own, err := l.file.Stat()
	return err == nil && os.SameFile(at, own), err
}

// Release gives the lock free.
func (l *Lock) Release() { _ = l.file.Close() }
