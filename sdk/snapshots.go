package sdk

import (
	"context"
	"time"
)

// Snapshotter is implemented by providers that can keep an instance as it is at a moment,
// and make others that go on from there: see CreateRequest.Snapshot.
type Snapshotter interface {
	// Snapshot keeps the files of a running instance and, where Snapshot.Memory of the
	// answer says so, its processes in the middle of what they do. The instance runs on,
	// and its executions, contexts and commands notice no more than a short halt. A
	// second call with the same IdempotencyKey returns what the first one made.
	//
	//	error                              what it means
	//	CodeNotFound                       no such instance
	//	CodeConflict                       it is paused, or about to be paused or resumed
	//	CodeNotSupported                   the provider can, and not with this instance or on this machine; CapabilitySnapshots is set
	//	CodeQuotaExceeded                  larger than MaxBytes, or no room for it: nothing is kept
	//	any that Code.LeavesOpen           there may be a snapshot: the broker looks for its labels by ListSnapshots
	//
	// When ctx ends, Snapshot keeps nothing more, and the instance runs on all the same.
	Snapshot(ctx context.Context, req SnapshotRequest) (Snapshot, error)

	// DeleteSnapshot forgets a snapshot and frees all that it holds. Instances that were
	// made from it go on. Deleting one that does not exist is a success.
	DeleteSnapshot(ctx context.Context, snapshotID string) error

	// ListSnapshots returns every snapshot that carries the broker ID given to
	// Configure, and no other: as List does for instances.
	ListSnapshots(ctx context.Context) ([]Snapshot, error)
}

// SnapshotKeyBytes is the length of SnapshotRequest.Key and SnapshotSource.Key.
const SnapshotKeyBytes = 32

// SnapshotRequest says what to keep, and how.
type SnapshotRequest struct {
	InstanceID string
	// Labels to keep with the snapshot and to return from ListSnapshots: at least
	// LabelTenant, LabelSnapshot and LabelBroker.
	Labels map[string]string
	// IdempotencyKey names this snapshot, as that of CreateRequest names an instance.
	IdempotencyKey string
	// Key has SnapshotKeyBytes bytes and is the tenant's: what is kept on a disk of this
	// machine is encrypted with it, and of a snapshot whose key is gone nothing can be
	// read. A provider whose service keeps snapshots by its own means need not look at
	// it. It is never kept beside the snapshot, and never logged.
	Key []byte
	// Transient says that the snapshot is deleted within minutes, for a fork: it need not
	// outlive the plugin's process. Any other is there until DeleteSnapshot, for the process
	// after this one too, be it after a crash, a restart of the broker or an upgrade, whether
	// or not the provider is Ephemeral.
	Transient bool
	// MaxBytes is the most that the snapshot may take, as Snapshot.Bytes counts; 0 for
	// no bound. A larger one is CodeQuotaExceeded, and nothing of it stays.
	MaxBytes int64
}

// Snapshot is an instance as it was at a moment.
type Snapshot struct {
	// ID is the provider's own name for it, opaque to the broker. It is of the same form
	// as that of an Instance.
	ID string
	// Labels as they were asked for.
	Labels map[string]string
	// Template of the instance.
	Template  string
	CreatedAt time.Time
	// Bytes that it takes where it is kept; 0 if that is unknown.
	Bytes int64
	// Memory says that processes were kept with the files: interpreters with their
	// variables, and what runs in the background. Without it there are files only, and
	// an instance that is made of it has neither contexts nor commands.
	Memory bool
}

// SnapshotSource names the snapshot that an instance is made from.
type SnapshotSource struct {
	// ID is that of Snapshot.
	ID string
	// Key is the one that it was made with.
	Key []byte
}
