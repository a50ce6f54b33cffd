package store

import "go.etcd.io/bbolt"

// OpenWith is Open for a later version, which has these migrations.
func OpenWith(path string, steps ...func(tx *bbolt.Tx) error) (*Store, error) {
	return open(path, Options{}, steps)
}

// InLine is how many updates wait for the writer.
func (s *Store) InLine() int { return len(s.updates) }
