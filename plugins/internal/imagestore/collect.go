package imagestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/filelock"
)

// Collect removes what nobody wants and nobody uses. It does nothing while a process
// builds.
func (s *Store) Collect() error {
	alone, err := filelock.Try(s.path(storeLock), true)
	if alone == nil || err != nil {
		return err
	}
	defer alone.Release()
	// Nobody builds: what lies there was left by a process that is gone.
	errs := removeBut(s.path(scratchName), nil)
	wanted := map[string]bool{}
	owners, err := os.ReadDir(s.path(ownersName))
	if err != nil {
		return errors.Join(errs, err)
	}
	for _, owner := range owners {
		names, err := os.ReadDir(s.path(ownersName, owner.Name()))
		if err != nil {
			return errors.Join(errs, err)
		}
		for _, name := range names {
			wanted[name.Name()] = true
		}
	}
	images, err := os.ReadDir(s.path(imagesName))
	if err != nil {
		return errors.Join(errs, err)
	}
	needed := map[string]bool{}
	for _, e := range images {
		gone := false
		if !wanted[e.Name()] {
			gone, err = s.removeUnused(e.Name())
			errs = errors.Join(errs, err)
		}
		if gone {
			continue
		}
		image, err := s.load("sha256:" + e.Name())
		if err != nil {
			continue
		}
		for _, id := range image.LayerIDs {
			needed[digits(id)] = true
		}
	}
	// Steps that are old, and whose layers an image needs, are not forgotten.
	errs = errors.Join(errs, s.keptSteps(needed, time.Now()))
	return errors.Join(errs, s.removeLayers(needed), s.forgetDigests(needed))
}

// removeLayers removes layers that are not needed. They are moved away first: one that is
// half removed would be taken for one that is there.
func (s *Store) removeLayers(needed map[string]bool) error {
	entries, err := os.ReadDir(s.path(layersName))
	if err != nil {
		return err
	}
	var errs error
	for _, e := range entries {
		if needed[e.Name()] {
			continue
		}
		away := s.path(scratchName, "gone-"+e.Name())
		if err := os.Rename(s.path(layersName, e.Name()), away); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		errs = errors.Join(errs, os.RemoveAll(away))
	}
	return errs
}

// removeUnused removes an image unless somebody uses it.
func (s *Store) removeUnused(name string) (gone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := s.path(imagesName, name)
	l, err := filelock.Try(filepath.Join(dir, useLock), true)
	if l == nil || err != nil {
		return false, err
	}
	defer l.Release()
	// What is half removed is no image.
	if err := os.Remove(filepath.Join(dir, recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, os.RemoveAll(dir)
}

// removeBut removes what is in a directory and not needed.
func removeBut(dir string, needed map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs error
	for _, e := range entries {
		if !needed[e.Name()] {
			errs = errors.Join(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errs
}
