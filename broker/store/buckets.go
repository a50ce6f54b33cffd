package store

import "go.etcd.io/bbolt"

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
	// Executions has the detached executions, and what became of them (broker/executions).
	Executions Bucket = "executions"
	// Webhooks has the reports that are to be delivered (broker/webhook).
	Webhooks Bucket = "webhooks"

	// Snapshots has one record for each snapshot that was asked for and whose end is not
	// known (broker/snapshot).
	Snapshots Bucket = "snapshots"

	// Volumes has one record for each volume whose removal is not confirmed, and for a
	// while of those where it is (broker/volume).
	Volumes Bucket = "volumes"

	// Templates has what the images of templates were found to be (broker/templates).
	Templates Bucket = "templates"

	// about is the store's own.
	about Bucket = "about"
)

// Buckets lists them all.
func Buckets() []Bucket {
	return []Bucket{about, Instances, Ended, Answers, AnswersByAge, Usage, UsageLog, Executions, Webhooks, Snapshots, Volumes, Templates}
}

// of returns the bucket in a transaction of its file.
func (b Bucket) of(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte(b)) }
