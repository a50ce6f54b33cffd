package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// File is what Check says of a state file or a copy of it.
type File struct {
	Path string `json:"path"`
	// Age is when it was written.
	Age time.Time `json:"age"`
	store.Report
	// Problem says why it cannot be used; empty if it can.
	Problem string `json:"problem,omitempty"`
}

// Check verifies the state file in a directory and its copies. A broker may run on
// it: then it is its state at this moment that is verified. A file that is not there is
// left out.
func Check(ctx context.Context, dir string) ([]File, error) {
	var files []File
	path := filepath.Join(dir, stateFile)
	for _, name := range append([]string{path}, store.Copies(path)...) {
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := File{Path: name, Age: info.ModTime()}
		if name == path {
			found.Report, err = verifyNow(ctx, dir)
		} else {
			found.Report, err = store.Verify(name)
		}
		if err != nil {
			found.Problem = err.Error()
		}
		files = append(files, found)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no state file in %s", dir)
	}
	return files, nil
}

// verifyNow verifies the file, or what the broker that runs gives out of it.
func verifyNow(ctx context.Context, dir string) (store.Report, error) {
	release, err := lockStopped(dir)
	if err == nil {
		report, err := store.Verify(filepath.Join(dir, stateFile))
		return report, errors.Join(err, release())
	}
	if !errors.Is(err, errBrokerRuns) {
		return store.Report{}, err
	}
	temporary, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return store.Report{}, err
	}
	defer os.Remove(temporary.Name())
	defer temporary.Close()
	if err := requestBackup(ctx, dir, temporary); err != nil {
		return store.Report{}, err
	}
	return store.Verify(temporary.Name())
}

// errBrokerRuns says that a broker uses the directory.
var errBrokerRuns = errors.New("a broker uses the state directory")

// lockStopped keeps brokers out of a directory until release is called.
func lockStopped(dir string) (release func() error, err error) {
	lock, err := privatefile.Open(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errBrokerRuns
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock.Close, nil
}

// Backup writes a verified copy of the state in a directory to a file that is not
// there yet, mode 0600. A broker may run on it.
func Backup(ctx context.Context, dir, to string) (report store.Report, err error) {
	next := to + ".new"
	file, err := privatefile.Open(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return report, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, removeIfThere(next))
		}
	}()
	if err := copyState(ctx, dir, file); err != nil {
		return report, err
	}
	if err := file.Sync(); err != nil {
		return report, err
	}
	if report, err = store.Verify(next); err != nil {
		return report, fmt.Errorf("what was copied cannot be used: %w", err)
	}
	if err := os.Link(next, to); err != nil { // which replaces nothing
		return report, err
	}
	return report, errors.Join(os.Remove(next), ondisk.SyncDir(filepath.Dir(to)))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func copyState(ctx context.Context, dir string, to io.Writer) error {
	release, err := lockStopped(dir)
	if errors.Is(err, errBrokerRuns) {
		return requestBackup(ctx, dir, to)
	}
	if err != nil {
		return err
	}
	from, err := privatefile.Open(filepath.Join(dir, stateFile), os.O_RDONLY, 0)
	if err != nil {
		return errors.Join(err, release())
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close(), release())
}

// Restore makes the state file of a directory anew: from a backup, from what is left
// of it and its copies if from is empty, or with nothing in it. No broker may run on it.
func Restore(dir, from string, empty bool) (done store.Restored, err error) {
	release, err := lockStopped(dir)
	if errors.Is(err, errBrokerRuns) {
		return done, fmt.Errorf("a broker uses %s; stop it first", dir)
	}
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return store.Restore(filepath.Join(dir, stateFile), store.Restoring{
		From: from, Empty: empty, Now: time.Now(),
		Finish: []func(store.Tx) error{idempotency.Reindex},
	})
}
