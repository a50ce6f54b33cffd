package store

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// Bucket names a set of records. Open makes all that there are.
type Bucket string

// The buckets, by the package that owns their records.
const (
	// Instances has one record for each instance that was asked for and whose
	// end is not known (broker/instance/journal).
	Instances Bucket = "instances"
	// Ended has the instances whose end their owners may ask about for a while
	// (broker/instance/journal).
	Ended Bucket = "ended"
	// Answers has what requests with an Idempotency-Key were answered
	// (broker/idempotency).
	Answers Bucket = "answers"
	// AnswersByAge has the keys of Answers in the order of their time.
	AnswersByAge Bucket = "answers_by_age"
	// Usage has what tenants have used of their quotas (broker/quota).
	Usage Bucket = "usage"
	// UsageLog has up to which line of the audit log Usage has what effects have noted
	// there (broker/quota).
	UsageLog Bucket = "usage_log"

	// about is the store's own.
	about Bucket = "about"
)

func buckets() []Bucket {
	return []Bucket{about, Instances, Ended, Answers, AnswersByAge, Usage, UsageLog}
}

// Of returns the bucket in a transaction of its store.
func (b Bucket) Of(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte(b)) }

// Put writes a record as JSON: a file that somebody has to look into at night can
// be read, and fields may come and go without a new schema.
func Put(tx *bbolt.Tx, bucket Bucket, key string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record %q of %s: %w", key, bucket, err)
	}
	return bucket.Of(tx).Put([]byte(key), withSum(bucket, key, value))
}

// Get reads a record that Put wrote into the value that record points to, and says
// whether there is one.
func Get(tx *bbolt.Tx, bucket Bucket, key string, record any) (found bool, err error) {
	value := bucket.Of(tx).Get([]byte(key))
	if value == nil {
		return false, nil
	}
	return true, decode(bucket, key, value, record)
}

// Delete removes a record; that there is none is no error.
func Delete(tx *bbolt.Tx, bucket Bucket, key string) error {
	return bucket.Of(tx).Delete([]byte(key))
}

// Each calls visit for the records of a bucket in the order of their keys, until
// visit returns an error. A record that cannot be read is passed with the error
// why. The bucket must not be changed meanwhile.
func Each[T any](tx *bbolt.Tx, bucket Bucket, visit func(key string, record T, err error) error) error {
	return bucket.Of(tx).ForEach(func(k, v []byte) error {
		var record T
		key := string(k)
		err := decode(bucket, key, v, &record)
		return visit(key, record, err)
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
