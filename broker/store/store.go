package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/store/groupcommit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Options of Open. The zero value is right for a broker.
type Options struct {
	// LockTimeout is how long to wait for another process to let go of the file;
	// zero means 1 s.
	LockTimeout time.Duration
	// Logger is told what becomes of the file and its copies, and when the disk is slow;
	// nil for nobody.
	Logger hclog.Logger
	// Expected says that there was a state file once: where there is none, it counts
	// as lost (Store.Loss).
	Expected bool
	// Purge, if not nil, takes out of the file what earlier versions should not have
	// put there. It is called once in the life of a file, which is written anew then, so
	// that nothing of it is left in pages that nobody uses.
	Purge func(tx Tx) error
}

// Store is an open state file. Its methods may be called concurrently.
type Store struct {
	path   string
	logger hclog.Logger

	// db is exchanged when the file had to be made again, under swap.
	swap sync.RWMutex
	db   *database
	// last is the number of the last transaction that the writer knows of, 0 if it
	// does not. It is the writer's.
	last   int
	damage atomic.Pointer[error]
	// copying is held by whoever reads the whole file.
	copying sync.Mutex
	meter   *disk.Meter
	// line is where updates wait for the writer.
	line    *groupcommit.Line[change]
	close   sync.Once
	keeping sync.Mutex    // held while a copy is kept
	copied  chan struct{} // closed when no more copies are kept
	err     error         // of the close
}

// change is what an update does.
type change = func(tx Tx) error

// Open opens the file, or makes it, and brings it to the schema of this version. A file
// that is damaged is not touched: the error wraps ErrDamaged. The directory must be
// there. Close must be called.
func Open(path string, opts Options) (*Store, error) { return open(path, opts, migrations()) }

func open(path string, opts Options, steps []func(tx *bbolt.Tx) error) (*Store, error) {
	if opts.LockTimeout == 0 {
		opts.LockTimeout = time.Second
	}
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	loss, err := prepare(path, opts)
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(path, opts.LockTimeout)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: db, path: path, logger: opts.Logger,
		copied: make(chan struct{}),
	}
	s.line = groupcommit.New(s.attempt, "the broker cannot write its state in time, since its disk is slow")
	s.meter = disk.NewMeter(disk.Options{Of: "state file", Logger: opts.Logger, Bound: s.line.Patience})
	err, broken := guarded(func() error { return s.ready(opts, steps, loss) })
	if broken != nil {
		return nil, errors.Join(s.broke(broken), s.db.abandon())
	}
	if err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	go s.write()
	go s.keepCopies()
	return s, nil
}

// ready brings an open file up to date.
func (s *Store) ready(opts Options, steps []func(tx *bbolt.Tx) error, loss string) (err error) {
	if err := s.migrate(steps); err != nil {
		return err
	}
	if loss != "" {
		if err := s.change(func(tx *bbolt.Tx) error { return NoteLoss(fileTx{tx}, loss) }); err != nil {
			return err
		}
	}
	if s.db, err = s.purged(opts); err != nil {
		return err
	}
	if s.db, err = compacted(s.db, s.path, opts.LockTimeout, false); err != nil {
		return err
	}
	if err := ondisk.SyncDir(filepath.Dir(s.path)); err != nil {
		return openError(s.path, err)
	}
	return nil
}

// SetPatience sets how long an update may take whose caller would wait longer; 0 means
// 30 s.
func (s *Store) SetPatience(d time.Duration) { s.line.SetPatience(d) }

// Disk measures how long updates wait for the disk.
func (s *Store) Disk() *disk.Meter { return s.meter }

// Path of the file.
func (s *Store) Path() string { return s.path }

// View calls read with a transaction that sees all that was durable when it began,
// without waiting for anybody. What the transaction returns must be copied before
// read returns, which should be soon: the file grows as long as a view is open. An error
// that wraps ErrDamaged says that the file was damaged meanwhile.
func (s *Store) View(read func(tx Tx) error) error {
	return s.view(func(tx *bbolt.Tx) error { return read(fileTx{tx}) })
}

func (s *Store) view(read func(tx *bbolt.Tx) error) error {
	for {
		if err := s.Err(); err != nil {
			return err
		}
		db := s.current()
		if err := db.begins(); err != nil {
			return s.broke(err)
		}
		err, broken := guarded(func() error { return db.View(read) })
		if broken != nil {
			return s.broke(broken)
		}
		if !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			return err
		}
		if s.current() == db {
			return groupcommit.Closed()
		}
	}
}

func (s *Store) current() *database {
	s.swap.RLock()
	defer s.swap.RUnlock()
	return s.db
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
// read-only, or slower than the patience of the store and the deadline of ctx. Later
// calls try again. When the time is over or ctx ends first, change may or may not come
// to be done; the variables that it sets must not be touched then.
func (s *Store) Update(ctx context.Context, change func(tx Tx) error) error {
	return s.line.Do(ctx, change)
}

// Close finishes the updates that have begun, refuses others, waits for the views
// that are open, and closes the file.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.line.Close()
		s.err = s.end()
		if s.Err() == nil { // else a lock of bbolt may be in its way for ever
			<-s.copied
		}
	})
	return s.err
}

// openError says what to do when the file does not open.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("another process has the state file %s open; stop it, or give this broker a directory of its own (state = ...)", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return damagedError(path, err)
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
