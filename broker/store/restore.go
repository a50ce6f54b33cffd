package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/broker/store/boltfile"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Restoring says from what a state file is to be made again.
type Restoring struct {
	// From is a copy of which everything is taken, and nothing of the file that is
	// there. Empty takes what can be read of that, and what it lacks from the newest
	// copy beside it that is whole.
	From string
	// Empty begins with nothing.
	Empty bool
	// Finish is called in the one transaction that fills the new file.
	Finish []func(tx Tx) error
	// Now names the file that is moved aside.
	Now time.Time
}

// Restored says what became of it.
type Restored struct {
	// Aside is where the file is now that was there; empty if there was none.
	Aside string
	// Unreadable are the pieces of it that were lost, at most maxNamed.
	Unreadable []string
	// Copy is what was taken beside it; empty for none. CopyOf is its age.
	Copy   string
	CopyOf time.Time
	// Kept counts the records that were read from the file, Added those from the copy,
	// Dropped those that could not be read.
	Kept, Added map[Bucket]int
	Dropped     int
}

// maxNamed bounds how many lost pieces are named.
const maxNamed = 20

// Restore makes a state file anew. The one that is there is moved aside, whatever it is;
// nothing is removed. No broker may use the directory. The next broker that opens the file
// finds a Loss.
func Restore(path string, from Restoring) (Restored, error) {
	r := restoring{contents: map[Bucket]map[string][]byte{}, sequences: map[Bucket]uint64{}}
	r.done.Kept, r.done.Added = map[Bucket]int{}, map[Bucket]int{}
	if err := r.collect(path, from); err != nil {
		return r.done, err
	}
	next := path + ".restored"
	if err := r.write(next, from.Finish); err != nil {
		return r.done, fmt.Errorf("write the restored state file: %w", err)
	}
	gone, err := missing(path)
	if err != nil {
		return r.done, err
	}
	if !gone {
		r.done.Aside = path + from.Now.UTC().Format(".aside-20060102T150405")
		if err := os.Rename(path, r.done.Aside); err != nil {
			return r.done, err
		}
	}
	return r.done, ondisk.Rename(next, path)
}

type restoring struct {
	contents  map[Bucket]map[string][]byte
	sequences map[Bucket]uint64
	done      Restored
}

// collect reads what there is.
func (r *restoring) collect(path string, from Restoring) error {
	switch {
	case from.Empty:
		return nil
	case from.From != "":
		if _, err := Verify(from.From); err != nil {
			return err
		}
		if err := r.read(from.From, r.done.Added); err != nil {
			return err
		}
		return r.note(from.From)
	}
	fileErr := r.read(path, r.done.Kept)
	if errors.Is(fileErr, fs.ErrNotExist) {
		fileErr = errors.New("there is no state file")
	}
	for _, copied := range Copies(path) {
		if _, err := Verify(copied); err != nil {
			continue
		}
		if err := r.read(copied, r.done.Added); err != nil {
			return err
		}
		return r.note(copied)
	}
	if fileErr != nil {
		return fmt.Errorf("nothing can be read of %s (%w), and there is no copy beside it that is whole; name another one (--from FILE), or begin anew (--empty)", path, fileErr)
	}
	return nil
}

func (r *restoring) note(copied string) error {
	info, err := os.Stat(copied)
	if err != nil {
		return err
	}
	r.done.Copy, r.done.CopyOf = copied, info.ModTime()
	return nil
}

// read adds what a file has and nothing before it had.
func (r *restoring) read(path string, count map[Bucket]int) error {
	file, err := privatefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	found := map[Bucket]map[string][]byte{}
	err = boltfile.Salvage(file, info.Size(), func(bucket string, sequence uint64) {
		r.sequences[Bucket(bucket)] = max(r.sequences[Bucket(bucket)], sequence)
	}, func(bucket string, key, value []byte) error {
		b, name := Bucket(bucket), string(key)
		if hasRecords(b) && checkSum(b, name, value) != nil {
			r.done.Dropped++
			return nil //nolint:nilerr // it is counted
		}
		if found[b] == nil {
			found[b] = map[string][]byte{}
		}
		found[b][name] = value
		return nil
	}, func(lost error) {
		if len(r.done.Unreadable) < maxNamed {
			r.done.Unreadable = append(r.done.Unreadable, lost.Error())
		}
	})
	if err != nil {
		r.done.Unreadable = append(r.done.Unreadable, err.Error())
		return err
	}
	if !r.sameForm(found[about]) {
		return nil // what another version has written is not mixed with this
	}
	for b, records := range found {
		if r.contents[b] == nil {
			r.contents[b] = map[string][]byte{}
		}
		for key, value := range records {
			_, there := r.contents[b][key]
			if !there {
				count[b]++
			}
			// A start reads the audit log from there on: the records that come from a copy
			// lack what is behind the line of that copy, and those that do not are left alone.
			if !there || b == UsageLog {
				r.contents[b][key] = value
			}
		}
	}
	return nil
}

// sameForm reports whether a second file is of the form of the first.
func (r *restoring) sameForm(said map[string][]byte) bool {
	before, after := r.contents[about][schemaKey], said[schemaKey]
	return before == nil || after == nil || string(before) == string(after)
}

// write makes the new file, durable and verified.
func (r *restoring) write(path string, finish []func(tx Tx) error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := makeBuckets(tx); err != nil {
			return err
		}
		for _, b := range Buckets() {
			if err := r.fill(tx, b); err != nil {
				return err
			}
		}
		if about.of(tx).Get([]byte(schemaKey)) == nil {
			if err := about.of(tx).Put([]byte(schemaKey), []byte(strconv.Itoa(1+len(migrations())))); err != nil {
				return err
			}
		}
		for _, step := range finish {
			if err := step(fileTx{tx}); err != nil {
				return err
			}
		}
		if err := Delete(fileTx{tx}, about, lossKey); err != nil {
			return err
		}
		return NoteLoss(fileTx{tx}, "the state file was restored")
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	_, err = Verify(path)
	return err
}

func (r *restoring) fill(tx *bbolt.Tx, b Bucket) error {
	sequence := r.sequences[b]
	keys := make([]string, 0, len(r.contents[b]))
	for key := range r.contents[b] {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := b.of(tx).Put([]byte(key), r.contents[b][key]); err != nil {
			return err
		}
		if len(key) == 8 { // those of Ended are their numbers
			sequence = max(sequence, binary.BigEndian.Uint64([]byte(key)))
		}
	}
	if b != Ended {
		sequence = r.sequences[b]
	}
	return b.of(tx).SetSequence(sequence)
}
