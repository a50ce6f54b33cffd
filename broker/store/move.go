package store

import (
	"context"
	"fmt"
)

// movedKey in the bucket about says whether all records of a file are there, or a part of them.
const movedKey = "moved"

const (
	allMoved  = "true"
	partMoved = "false"
)

// A piece is what Move writes in one transaction. It is bounded: in a database one has to be done
// before the lease of the broker ends, and a file may have gigabytes.
const (
	pieceRecords = 4096
	pieceBytes   = 4 << 20
)

// Move copies all records of a file into another state, once. It returns how many there are. It
// must have returned without an error before anybody uses the other state, which may have a part
// of the records otherwise (PartMoved): that is removed when it is called again. What the other state had
// before is replaced where it has the same keys.
func Move(ctx context.Context, from *Store, to State) (records int, err error) {
	done, err := moved(to)
	if err != nil || done == allMoved {
		return 0, err
	}
	if done == partMoved { // of a file that may have changed since
		if err := clearAll(ctx, to); err != nil {
			return 0, fmt.Errorf("remove what an earlier try has left: %w", err)
		}
	}
	if err := mark(ctx, to, partMoved, nil); err != nil {
		return 0, err
	}
	numbers := map[Bucket]uint64{}
	p := &pieces{ctx: ctx, to: to}
	if err := from.View(func(tx Tx) error {
		for _, b := range Buckets() {
			if b == about {
				continue
			}
			numbers[b] = b.of(tx.(fileTx).tx).Sequence()
			if err := tx.Scan(b, "", func(key string, value []byte) (bool, error) {
				return true, p.add(entry{bucket: b, key: key, value: append([]byte{}, value...)})
			}); err != nil {
				return err
			}
		}
		return p.write()
	}); err != nil {
		return 0, err
	}
	return p.records, mark(ctx, to, allMoved, numbers)
}

// PartMoved reports whether a state has a part of the records of a file alone, since Move did not
// come to its end.
func PartMoved(s State) (bool, error) {
	how, err := moved(s)
	return how == partMoved, err
}

func moved(s State) (how string, err error) {
	err = s.View(func(tx Tx) error {
		value, err := tx.Get(about, movedKey)
		how = string(value)
		return err
	})
	return how, err
}

func mark(ctx context.Context, s State, how string, numbers map[Bucket]uint64) error {
	return s.Update(ctx, func(tx Tx) error {
		for b, last := range numbers {
			if err := tx.Skip(b, last); err != nil {
				return err
			}
		}
		return tx.Put(about, movedKey, []byte(how))
	})
}

// entry is a record that is to be written, or removed.
type entry struct {
	bucket  Bucket
	key     string
	value   []byte
	removed bool
}

// pieces writes entries, as many at a time as are good for a transaction.
type pieces struct {
	ctx     context.Context
	to      State
	waiting []entry
	size    int
	records int
}

func (p *pieces) add(e entry) error {
	p.waiting = append(p.waiting, e)
	p.size += len(e.key) + len(e.value)
	if len(p.waiting) < pieceRecords && p.size < pieceBytes {
		return nil
	}
	return p.write()
}

// write writes those that wait.
func (p *pieces) write() error {
	piece := p.waiting
	if err := p.to.Update(p.ctx, func(tx Tx) error {
		for _, e := range piece {
			var err error
			if e.removed {
				err = tx.Delete(e.bucket, e.key)
			} else {
				err = tx.Put(e.bucket, e.key, e.value)
			}
			if err != nil {
				return fmt.Errorf("record %q of %s: %w", e.key, e.bucket, err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	p.records += len(piece)
	p.waiting, p.size = nil, 0
	return nil
}

// clearAll removes all records.
func clearAll(ctx context.Context, s State) error {
	for _, b := range Buckets() {
		if b == about {
			continue
		}
		var keys []string
		if err := s.View(func(tx Tx) error {
			keys = nil
			return tx.Scan(b, "", func(key string, _ []byte) (bool, error) {
				keys = append(keys, key)
				return true, nil
			})
		}); err != nil {
			return err
		}
		p := &pieces{ctx: ctx, to: s}
		for _, key := range keys {
			if err := p.add(entry{bucket: b, key: key, removed: true}); err != nil {
				return err
			}
		}
		if err := p.write(); err != nil {
			return err
		}
	}
	return nil
}
