package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Options of Open. The zero value is right for a broker.
type Options struct {
	// LockTimeout is how long to wait for another process to let go of the file;
	// zero means 1 s.
	LockTimeout time.Duration
}

// Store is an open state file. Its methods may be called concurrently.
type Store struct {
	db   *bbolt.DB
	path string

	// updates goes to the writer. closing ends it; done is closed when it has
	// ended.
	updates chan *update
	closing chan struct{}
	close   sync.Once
	done    chan struct{}
	err     error // of the close; read after done
}

// errClosed is what comes after Close.
var errClosed = errors.New("the broker is shutting down")

// Open opens the file, or makes it, and brings it to the schema of this version.
// The directory must be there. Close must be called.
func Open(path string, opts Options) (*Store, error) { return open(path, opts, migrations()) }

func open(path string, opts Options, steps []func(tx *bbolt.Tx) error) (*Store, error) {
	if opts.LockTimeout == 0 {
		opts.LockTimeout = time.Second
	}
	options := &bbolt.Options{Timeout: opts.LockTimeout, FreelistType: bbolt.FreelistMapType}
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{
		db: db, path: path,
		updates: make(chan *update, maxGroup),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := s.migrate(steps); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if s.db, err = compacted(db, path, options); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, errors.Join(openError(path, err), s.db.Close())
	}
	go s.write()
	return s, nil
}

// Path of the file.
func (s *Store) Path() string { return s.path }

// View calls read with a transaction that sees all that was durable when it began,
// without waiting for anybody. What the transaction returns must be copied before
// read returns, which should be soon: the file grows as long as a view is open.
func (s *Store) View(read func(tx *bbolt.Tx) error) error {
	err := s.db.View(read)
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return closedError()
	}
	return err
}

// Update calls change with a transaction and returns when what it did is durable,
// or an error when nothing of it was done. change may be called several times, by
// another goroutine, together with the changes of others; so it sets what it sets
// outside the transaction anew each time, and it does not wait for anything. An
// error of change is returned as it is; it makes the others begin again, so an
// answer that is to be expected (such as "no quota left") is better told through a
// variable.
//
// An error with SB009 says that the disk did not take it: it is full, broken or
// read-only. Later calls try again. When ctx ends first, change may or may not come
// to be done; the variables that it sets must not be touched then.
func (s *Store) Update(ctx context.Context, change func(tx *bbolt.Tx) error) error {
	u := &update{ctx: ctx, change: change, outcome: make(chan error, 1)}
	select {
	case s.updates <- u:
	case <-s.closing:
		return closedError()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-u.outcome:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		// It may have been answered in the end.
		select {
		case err := <-u.outcome:
			return err
		default:
			return closedError()
		}
	}
}

// Close finishes the updates that have begun, refuses others, waits for the views
// that are open, and closes the file.
func (s *Store) Close() error {
	s.close.Do(func() { close(s.closing) })
	<-s.done
	return s.err
}

func closedError() error { return sdk.Errorf(sdk.CodeUnavailable, "%w", errClosed) }

// openError says what to do when the file does not open.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("another process has the state file %s open; stop it, or give this broker a directory of its own (state = ...)", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%s is not a state file, or it is damaged (%w); restore it, or move it away: instances in clouds are then destroyed and quotas begin anew", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the state file %s cannot be opened for writing: %w", path, err)
	default:
		return fmt.Errorf("open the state file %s: %w", path, err)
	}
}

// diskError is the public form of a failure to write. bbolt does not pass all causes
// on, so it names none.
func diskError(err error) error {
	public := sdk.Errorf(sdk.CodeUnavailable, "the broker cannot write its state: the disk is full, read-only or broken; the operator finds more in the broker's log")
	return fmt.Errorf("%w (%w)", public, err)
}
