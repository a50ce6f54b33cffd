package packagelayers

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/filelock"
)

// Collect removes what is too old, and what nobody finds any more. It does nothing while
// something is added.
func (s *Store) Collect() error {
	alone, err := filelock.Try(s.path(storeLock), true)
	if alone == nil || err != nil {
		return err
	}
	defer alone.Release()
	return errors.Join(s.clearScratch(), s.collect(0))
}

// clearScratch removes what was being made: by a process that is gone, since the caller has
// the store alone.
func (s *Store) clearScratch() error {
	entries, err := os.ReadDir(s.path(scratchName))
	if err != nil {
		return err
	}
	var errs error
	for _, e := range entries {
		errs = errors.Join(errs, os.RemoveAll(s.path(scratchName, e.Name())))
	}
	return errs
}

// set is a record, as far as it matters here.
type set struct {
	key, layer string
	used       time.Time
}

// collect removes what may be, until so many bytes more have room. The caller has the store
// alone.
func (s *Store) collect(room int64) error {
	if room > s.o.Bytes {
		return ErrNoRoom
	}
	needed := map[string]bool{}
	if s.o.Needed != nil {
		var err error
		if needed, err = s.o.Needed(); err != nil {
			return err
		}
	}
	sets, err := s.sets()
	if err != nil {
		return err
	}
	sizes, err := s.sizes()
	if err != nil {
		return err
	}
	found := map[string]int{} // by layer: the sets that have it
	for _, of := range sets {
		found[of.layer]++
	}
	var total int64
	for _, size := range sizes {
		total += size
	}
	drop := func(id string) error {
		if needed[id] || found[id] > 0 {
			return nil
		}
		gone, err := s.removeUnused(id)
		if gone {
			total -= sizes[id]
			delete(sizes, id)
		}
		return err
	}
	var errs error
	for _, id := range slices.Sorted(maps.Keys(sizes)) {
		errs = errors.Join(errs, drop(id))
	}
	for _, of := range sets { // the longest unused first
		if total+room <= s.o.Bytes {
			break
		}
		if err := s.forget(of.key); err != nil {
			return errors.Join(errs, err)
		}
		found[of.layer]--
		errs = errors.Join(errs, drop(of.layer))
	}
	if errs == nil && room > 0 && total+room > s.o.Bytes {
		return ErrNoRoom
	}
	return errs
}

// sets are those that may still be used, the longest unused first.
func (s *Store) sets() (all []set, err error) {
	entries, err := os.ReadDir(s.path(setsName))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		key, is := strings.CutSuffix(e.Name(), ".json")
		if !is || !form.MatchString(key) {
			continue // a draft, which ondisk removes
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := s.read(key)
		if err != nil {
			return nil, err
		}
		if r != nil {
			all = append(all, set{key, r.Layer, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b set) int { return a.used.Compare(b.used) })
	return all, nil
}

// sizes are what layers take of the disk, of whatever set.
func (s *Store) sizes() (map[string]int64, error) {
	entries, err := os.ReadDir(s.Dir())
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		text, err := os.ReadFile(s.path(usesName, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		sizes[e.Name()], _ = strconv.ParseInt(string(text), 10, 64) // one that has none is of no set either
	}
	return sizes, nil
}

// removeUnused removes a layer unless somebody uses it. It is moved away first: one that is
// half removed would be taken for one that is there.
func (s *Store) removeUnused(id string) (gone bool, err error) {
	path := s.path(usesName, id)
	l, err := filelock.Try(path, true)
	if l == nil || err != nil {
		return false, err
	}
	defer l.Release()
	away := s.path(scratchName, "gone-"+filepath.Base(id))
	if err := os.Rename(s.path(layersName, id), away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	s.mu.Lock()
	delete(s.verified, id)
	s.mu.Unlock()
	return true, errors.Join(os.RemoveAll(away), os.Remove(path))
}
