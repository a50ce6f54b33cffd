package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// database is an open bbolt file, with the file itself.
type database struct {
	*bbolt.DB
	file *os.File
}

// openDatabase opens a file that was verified.
func openDatabase(path string, lockTimeout time.Duration) (*database, error) {
	db := &database{}
	options := &bbolt.Options{
		Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType,
		// bbolt opens the file a second time, by its name, where it copies it. Another
		// one may have that name by then.
		OpenFile: func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
			if flag&os.O_RDWR == 0 && db.file != nil {
				return duplicate(db.file)
			}
			db.file, err = privatefile.Open(name, flag, mode)
			return db.file, err
		},
	}
	err, broken := guarded(func() (err error) {
		db.DB, err = bbolt.Open(path, 0o600, options)
		return err
	})
	if broken != nil {
		return nil, errors.Join(damagedError(path, broken), db.abandon())
	}
	if err != nil {
		return nil, openError(path, err)
	}
	return db, nil
}

// duplicate returns another descriptor of a file, which shares its offset.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// abandon gives back the lock of a damaged file, which bbolt cannot be asked to.
func (d *database) abandon() error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

// prepare finds out whether bbolt may be let near the file, and makes it where there is
// none. loss, if not empty, says what has to be noted as lost.
func prepare(path string, opts Options) (loss string, err error) {
	fresh, err := missing(path)
	if err != nil {
		return "", openError(path, err)
	}
	if fresh {
		if opts.Expected {
			loss = "there was no state file, though a broker has used the directory before"
		}
		return loss, create(path)
	}
	file, err := privatefile.Open(path, os.O_RDWR, 0)
	if err != nil {
		return "", openError(path, err)
	}
	defer file.Close()
	if err := lock(file, opts.LockTimeout); err != nil {
		return "", openError(path, err)
	}
	report, err := verify(file, path)
	if err != nil {
		return "", err
	}
	for _, warning := range report.Warnings {
		opts.Logger.Warn("the state file is damaged in part", "file", path, "what", warning)
	}
	if len(report.Warnings) > 0 {
		loss = report.Warnings[0]
	}
	return loss, nil
}

// create makes an empty file under its name at once: one without content is a damaged
// one, and not one that is new.
func create(path string) error {
	const suffix = ".new"
	if err := os.RemoveAll(path + suffix); err != nil {
		return openError(path, err)
	}
	db, err := bbolt.Open(path+suffix, 0o600, nil)
	if err != nil {
		return openError(path, err)
	}
	if err := errors.Join(db.Close(), ondisk.Rename(path+suffix, path)); err != nil {
		return openError(path, err)
	}
	return nil
}

// lock takes the lock that bbolt takes as well, until the file is closed.
func lock(file *os.File, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return bolterrors.ErrTimeout
		}
		time.Sleep(min(timeout, lockPause))
	}
}

// lockPause is how long to wait before the lock is tried again.
const lockPause = 20 * time.Millisecond

// begins reports a file of which not even the beginning is there. A fault there, where
// bbolt begins to read, would leave its locks held, and other readers waiting for them.
func (d *database) begins() error {
	info, err := d.file.Stat()
	if err != nil {
		return nil //nolint:nilerr // it was closed, which bbolt says too
	}
	if info.Size() < 2*int64(os.Getpagesize()) {
		return fmt.Errorf("another program has cut it while the broker used it: it has %d bytes", info.Size())
	}
	return nil
}

// unchanged reports a file that somebody else has cut or written to. transaction is the
// one that a transaction of now has found as the last.
func (s *Store) unchanged(tx *bbolt.Tx, transaction int) error {
	if s.last != 0 && transaction != s.last {
		return fmt.Errorf("another program has written to it while the broker used it: its last transaction is %d instead of %d", transaction, s.last)
	}
	info, err := s.db.file.Stat()
	if err == nil && info.Size() < tx.Size() {
		err = fmt.Errorf("another program has cut it while the broker used it: it has %d bytes of %d", info.Size(), tx.Size())
	}
	return err
}
