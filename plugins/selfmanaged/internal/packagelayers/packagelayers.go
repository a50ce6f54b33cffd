package packagelayers

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/filelock"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/layers"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

const (
	layersName  = "layers"  // by their sums
	setsName    = "sets"    // records, by their keys
	usesName    = "uses"    // a file for each layer, locked by who uses it, with its size
	scratchName = "scratch" // what is being made, or removed
	storeLock   = "lock"    // had alone by who adds or removes something
)

// ErrNoRoom is for a layer that has no room beside those in use.
var ErrNoRoom = errors.New("there is no room for another layer")

// Options of a Store.
type Options struct {
	// Dir of the store, which need not exist.
	Dir string
	// Bytes that all layers may take together, and Age after which none is used any more:
	// what an index has changes.
	Bytes int64
	Age   time.Duration
	// Needed names layers that stay, whatever their age; nil for none. When it does not know,
	// nothing is removed.
	Needed func() (map[string]bool, error)
	Logger hclog.Logger
}

// Store is a directory with layers.
type Store struct {
	o         Options
	verifying keylock.Locks[string] // by layer

	mu       sync.Mutex
	uses     map[string]*use // by layer
	verified map[string]bool
}

// use is a layer that this process uses, with how many do.
type use struct {
	lock  *filelock.Lock
	users int
}

// Installed is what an installation has left.
type Installed struct {
	// Stdout and Stderr are what the installer printed.
	Stdout, Stderr []byte
}

// Layer is one that is in use, until Release.
type Layer struct {
	Installed
	ID      string
	release func()
}

// Again is the same layer for another user, who has held it.
func (l *Layer) Again(release func()) *Layer {
	again := *l
	again.release = release
	return &again
}

// Release says that the layer is not used any more, once.
func (l *Layer) Release() { l.release() }

// record says which layer a set of packages has.
type record struct {
	Layer   string
	BuiltAt time.Time
	Installed
}

// Open makes the directory of a store, where it is missing, and returns it.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, uses: map[string]*use{}, verified: map[string]bool{}}
	return s, s.prepare()
}

// prepare makes the directories, as far as they are not there.
func (s *Store) prepare() error {
	for _, dir := range []string{"", layersName, setsName, usesName, scratchName} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return fmt.Errorf("make the directory of package layers: %w", err)
		}
	}
	// Code in a sandbox reaches a layer that it was told of, and cannot list what others have.
	if err := os.Chmod(s.Dir(), 0o711); err != nil {
		return fmt.Errorf("open the directory of package layers to sandboxes: %w", err)
	}
	return nil
}

// Dir is the directory in which layers are, by their IDs. It is what sandboxes are to see.
func (s *Store) Dir() string { return s.path(layersName) }

func (s *Store) path(names ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, names...)...)
}

func (s *Store) recordPath(key string) string { return s.path(setsName, key+".json") }

// form is that of keys and IDs.
var form = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Use returns the layer of a set; nil if there is none that may still be used. Its key has 64
// hexadecimal digits.
func (s *Store) Use(ctx context.Context, key string) (*Layer, error) {
	r, err := s.read(key)
	if err != nil || r == nil {
		return nil, err
	}
	release, err := s.Hold(ctx, r.Layer)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.forget(key)
	}
	if err != nil {
		return nil, err
	}
	// When it was used last is what the time of the record says.
	now := time.Now()
	if err := os.Chtimes(s.recordPath(key), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		release()
		return nil, err
	}
	return &Layer{ID: r.Layer, Installed: r.Installed, release: release}, nil
}

// read returns the record of a set; nil for none that may still be used.
func (s *Store) read(key string) (*record, error) {
	if !form.MatchString(key) {
		return nil, fmt.Errorf("%.80q is no key", key)
	}
	text, err := os.ReadFile(s.recordPath(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if json.Unmarshal(text, &r) != nil || !form.MatchString(r.Layer) {
		return nil, s.forget(key)
	}
	if age := time.Since(r.BuiltAt); age < 0 || age >= s.o.Age {
		return nil, s.forget(key)
	}
	return &r, nil
}

func (s *Store) forget(key string) error {
	if err := os.Remove(s.recordPath(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Hold keeps a layer from being removed until release is called. The error is fs.ErrNotExist
// for one that is not there, or not what it was.
func (s *Store) Hold(ctx context.Context, id string) (release func(), err error) {
	release, err = s.hold(id)
	if err != nil {
		return nil, err
	}
	if err := s.verify(ctx, id); err != nil {
		release()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.o.Logger.Warn("a layer of packages is not what it was, and is not used", "layer", id, "error", err)
		return nil, fs.ErrNotExist
	}
	return release, nil
}

// hold is Hold for a layer that may not be what it was.
func (s *Store) hold(id string) (release func(), err error) {
	if !form.MatchString(id) {
		return nil, fs.ErrNotExist
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uses[id]
	if u == nil {
		l, err := s.lockUse(id)
		if err != nil {
			return nil, err
		}
		u = &use{lock: l}
		s.uses[id] = u
	}
	u.users++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.users--; u.users == 0 {
			u.lock.Release()
			delete(s.uses, id)
		}
	}), nil
}

// lockUse locks a layer that is there.
func (s *Store) lockUse(id string) (*filelock.Lock, error) {
	path := s.path(usesName, id)
	l, err := filelock.Try(path, false)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fs.ErrNotExist // it is being removed
	}
	// Or it was being removed, and the locked file is nobody's any more.
	is, err := l.Is(path)
	if err == nil && is {
		_, err = os.Lstat(s.path(layersName, id))
	} else if err == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// verify compares what is in a layer with its name, once in each process.
func (s *Store) verify(ctx context.Context, id string) error {
	done, err := s.verifying.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	known := s.verified[id]
	s.mu.Unlock()
	if known {
		return nil
	}
	sum, _, err := sumOf(ctx, s.path(layersName, id))
	if err != nil {
		return err
	}
	if sum != id {
		return fmt.Errorf("its sum is %s", sum)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verified[id] = true
	return nil
}

// Add keeps what an archive has as the layer of a set, and returns it. The error is ErrNoRoom
// where all there is is in use. One layer is added at a time.
func (s *Store) Add(ctx context.Context, key string, archive io.Reader, what Installed) (*Layer, error) {
	if !form.MatchString(key) {
		return nil, fmt.Errorf("%.80q is no key", key)
	}
	if err := s.prepare(); err != nil { // somebody may have removed it
		return nil, err
	}
	alone, err := filelock.Take(ctx, s.path(storeLock), true)
	if err != nil {
		return nil, err
	}
	defer alone.Release()
	if err := s.clearScratch(); err != nil {
		return nil, err
	}
	made, err := s.unpack(ctx, archive)
	if err != nil {
		return nil, errors.Join(err, s.clearScratch())
	}
	release, err := s.place(ctx, made)
	if err = errors.Join(err, s.clearScratch()); err != nil {
		if release != nil {
			release()
		}
		return nil, err
	}
	text, err := json.Marshal(record{Layer: made.id, BuiltAt: time.Now().UTC(), Installed: what})
	if err == nil {
		err = ondisk.WriteFile(s.recordPath(key), text, 0o600)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("keep which layer a set of packages has: %w", err)
	}
	return &Layer{ID: made.id, Installed: what, release: release}, nil
}

// unpacked is a layer that has no place yet.
type unpacked struct {
	id, dir string
	bytes   int64
}

// limits of one layer.
func (s *Store) limits() layers.Limits {
	return layers.Limits{Entries: 200_000, Bytes: s.o.Bytes, Names: 64 << 20}
}

// unpack makes a directory of an archive.
func (s *Store) unpack(ctx context.Context, archive io.Reader) (unpacked, error) {
	contents, dir := s.path(scratchName, "contents"), s.path(scratchName, "layer")
	if err := os.Mkdir(contents, 0o700); err != nil {
		return unpacked{}, err
	}
	layer, err := layers.Unpack(ctx, archive, contents, s.limits())
	if err != nil {
		return unpacked{}, err
	}
	tree, err := layers.Merge(ctx, []*layers.Layer{layer}, s.limits())
	if err != nil {
		return unpacked{}, err
	}
	if _, err := tree.Write(ctx, dir); err != nil {
		return unpacked{}, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return unpacked{}, err
	}
	id, bytes, err := sumOf(ctx, dir)
	if err != nil {
		return unpacked{}, err
	}
	return unpacked{id, dir, bytes}, syncAll(dir)
}

// place puts a layer where sandboxes find it, and holds it. The caller has the store alone.
func (s *Store) place(ctx context.Context, made unpacked) (release func(), err error) {
	if err := s.collect(made.bytes); err != nil {
		return nil, err
	}
	at := s.path(layersName, made.id)
	if _, err := os.Lstat(at); err == nil {
		if release, err := s.Hold(ctx, made.id); !errors.Is(err, fs.ErrNotExist) {
			return release, err // the same packages, for another set
		}
		if err := os.Rename(at, s.path(scratchName, "broken")); err != nil {
			return nil, err
		}
	}
	// Its size is there before it is.
	if err := os.WriteFile(s.path(usesName, made.id), []byte(strconv.FormatInt(made.bytes, 10)), 0o600); err != nil {
		return nil, err
	}
	if err := ondisk.Rename(made.dir, at); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.verified[made.id] = true
	s.mu.Unlock()
	return s.hold(made.id)
}

// syncAll has what was written to a directory's file system on the disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}

// Key makes a key of a sum.
func Key(sum [32]byte) string { return hex.EncodeToString(sum[:]) }
