// Package records keeps what a provider must know when its process is another one, and
// the service cannot keep for it: one JSON file for each name, in the state directory.
// What a record says, and when it is no use any more, is for the provider.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

const suffix = ".json"

// Store has records of one kind. It may be used by several goroutines.
type Store[T any] struct {
	dir string
	mu  sync.Mutex
	all map[string]T
}

// Open reads the records of a kind below a state directory, and takes over those of
// abandoned ones (sdk.ConfigureRequest). A file that is no record is left alone: it was
// being written when a process ended.
func Open[T any](kind, dir string, abandoned []string) (*Store[T], error) {
	s := &Store[T]{dir: filepath.Join(dir, kind)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of records: %w", err)
	}
	if err := ondisk.RemoveAbandoned(s.dir); err != nil {
		return nil, fmt.Errorf("remove drafts of records: %w", err)
	}
	own, err := read[T](s.dir)
	if err != nil {
		return nil, err
	}
	s.all = own
	for _, from := range abandoned {
		found, err := read[T](filepath.Join(from, kind))
		if err != nil {
			return nil, err
		}
		for name, record := range found {
			if _, known := s.all[name]; known {
				continue // its own is the newer one
			}
			if err := s.Put(name, record); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// read reads a directory; one that is not there has no records.
func read[T any](dir string) (map[string]T, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the records: %w", err)
	}
	found := map[string]T{}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), suffix)
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a record: %w", err)
		}
		var record T
		if json.Unmarshal(text, &record) == nil {
			found[name] = record
		}
	}
	return found, nil
}

// Get returns a record. What is in it is not to be changed.
func (s *Store[T]) Get(name string) (record T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, ok = s.all[name]
	return record, ok
}

// All returns all records by their names.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all)
}

// Put writes a record, whole or not at all. It is on disk when Put returns.
func (s *Store[T]) Put(name string, record T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(name, record)
}

// Change writes a record anew if it is still there.
func (s *Store[T]) Change(name string, change func(T) T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, ok := s.all[name]
	if !ok {
		return nil
	}
	return s.write(name, change(record))
}

// write needs s.mu.
func (s *Store[T]) write(name string, record T) error {
	if name == "" || filepath.Base(name) != name || name[0] == '.' {
		return fmt.Errorf("%.100q cannot be the name of a record", name)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	if err := ondisk.WriteFile(filepath.Join(s.dir, name+suffix), text, 0o600); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	s.all[name] = record
	return nil
}

// Remove removes a record. One that is not there is a success.
func (s *Store[T]) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[name]; !ok {
		return nil
	}
	delete(s.all, name)
	if err := os.Remove(filepath.Join(s.dir, name+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a record: %w", err)
	}
	return nil
}
