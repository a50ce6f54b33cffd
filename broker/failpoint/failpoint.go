// Package failpoint names the steps between which a broker must be able to die
// without losing or doubling anything, and kills it there, so that e2e/chaos can
// prove it. In what is released there is nothing of it: Hit is empty unless the
// broker is built with the tag failpoints.
//
// A point belongs right behind the step that it is named for. A new step that
// changes what is on disk, or at a provider, gets a point of its own, in All.
package failpoint

// Point is a step of the broker.
type Point string

// The steps, in the order in which one request comes by them.
const (
	// KeyBegun: it is on disk that a request with an Idempotency-Key has begun.
	KeyBegun Point = "key.begun"
	// QuotaReserved: a request was granted what it needs, which is not on disk yet.
	QuotaReserved Point = "quota.reserved"
	// CreateIntended: it is on disk that an instance is about to be made.
	CreateIntended Point = "create.intended"
	// AuditBegun: it is in the audit log that an effect is about to happen.
	AuditBegun Point = "audit.begun"
	// QuotaNoted: so is what was reserved for it, or on disk by itself.
	QuotaNoted Point = "quota.noted"
	// AuditEnding: an effect has happened, which the audit log does not know yet.
	AuditEnding Point = "audit.ending"
	// AuditEnded: now it does.
	AuditEnded Point = "audit.ended"
	// CreateMade: the provider has made an instance, which is not on disk yet.
	CreateMade Point = "create.made"
	// CreateNoted: now it is.
	CreateNoted Point = "create.noted"
	// CreateAnswer: an instance is about to be told to who asked for it.
	CreateAnswer Point = "create.answer"
	// SnapshotIntended: it is on disk that a snapshot is about to be made.
	SnapshotIntended Point = "snapshot.intended"
	// SnapshotMade: the provider has made one, which is not on disk yet.
	SnapshotMade Point = "snapshot.made"
	// SnapshotNoted: now it is.
	SnapshotNoted Point = "snapshot.noted"
	// ForkMade: all copies of a fork are made, which is not on disk yet.
	ForkMade Point = "fork.made"
	// ForkNoted: now it is, and nobody was told.
	ForkNoted Point = "fork.noted"
	// ExecuteBegin and ExecuteEnd are around the provider's part of an execution.
	ExecuteBegin Point = "execute.begin"
	ExecuteEnd   Point = "execute.end"
	// QuotaSettled: an execution has given back what it did not take, which is not
	// on disk yet.
	QuotaSettled Point = "quota.settled"
	// KeyAnswer: the answer to a request with an Idempotency-Key is about to be kept.
	KeyAnswer Point = "key.answer"
	// KeyKept: it is on disk, and not sent yet.
	KeyKept Point = "key.kept"
	// DestroyBegin: nobody sees the instance any more, which the provider still has.
	DestroyBegin Point = "destroy.begin"
	// DestroyDone: the provider has destroyed it, which is not on disk yet.
	DestroyDone Point = "destroy.done"
	// DestroyNoted: now it is.
	DestroyNoted Point = "destroy.noted"
	// SnapshotEnding: it is on disk that a snapshot is to be deleted, which the provider
	// still has.
	SnapshotEnding Point = "snapshot.ending"
	// SnapshotDeleted: the provider has deleted it, which is not on disk yet.
	SnapshotDeleted Point = "snapshot.deleted"
	// StateCommit and StateCommitted are around a transaction of the state file, and
	// StateSync is where it waits for the disk.
	StateCommit    Point = "state.commit"
	StateSync      Point = "state.sync"
	StateCommitted Point = "state.committed"
	// AuditWrite and AuditWritten are around the writing of lines to the audit log, and
	// AuditSync is where it waits for the disk.
	AuditWrite   Point = "audit.write"
	AuditSync    Point = "audit.sync"
	AuditWritten Point = "audit.written"
	// ReconcileListed: a provider has said what it has.
	ReconcileListed Point = "reconcile.listed"
	// ReconcileAdopted: what an earlier process left is adopted, which is not on
	// disk yet.
	ReconcileAdopted Point = "reconcile.adopted"
	// ReconcileOrphan: an instance that nobody knows was destroyed.
	ReconcileOrphan Point = "reconcile.orphan"
)

// All lists the points.
func All() []Point {
	return []Point{
		KeyBegun, QuotaReserved, CreateIntended, AuditBegun, QuotaNoted, AuditEnding, AuditEnded, CreateMade, CreateNoted,
		CreateAnswer, SnapshotIntended, SnapshotMade, SnapshotNoted, ForkMade, ForkNoted, ExecuteBegin, ExecuteEnd, QuotaSettled, KeyAnswer, KeyKept, DestroyBegin, DestroyDone, DestroyNoted,
		SnapshotEnding, SnapshotDeleted,
		StateCommit, StateSync, StateCommitted, AuditWrite, AuditSync, AuditWritten, ReconcileListed, ReconcileAdopted, ReconcileOrphan,
	}
}

// Environment names the variable that says what happens at points: a list such as
// "create.made=kill:3,state.commit=delay:50ms". kill:3 kills the process with
// SIGKILL when it comes by for the third time; delay:50ms delays it each time.
const Environment = "SANDBOX_BROKER_FAILPOINTS"

// HasteEnvironment names the variable with a number by which Hasten divides.
const HasteEnvironment = "SANDBOX_BROKER_HASTE"
