// Package journal keeps the journal of instances (instance.Journal) in the state
// file: one record for each instance whose end is not known, and for a day what the
// owners of those that ended are told. What is to be written, and when, is decided
// in package instance; how a file becomes durable, in package store.
package journal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// Store is where the records are; *store.Store is it.
type Store interface {
	Update(ctx context.Context, change func(tx store.Tx) error) error
	View(read func(tx store.Tx) error) error
}

// Journal is an instance.Journal in a Store.
type Journal struct{ store Store }

var _ instance.Journal = Journal{}

// New returns a journal.
func New(s Store) Journal { return Journal{s} }

// Write implements instance.Journal.
func (j Journal) Write(ctx context.Context, r instance.Record) error {
	return j.store.Update(ctx, func(tx store.Tx) error {
		return store.Put(tx, store.Instances, r.ID.String(), r)
	})
}

// Amend implements instance.Journal.
func (j Journal) Amend(ctx context.Context, id instance.ID, change func(*instance.Record)) error {
	return j.store.Update(ctx, func(tx store.Tx) error {
		var r instance.Record
		found, err := store.Get(tx, store.Instances, id.String(), &r)
		if !found || err != nil {
			return err
		}
		change(&r)
		return store.Put(tx, store.Instances, id.String(), r)
	})
}

// End implements instance.Journal.
func (j Journal) End(ctx context.Context, ended ...instance.Ended) error {
	return j.store.Update(ctx, func(tx store.Tx) error {
		for _, e := range ended {
			if err := store.Delete(tx, store.Instances, e.ID.String()); err != nil {
				return err
			}
			if e.Reason == "" {
				continue
			}
			if err := remember(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// remember adds one that ended under the next number, and drops the oldest above the
// bound: numbers have no gaps, so the first and the last say how many there are.
func remember(tx store.Tx, e instance.Ended) error {
	last, err := tx.Next(store.Ended)
	if err != nil {
		return err
	}
	if err := store.Put(tx, store.Ended, string(binary.BigEndian.AppendUint64(nil, last)), e); err != nil {
		return err
	}
	var old []string
	err = tx.Scan(store.Ended, "", func(key string, value []byte) (bool, error) {
		kept := len(key) != 8 || last-binary.BigEndian.Uint64([]byte(key)) < registry.MaxTombstones && !outdated(value)
		if !kept {
			old = append(old, key)
		}
		return !kept, nil
	})
	for _, key := range old {
		err = errors.Join(err, tx.Delete(store.Ended, key))
	}
	return err
}

// outdated reports whether nobody is told any more. What cannot be read is not.
func outdated(value []byte) bool {
	var e instance.Ended
	return json.Unmarshal(value, &e) != nil || time.Since(e.At) > registry.TombstoneLife
}

// Load returns what the processes before this one wrote. A record that cannot be
// read is logged and dropped: its instance counts as unknown then, and is destroyed
// where it is found.
func (j Journal) Load(ctx context.Context, logger hclog.Logger) (past instance.Past, err error) {
	var damaged []string
	err = j.store.View(func(tx store.Tx) error {
		err := store.Each(tx, store.Instances, func(key string, r instance.Record, err error) error {
			if err == nil && r.ID.String() != key {
				err = fmt.Errorf("record %q of %s is that of %q", key, store.Instances, r.ID)
			}
			if err != nil {
				logger.Error("an instance is forgotten, since its record is damaged", "error", err)
				damaged = append(damaged, key)
				return nil
			}
			past.Records = append(past.Records, r)
			return nil
		})
		if err != nil {
			return err
		}
		return store.Each(tx, store.Ended, func(_ string, e instance.Ended, err error) error {
			if err == nil && time.Since(e.At) <= registry.TombstoneLife {
				past.Ended = append(past.Ended, e)
			}
			return nil //nolint:nilerr // nobody is told about an end that cannot be read
		})
	})
	if err != nil || len(damaged) == 0 {
		return past, err
	}
	return past, j.store.Update(ctx, func(tx store.Tx) error {
		if err := store.NoteLoss(tx, fmt.Sprintf("records of instances that could not be read: %d", len(damaged))); err != nil {
			return err
		}
		for _, key := range damaged {
			if err := store.Delete(tx, store.Instances, key); err != nil {
				return err
			}
		}
		return nil
	})
}
