// Package statedir is the directory that holds what a broker keeps between two runs:
// its ID, the state file, and a directory for each process of a provider.
//
// Open locks it and refuses what others could have put there. Recreate makes again what
// somebody removes while the broker runs. A BackupServer gives the state file of a
// running broker to Check and Backup; Restore is for a broker that is stopped. What is in
// the state file is package store's.
package statedir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/takeover"
)

// Dir is an open state directory. It is locked, since two brokers on one directory would
// destroy each other's instances.
type Dir struct {
	path string
	lock *os.File
	// id is the broker's own: providers mark their instances with it.
	id string
	// known says that the directory had an ID, so a broker has used it before.
	known bool
	// making is held while a directory gets its number, and guards dirs: those that
	// processes of providers have now.
	making sync.Mutex
	dirs   map[string]bool
}

// stateFile is what must survive a crash.
const stateFile = "state.db"

// lockName is the file whose lock says that the directory is in use.
const lockName = "lock"

// Open makes the directory unless it is there, and locks it until Close.
func Open(ctx context.Context, path string) (_ *Dir, err error) {
	if err := notAnothers(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := privateDir(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := checkEntries(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	d := &Dir{path: path, dirs: map[string]bool{}}
	if d.lock, err = takeover.Of(ctx, unix.EWOULDBLOCK, func() (*os.File, error) { return tryLock(path) }); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.lock.Close()
		}
	}()
	if d.id, err = readBrokerID(d.idFile()); err != nil {
		return nil, err
	}
	d.known = d.id != ""
	return d, nil
}

// usedError is a directory that another broker has.
type usedError struct{ path string }

func (e *usedError) Error() string {
	return fmt.Sprintf("another broker uses the state directory %s; stop it, or give this one a directory of its own (state = ...)", e.path)
}

func (e *usedError) Unwrap() error { return unix.EWOULDBLOCK }

// tryLock takes the lock of a state directory that nobody has.
func tryLock(path string) (*os.File, error) {
	lock, err := privatefile.Open(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = &usedError{path}
	case err != nil:
		err = fmt.Errorf("lock the state directory: %w", err)
	default:
		return lock, nil
	}
	return nil, errors.Join(err, lock.Close())
}

// identify makes sure that the broker has an ID: the one in the directory, else the one
// that the state file says, else a new one.
func (d *Dir) identify(stored string) error {
	if d.id != "" {
		return nil
	}
	if d.id = stored; !brokerIDForm.MatchString(stored) {
		d.id = strings.ToLower(rand.Text())
	}
	return d.writeID()
}

func (d *Dir) writeID() error {
	if err := privatefile.Write(d.idFile(), []byte(d.id+"\n")); err != nil {
		return fmt.Errorf("broker ID: %w", err)
	}
	return nil
}

func (d *Dir) idFile() string { return filepath.Join(d.path, "broker_id") }

// FirstProviderDir makes the directory that a provider's first process has for
// itself: the one that an earlier broker gave it, if there is one. A broker that
// was killed during an upgrade left several; the others are abandoned.
func (d *Dir) FirstProviderDir(label string) (dir string, abandoned []string, err error) {
	all, err := d.providerDirs(label)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 0 {
		return d.NextProviderDir(label)
	}
	d.making.Lock()
	defer d.making.Unlock()
	d.dirs[all[0]] = true
	return all[0], all[1:], privateDir(all[0])
}

// NextProviderDir makes a directory for one more process of a provider.
func (d *Dir) NextProviderDir(label string) (dir string, abandoned []string, err error) {
	d.making.Lock()
	defer d.making.Unlock()
	all, err := d.providerDirs(label)
	if err != nil {
		return "", nil, err
	}
	last := 0
	if len(all) > 0 {
		last, _ = strconv.Atoi(filepath.Base(all[len(all)-1]))
	}
	dir = filepath.Join(d.path, "providers", label, strconv.Itoa(last+1))
	if err := privateDir(dir); err != nil {
		return "", nil, fmt.Errorf("state directory of provider %q: %w", label, err)
	}
	d.dirs[dir] = true
	return dir, nil, nil
}

// providerDirs lists the directories of a provider's processes, the oldest first.
func (d *Dir) providerDirs(label string) ([]string, error) {
	parent := filepath.Join(d.path, "providers", label)
	if err := privateDir(parent); err != nil {
		return nil, fmt.Errorf("state directory of provider %q: %w", label, err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, fmt.Errorf("state directory of provider %q: %w", label, err)
	}
	var numbers []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && e.IsDir() && strconv.Itoa(n) == e.Name() {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	var dirs []string
	for _, n := range numbers {
		dirs = append(dirs, filepath.Join(parent, strconv.Itoa(n)))
	}
	return dirs, nil
}

// KeepDir makes the directory that all processes of a provider have together, for what
// outlives them.
func (d *Dir) KeepDir(label string) (string, error) {
	dir := filepath.Join(d.path, providersName, label, "keep")
	if err := privateDir(dir); err != nil {
		return "", fmt.Errorf("state directory of provider %q: %w", label, err)
	}
	return dir, nil
}

// RemoveAll removes directories of providers with all that is in them.
func (d *Dir) RemoveAll(dirs []string) (err error) {
	d.making.Lock()
	for _, dir := range dirs {
		delete(d.dirs, dir)
	}
	d.making.Unlock()
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// PreviewKeyFile has the key that signs preview links.
func (d *Dir) PreviewKeyFile() string { return filepath.Join(d.path, "preview_key") }

// SnapshotSecretFile has the secret that the keys of snapshots are derived from.
func (d *Dir) SnapshotSecretFile() string { return filepath.Join(d.path, "snapshot_secret") }

func (d *Dir) file() string { return filepath.Join(d.path, stateFile) }

// Path is where the directory is.
func (d *Dir) Path() string { return d.path }

// ID is the broker's own: providers mark their instances with it. It is known once
// OpenStore has returned.
func (d *Dir) ID() string { return d.id }

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Recreate makes what is missing of the directory, and says whether anything was.
func (d *Dir) Recreate(previewKey, snapshotSecret []byte) (again bool, err error) {
	if !d.inPlace() {
		if err := privateDir(d.path); err != nil {
			return false, err
		}
		lock, err := tryLock(d.path)
		if err != nil {
			return false, err // another broker has begun there, perhaps
		}
		old := d.lock
		d.lock, again = lock, true
		if err := old.Close(); err != nil {
			return again, err
		}
	}
	for path, content := range map[string][]byte{d.idFile(): []byte(d.id + "\n"), d.PreviewKeyFile(): previewKey, d.SnapshotSecretFile(): snapshotSecret} {
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
func (d *Dir) inPlace() bool {
	var held, there unix.Stat_t
	if unix.Fstat(int(d.lock.Fd()), &held) != nil || unix.Lstat(filepath.Join(d.path, lockName), &there) != nil {
		return false
	}
	return held.Dev == there.Dev && held.Ino == there.Ino
}

// OpenStore opens the state file and makes sure that it is this broker's.
func (d *Dir) OpenStore(ctx context.Context, logger hclog.Logger) (_ *store.Store, err error) {
	state, err := store.Open(d.file(), store.Options{Logger: logger, Expected: d.known, Purge: idempotency.PurgeSecrets})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, state.Close())
		}
	}()
	stored, err := state.BrokerID()
	if err != nil {
		return nil, err
	}
	if err := d.identify(stored); err != nil {
		return nil, err
	}
	return state, state.Belong(ctx, d.id)
}

// forgetTimeout bounds the note that a loss is over.
const forgetTimeout = 10 * time.Second

// ReportLoss says what of the state is lost, and returns what is to be called when that
// can do no more harm; nil if nothing is.
func ReportLoss(state store.State, logger hclog.Logger) (over func(), err error) {
	loss, found, err := store.LossOf(state)
	if err != nil || !found {
		return nil, err
	}
	logger.Warn("the broker has lost a part of its state: instances of clouds that it does not know are destroyed when they are listed, and none is made on a cloud before; requests whose Idempotency-Key was lost are carried out again, and quotas count from what is left", "what", loss.What, "since", loss.At.Format(time.RFC3339))
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
		defer cancel()
		if err := store.ForgetLoss(ctx, state); err != nil {
			logger.Warn("that the loss is over could not be written down", "error", err)
			return
		}
		logger.Info("all clouds have listed what they have; the loss can do no more harm")
	}, nil
}
