package boltfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/store/boltfile"
)

// written is the content of a file in which bbolt has written and removed records.
func written(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	assert.NilError(t, err)
	for round := range 3 {
		assert.NilError(t, db.Update(func(tx *bbolt.Tx) error {
			large, err := tx.CreateBucketIfNotExists([]byte("large"))
			if err != nil {
				return err
			}
			small, err := tx.CreateBucketIfNotExists([]byte("small"))
			if err != nil {
				return err
			}
			for n := range 40 {
				if err := large.Put(fmt.Appendf(nil, "%0200d", n), make([]byte, 100*(n%5)+round)); err != nil {
					return err
				}
			}
			return errors.Join(small.Put([]byte("key"), []byte("value")), large.Delete(fmt.Appendf(nil, "%0200d", 7)))
		}))
	}
	assert.NilError(t, db.Close())
	content, err := os.ReadFile(path)
	assert.NilError(t, err)
	return content
}

func records(t testing.TB, content []byte) (n int, err error) {
	t.Helper()
	_, err = boltfile.Check(bytes.NewReader(content), int64(len(content)), func(string, []byte, []byte) error {
		n++
		return nil
	})
	return n, err
}

func TestWhatBboltWritesPasses(t *testing.T) {
	n, err := records(t, written(t))
	assert.NilError(t, err)
	assert.Equal(t, n, 40)
}

func TestAnErrorOfTheVisitorIsNoDamage(t *testing.T) {
	content, own := written(t), errors.New("enough")
	_, err := boltfile.Check(bytes.NewReader(content), int64(len(content)), func(string, []byte, []byte) error { return own })
	assert.ErrorIs(t, err, own)
	_, damage := errors.AsType[*boltfile.DamageError](err)
	assert.Assert(t, !damage)
}

// FuzzWhatPassesCanBeOpened changes bytes of a file: what Check lets pass, bbolt must be
// able to read and to write to, and Salvage ends with anything.
func FuzzWhatPassesCanBeOpened(f *testing.F) {
	whole := written(f)
	f.Add(uint32(0), []byte{1}, uint32(0))
	f.Add(uint32(4096*2+10), []byte{0, 0}, uint32(4096))
	f.Add(uint32(4096*5+16), []byte{0xff, 0xff, 0xff, 0xff}, uint32(1))
	f.Fuzz(func(t *testing.T, at uint32, change []byte, short uint32) {
		content := bytes.Clone(whole)
		copy(content[int(at)%len(content):], change)
		content = content[:len(content)-int(short)%len(content)]
		lost := 0
		_ = boltfile.Salvage(bytes.NewReader(content), int64(len(content)), nil,
			func(string, []byte, []byte) error { return nil }, func(error) { lost++ })
		n, err := records(t, content)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "db")
		assert.NilError(t, os.WriteFile(path, content, 0o600))
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, NoSync: true})
		assert.NilError(t, err)
		found := 0
		assert.NilError(t, db.Update(func(tx *bbolt.Tx) error {
			if err := tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(_, _ []byte) error {
					found++
					return nil
				})
			}); err != nil {
				return err
			}
			_, err := tx.CreateBucketIfNotExists([]byte("another"))
			return err
		}))
		assert.Equal(t, found, n)
		assert.NilError(t, db.Close())
	})
}
