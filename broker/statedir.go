package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// stateDir is the directory that holds what a broker keeps between two runs. It
// is locked, since two brokers on one directory would destroy each other's
// instances.
type stateDir struct {
	path string
	lock *os.File
	// id is the broker's own: providers mark their instances with it.
	id string
	// making is held while a directory gets its number.
	making sync.Mutex
}

// lockName is the file whose lock says that the directory is in use.
const lockName = "lock"

func openStateDir(path string) (_ *stateDir, err error) {
	if err := notAnothers(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := privateDir(path); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another broker uses the state directory %s; stop it, or give this one a directory of its own (state = ...)", path)
		}
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	id, err := brokerID(filepath.Join(path, "broker_id"))
	if err != nil {
		return nil, err
	}
	return &stateDir{path: path, lock: lock, id: id}, nil
}

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

// removeAll removes directories with all that is in them.
func removeAll(dirs []string) (err error) {
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// previewKey is the file with the key that signs preview links.
func (d *stateDir) previewKey() string { return filepath.Join(d.path, "preview_key") }

// file holds the state that must survive a crash.
func (d *stateDir) file() string { return filepath.Join(d.path, "state.db") }

// close unlocks the directory.
func (d *stateDir) close() error { return d.lock.Close() }

// notAnothers refuses a directory with other people's things in it: closing /tmp
// or somebody's home to everybody else is not what a wrong setting should do.
func notAnothers(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "lost+found" }) // of a volume's own
	isLock := func(entry fs.DirEntry) bool { return entry.Name() == lockName }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return fmt.Errorf("%s is open to others and holds what no broker made; choose a directory for the broker alone (state = ...)", path)
	}
	return nil
}

// privateDir makes a directory that nobody else may look into.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return os.Chmod(path, 0o700)
}

var brokerIDForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// brokerID reads the ID, or makes it at the first start. It must not change:
// instances in clouds are found by it.
func brokerID(path string) (string, error) {
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		id := strings.TrimSpace(string(text))
		if !brokerIDForm.MatchString(id) {
			return "", fmt.Errorf("%s does not hold a broker ID; restore it, or remove it if no instances are left in any cloud", path)
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("broker ID: %w", err)
	}
	id := strings.ToLower(rand.Text())
	// A file that is half written must not be taken for one that is damaged.
	if err := os.WriteFile(path+".new", []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("broker ID: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("broker ID: %w", err)
	}
	return id, nil
}
