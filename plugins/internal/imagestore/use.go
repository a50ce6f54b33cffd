package imagestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/filelock"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// use is an image that this process uses, with how many do.
type use struct {
	lock  *filelock.Lock
	users int
}

// Keep has an image stay that there is, until Remove. Fs.ErrNotExist is the error for one that is
// not there.
func (s *Store) Keep(ctx context.Context, digest string) error {
	// Nothing is collected between the look and the note.
	shared, err := filelock.Take(ctx, s.path(storeLock), false)
	if err != nil {
		return err
	}
	defer shared.Release()
	if _, err := s.load(digest); err != nil {
		return err
	}
	if _, err := os.Lstat(s.wanted(digest)); err == nil {
		return nil // also where the disk is full by now
	}
	return s.want(digest)
}

// want notes that the owner wants an image.
func (s *Store) want(digest string) error {
	return ondisk.WriteFile(s.wanted(digest), nil, 0o600)
}

func (s *Store) wanted(digest string) string {
	return s.path(ownersName, ownerName(s.o.Owner), digits(digest))
}

// List returns what the owner wants.
func (s *Store) List() ([]*Image, error) {
	entries, err := os.ReadDir(s.path(ownersName, ownerName(s.o.Owner)))
	if err != nil {
		return nil, err
	}
	var list []*Image
	for _, e := range entries {
		if image, err := s.load("sha256:" + e.Name()); err == nil {
			list = append(list, image)
		}
	}
	return list, nil
}

// Use returns an image, which is not removed until release is called.
func (s *Store) Use(digest string) (image *Image, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	image, err = s.load(digest)
	if err != nil {
		return nil, nil, err
	}
	u := s.uses[digest]
	if u == nil {
		l, err := s.lockUse(image)
		if err != nil {
			return nil, nil, err
		}
		u = &use{lock: l}
		s.uses[digest] = u
	}
	u.users++
	return image, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.users--; u.users == 0 {
			u.lock.Release()
			delete(s.uses, digest)
		}
	}), nil
}

// lockUse locks an image that was loaded.
func (s *Store) lockUse(image *Image) (*filelock.Lock, error) {
	l, err := filelock.Try(filepath.Join(image.dir, useLock), false)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, fs.ErrNotExist // it is being removed
	}
	// Or it was being removed: the file that is locked is another one then.
	if _, err := s.load(image.Image); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Remove says that the owner does not want an image any more.
func (s *Store) Remove(_ context.Context, digest string) error {
	if !digestForm.MatchString(digest) {
		return nil
	}
	if err := os.Remove(s.wanted(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
