package store

import "go.etcd.io/bbolt"

// OpenWith is Open for a later version, which has these migrations.
func OpenWith(path string, changes ...func(tx Tx) error) (*Store, error) {
	var steps []func(tx *bbolt.Tx) error
	for _, change := range changes {
		steps = append(steps, func(tx *bbolt.Tx) error { return change(fileTx{tx}) })
	}
	return open(path, Options{}, steps)
}

// InLine is how many updates wait for the writer.
func (s *Store) InLine() int { return s.line.Len() }

// NumberOf is the number of a transaction of the file.
func NumberOf(tx Tx) int { return tx.(fileTx).tx.ID() }
