package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
)

// stateDir is the directory that holds what a broker keeps between two runs. It
// is locked, since two brokers on one directory would destroy each other's
// instances.
type stateDir struct {
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

func openStateDir(path string) (_ *stateDir, err error) {
	if err := notAnothers(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := privateDir(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := checkEntries(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	d := &stateDir{path: path, dirs: map[string]bool{}}
	if d.lock, err = lockIn(path); err != nil {
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

// lockIn takes the lock of a state directory.
func lockIn(path string) (*os.File, error) {
	lock, err := privatefile.Open(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("another broker uses the state directory %s; stop it, or give this one a directory of its own (state = ...)", path)
	case err != nil:
		err = fmt.Errorf("lock the state directory: %w", err)
	default:
		return lock, nil
	}
	return nil, errors.Join(err, lock.Close())
}

// identify makes sure that the broker has an ID: the one in the directory, else the one
// that the state file says, else a new one.
func (d *stateDir) identify(stored string) error {
	if d.id != "" {
		return nil
	}
	if d.id = stored; !brokerIDForm.MatchString(stored) {
		d.id = strings.ToLower(rand.Text())
	}
	return d.writeID()
}

func (d *stateDir) writeID() error {
	if err := privatefile.Write(d.idFile(), []byte(d.id+"\n")); err != nil {
		return fmt.Errorf("broker ID: %w", err)
	}
	return nil
}

func (d *stateDir) idFile() string { return filepath.Join(d.path, "broker_id") }

// firstProviderDir makes the directory that a provider's first process has for
// itself: the one that an earlier broker gave it, if there is one. A broker that
// was killed during an upgrade left several; the others are abandoned.
func (d *stateDir) firstProviderDir(label string) (dir string, abandoned []string, err error) {
	all, err := d.providerDirs(label)
	if err != nil {
		return "", nil, err
	}
	if len(all) == 0 {
		return d.nextProviderDir(label)
	}
	d.making.Lock()
	defer d.making.Unlock()
	d.dirs[all[0]] = true
	return all[0], all[1:], privateDir(all[0])
}

// nextProviderDir makes a directory for one more process of a provider.
func (d *stateDir) nextProviderDir(label string) (dir string, abandoned []string, err error) {
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
func (d *stateDir) providerDirs(label string) ([]string, error) {
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

// removeAll removes directories of providers with all that is in them.
func (d *stateDir) removeAll(dirs []string) (err error) {
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

// previewKeyFile has the key that signs preview links.
func (d *stateDir) previewKeyFile() string { return filepath.Join(d.path, "preview_key") }

// file holds the state that must survive a crash.
func (d *stateDir) file() string { return filepath.Join(d.path, stateFile) }

// close unlocks the directory.
func (d *stateDir) close() error { return d.lock.Close() }
