package store

import (
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"
)

// schemaKey in the bucket about holds the number of the file's form.
const schemaKey = "schema"

// migrations bring a file from one form to the next: the first from 1 to 2. A
// migration is one transaction, so a broker that is killed in it begins it again.
// Fields that are added to records need none.
func migrations() []func(tx *bbolt.Tx) error { return nil }

// migrate brings the file to the form that the last of the steps leads to.
func (s *Store) migrate(steps []func(tx *bbolt.Tx) error) error {
	current := 1 + len(steps)
	version, err := s.schema()
	switch {
	case err != nil:
		return err
	case version == current:
		return s.change(makeBuckets) // a new bucket is no new form
	case version > current:
		return fmt.Errorf("the state file %s is of a newer broker (form %d, this one knows %d); use that version, or another directory", s.path, version, current)
	case version > 0:
		if err := s.keepCopy(version); err != nil {
			return err
		}
	}
	return s.change(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		if version > 0 {
			for _, step := range steps[version-1:] {
				if err := step(tx); err != nil {
					return fmt.Errorf("bring the state file %s from form %d to %d: %w", s.path, version, current, err)
				}
			}
		}
		return about.of(tx).Put([]byte(schemaKey), []byte(strconv.Itoa(current)))
	})
}

// schema reads the number; 0 for a file that is new.
func (s *Store) schema() (version int, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		bucket := about.of(tx)
		if bucket == nil {
			return nil
		}
		text := string(bucket.Get([]byte(schemaKey)))
		if version, err = strconv.Atoi(text); err != nil || version < 1 {
			return fmt.Errorf("the state file %s does not say of which form it is (%q)", s.path, text)
		}
		return nil
	})
	return version, err
}

// change is Update before there is a writer.
func (s *Store) change(change func(tx *bbolt.Tx) error) error {
	err := s.db.Update(change)
	if err != nil {
		return fmt.Errorf("prepare the state file %s: %w", s.path, err)
	}
	return nil
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, b := range Buckets() {
		if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
			return err
		}
	}
	return nil
}

// keepCopy leaves the file as it is beside it, for who wants the earlier version
// of the broker back.
func (s *Store) keepCopy(version int) error {
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.CopyFile(fmt.Sprintf("%s.form%d", s.path, version), 0o600)
	})
	if err != nil {
		return fmt.Errorf("copy the state file %s before it is changed: %w", s.path, err)
	}
	return nil
}
