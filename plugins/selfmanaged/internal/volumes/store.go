package volumes

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Bounds of a volume, in bytes. A smaller file system has hardly room for its own.
const (
	MinSize = 16 << 20
	MaxSize = 1 << 40
	// block is what sizes are rounded up to.
	block = 1 << 20
)

// Options of a Store.
type Options struct {
	// Dir holds the volumes, and outlives processes. Those of one broker and provider
	// alone are in it; it is made if it is missing.
	Dir string
	// MountDir belongs to this process; volumes are mounted below it.
	MountDir string
	// Total bounds the sizes of all volumes together, in bytes.
	Total int64
	// Owner is the user and group that files belong to.
	Owner int
	// InNamespace calls a function, on the thread and in the mount namespace that
	// sandboxes are started from. The namespace must end with the process.
	InNamespace func(do func() error) error
	Logger      hclog.Logger
}

// Store has the volumes of a directory.
type Store struct {
	// Files are those of volumes, by ID. Each call is made while the volume is in use:
	// Use.
	Files *localfiles.Files

	o    Options
	mkfs string
	user *user

	changing keylock.Locks[string] // by ID: mounting, unmounting and removing

	mu      sync.Mutex
	mounted map[string]*mounted // by ID
}

// The files of a volume. The lock is held, shared, by each process that has it mounted; by
// one alone that copies or removes it. The attaching lock is held while a loop device is
// looked for.
const (
	imageFile  = "image"
	recordFile = "volume.json"
	usedFile   = "used"
	lockFile   = "lock"
	attachFile = "attaching"
)

// Prefixes of directories that are no volumes yet, or not any more.
const (
	makingPrefix   = ".making-"
	removingPrefix = ".removing-"
)

// record is what is written of a volume.
type record struct {
	Labels    map[string]string `json:"labels"`
	Size      int64             `json:"size"`
	CreatedAt time.Time         `json:"created_at"`
}

// Open opens the directory and removes what an earlier process has begun and not ended. The
// caller owes a Close. The error says in one sentence what is missing.
func Open(o Options) (*Store, error) {
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		return nil, errors.New("there is no mkfs.ext4: install e2fsprogs")
	}
	if _, err := os.Stat(loopControl); err != nil {
		return nil, fmt.Errorf("there are no loop devices: load the kernel module loop (%w)", err)
	}
	for _, dir := range []string{o.Dir, o.MountDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &Store{o: o, mkfs: mkfs, mounted: map[string]*mounted{}}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	if s.user, err = newUser(o.Owner); err != nil {
		return nil, err
	}
	s.Files = localfiles.New(localfiles.Options{Directory: s.directory, Places: []string{"/"}, As: s.user.as})
	return s, nil
}

// Close ends what Open has begun. Nothing may be in use any more.
func (s *Store) Close() {
	s.user.close()
	_ = os.Remove(s.o.MountDir) // what else is in it belongs to nobody any more, and says so
}

// directory is the root of a volume in use.
func (s *Store) directory(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mounted[id]; m != nil {
		return rootPath(m.root), nil
	}
	return "", noSuchVolume("")
}

// sweep removes what is no volume, unless a process is at it.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(s.o.Dir, entry.Name())
		if !strings.HasPrefix(entry.Name(), makingPrefix) && !strings.HasPrefix(entry.Name(), removingPrefix) {
			continue
		}
		lock, err := lockPath(filepath.Join(dir, lockFile), unix.LOCK_EX)
		if errors.Is(err, errInUse) {
			continue
		}
		err = errors.Join(ignoreMissing(err), os.RemoveAll(dir))
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		if err != nil {
			return fmt.Errorf("remove what is left of a volume: %w", err)
		}
	}
	return nil
}

var volumeID = regexp.MustCompile(`^volume-[a-z2-7]{26}$`)

// Owns reports whether an ID has the form of a volume's.
func Owns(id string) bool { return volumeID.MatchString(id) }

// idOf makes the same ID of the same key, and a new one without.
func idOf(key string) string {
	if key == "" {
		return "volume-" + strings.ToLower(rand.Text())
	}
	sum := sha256.Sum256([]byte(key))
	return "volume-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
}

func (s *Store) dir(id string) string { return filepath.Join(s.o.Dir, id) }

func noSuchVolume(field string) error {
	return &sdk.Error{Code: sdk.CodeNotFound, Field: field, Message: "no such volume", NoEffect: true}
}

// Create makes a volume; see sdk.VolumeKeeper.
func (s *Store) Create(ctx context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	size := (req.Size + block - 1) / block * block
	switch {
	case req.Size < MinSize || req.Size > MaxSize:
		return sdk.Volume{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "size", "must be %d MiB to %d MiB", MinSize>>20, int64(MaxSize)>>20)
	case req.From != "" && !Owns(req.From):
		return sdk.Volume{}, noSuchVolume("from")
	}
	id := idOf(req.IdempotencyKey)
	done, err := s.changing.Take(ctx, id)
	if err != nil {
		return sdk.Volume{}, err
	}
	defer done()
	if v, err := s.read(id); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	making := filepath.Join(s.o.Dir, makingPrefix+id+"-"+randomWord())
	r := record{Labels: req.Labels, Size: size, CreatedAt: time.Now().UTC()}
	lock, err := s.begin(making, r)
	if err == nil {
		defer lock.Close()
		if req.From == "" {
			err = s.format(ctx, making, size)
		} else {
			err = s.copyOf(ctx, req.From, making, size)
		}
	}
	if err == nil {
		err = ondisk.SyncDir(making)
	}
	if err == nil {
		if err = os.Rename(making, s.dir(id)); errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
			_ = os.RemoveAll(making) // another process was faster
			return s.read(id)
		}
	}
	if err != nil {
		return sdk.Volume{}, errors.Join(err, os.RemoveAll(making))
	}
	if err := ondisk.SyncDir(s.o.Dir); err != nil {
		return sdk.Volume{}, err
	}
	return s.read(id)
}

// begin takes the room for a volume, in the directory that it is made in.
func (s *Store) begin(making string, r record) (lock *os.File, err error) {
	counting, err := waitForLock(filepath.Join(s.o.Dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer counting.Close()
	taken, err := s.taken()
	if err != nil {
		return nil, err
	}
	if taken+r.Size > s.o.Total {
		return nil, &sdk.Error{Code: sdk.CodeQuotaExceeded, NoEffect: true, Message: fmt.Sprintf(
			"the volumes of this provider have %d MiB left of %d, and %d are asked for", max(0, s.o.Total-taken)>>20, s.o.Total>>20, r.Size>>20)}
	}
	content, err := json.Marshal(r)
	if err == nil {
		err = os.Mkdir(making, 0o700)
	}
	if err == nil {
		lock, err = lockPath(filepath.Join(making, lockFile), unix.LOCK_EX)
	}
	if err == nil {
		err = writeFile(filepath.Join(making, recordFile), content)
	}
	if err == nil {
		err = reserve(filepath.Join(making, imageFile), r.Size)
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(making))
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		return nil, err
	}
	return lock, nil
}

// taken is the size of all volumes, of those too that are being made.
func (s *Store) taken() (int64, error) {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, entry := range entries {
		if r, err := readRecord(filepath.Join(s.o.Dir, entry.Name())); err == nil {
			sum += r.Size
		}
	}
	return sum, nil
}

// reserve makes the file of a file system, with all of its room.
func reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var full error
	err = raw.Control(func(fd uintptr) { full = unix.Fallocate(int(fd), 0, 0, size) })
	err = errors.Join(err, full, f.Close())
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &sdk.Error{Code: sdk.CodeQuotaExceeded, NoEffect: true, Message: "the disk of the volumes has no room for it"}
	case errors.Is(err, unix.EOPNOTSUPP):
		return sdk.Errorf(sdk.CodeCreateFailed, "the file system of volume_dir cannot reserve room (fallocate): use ext4, xfs or btrfs")
	}
	return err
}

// format makes the file system.
func (s *Store) format(ctx context.Context, dir string, size int64) error {
	cmd := exec.CommandContext(ctx, s.mkfs, "-q", "-F", "-m", "0", "-U", "random",
		"-E", fmt.Sprintf("nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=%d:%d", s.o.Owner, s.o.Owner),
		filepath.Join(dir, imageFile), fmt.Sprintf("%dk", size>>10))
	cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/"
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("mkfs.ext4: %w: %.500s", err, out)
	}
	// lost+found is for who repairs the file system, and is made again then.
	return s.mountOnce(dir, func(root string) error { return os.Remove(filepath.Join(root, "lost+found")) })
}

// Delete removes a volume, unless it is in use.
func (s *Store) Delete(ctx context.Context, id string) error {
	if !Owns(id) {
		return nil
	}
	done, err := s.changing.Take(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	lock, err := lockPath(filepath.Join(s.dir(id), lockFile), unix.LOCK_EX)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errInUse):
		return sdk.Errorf(sdk.CodeConflict, "the volume is in use")
	case err != nil:
		return err
	}
	defer lock.Close()
	removing := filepath.Join(s.o.Dir, removingPrefix+id+"-"+randomWord())
	if err := os.Rename(s.dir(id), removing); err != nil {
		return ignoreMissing(err)
	}
	return errors.Join(ondisk.SyncDir(s.o.Dir), os.RemoveAll(removing))
}

// List returns all volumes.
func (s *Store) List() ([]sdk.Volume, error) {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, err
	}
	var list []sdk.Volume
	for _, entry := range entries {
		if !Owns(entry.Name()) {
			continue
		}
		v, err := s.read(entry.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile
		case err != nil:
			return nil, err
		default:
			list = append(list, v)
		}
	}
	return list, nil
}

// read reads what is known of a volume.
func (s *Store) read(id string) (sdk.Volume, error) {
	r, err := readRecord(s.dir(id))
	if err != nil {
		return sdk.Volume{}, err
	}
	return sdk.Volume{ID: id, Labels: r.Labels, Size: r.Size, CreatedAt: r.CreatedAt, Used: s.used(id)}, nil
}

func readRecord(dir string) (r record, err error) {
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of a volume: %w", err)
	}
	return r, nil
}

// errInUse is why a lock cannot be had.
var errInUse = errors.New("the volume is in use")

// lockPath takes a lock, LOCK_SH or LOCK_EX, on a file that it makes if the directory is
// there. It ends with the file, or the process.
func lockPath(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errInUse
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// waitForLock takes a lock that nobody holds for long.
func waitForLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
	}
}

func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func randomWord() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
