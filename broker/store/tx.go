package store

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// Tx is a transaction of a state, be it in a file or in a database. What it returns must be
// copied before the transaction ends.
type Tx interface {
	// Get returns the value of a key, nil if there is none.
	Get(bucket Bucket, key string) ([]byte, error)
	Put(bucket Bucket, key string, value []byte) error
	// Delete removes a key; that there is none is no error.
	Delete(bucket Bucket, key string) error
	// Scan calls visit in the order of the keys, from the one that is given or the next one
	// on, until visit wants no more or returns an error. The bucket must not be changed
	// meanwhile.
	Scan(bucket Bucket, from string, visit func(key string, value []byte) (more bool, err error)) error
	// Next returns the number behind the last one that it has returned for the bucket in a
	// transaction that was committed, beginning with 1.
	Next(bucket Bucket) (uint64, error)
	// Skip has Next go on behind a number.
	Skip(bucket Bucket, last uint64) error
	// OnCommit has a function called once the transaction is durable.
	OnCommit(then func())
}

// Put writes a record as JSON: a file that somebody has to look into at night can
// be read, and fields may come and go without a new schema.
func Put(tx Tx, bucket Bucket, key string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record %q of %s: %w", key, bucket, err)
	}
	return tx.Put(bucket, key, withSum(bucket, key, value))
}

// Get reads a record that Put wrote into the value that record points to, and says
// whether there is one.
func Get(tx Tx, bucket Bucket, key string, record any) (found bool, err error) {
	value, err := tx.Get(bucket, key)
	if value == nil || err != nil {
		return false, err
	}
	return true, decode(bucket, key, value, record)
}

// Delete removes a record; that there is none is no error.
func Delete(tx Tx, bucket Bucket, key string) error { return tx.Delete(bucket, key) }

// Each calls visit for the records of a bucket in the order of their keys, until
// visit returns an error. A record that cannot be read is passed with the error
// why. The bucket must not be changed meanwhile.
func Each[T any](tx Tx, bucket Bucket, visit func(key string, record T, err error) error) error {
	return tx.Scan(bucket, "", func(key string, value []byte) (bool, error) {
		var record T
		err := decode(bucket, key, value, &record)
		return true, visit(key, record, err)
	})
}

func decode(bucket Bucket, key string, value []byte, record any) error {
	err := checkSum(bucket, key, value)
	if err == nil {
		err = json.Unmarshal(value, record)
	}
	if err != nil {
		return fmt.Errorf("record %q of %s: %w", key, bucket, err)
	}
	return nil
}

// fileTx is a transaction of the file.
type fileTx struct{ tx *bbolt.Tx }

var _ Tx = fileTx{}

// InFile is a transaction of a state file that is open without a Store.
func InFile(tx *bbolt.Tx) Tx { return fileTx{tx} }

// Get implements Tx.
func (t fileTx) Get(bucket Bucket, key string) ([]byte, error) {
	return bucket.of(t.tx).Get([]byte(key)), nil
}

// Put implements Tx.
func (t fileTx) Put(bucket Bucket, key string, value []byte) error {
	return bucket.of(t.tx).Put([]byte(key), value)
}

// Delete implements Tx.
func (t fileTx) Delete(bucket Bucket, key string) error {
	return bucket.of(t.tx).Delete([]byte(key))
}

// Scan implements Tx.
func (t fileTx) Scan(bucket Bucket, from string, visit func(key string, value []byte) (bool, error)) error {
	cursor := bucket.of(t.tx).Cursor()
	for k, v := cursor.Seek([]byte(from)); k != nil; k, v = cursor.Next() {
		if more, err := visit(string(k), v); !more || err != nil {
			return err
		}
	}
	return nil
}

// Next implements Tx.
func (t fileTx) Next(bucket Bucket) (uint64, error) { return bucket.of(t.tx).NextSequence() }

// Skip implements Tx.
func (t fileTx) Skip(bucket Bucket, last uint64) error { return bucket.of(t.tx).SetSequence(last) }

// OnCommit implements Tx.
func (t fileTx) OnCommit(then func()) { t.tx.OnCommit(then) }
