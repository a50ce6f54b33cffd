package sdk

import (
	"context"
	"time"
)

// Pauser is implemented by providers that can freeze an instance. Both methods
// are idempotent and return CodeNotFound for an unknown instance.
type Pauser interface {
	// Pause freezes every process; memory and files stay. The broker pauses no
	// instance with an execution in progress, and starts none in a paused one; a
	// provider that sees one answers CodeConflict. A command that a pause stops is
	// running before, meanwhile and after it. Who follows a command or watches files
	// meanwhile goes on afterwards, or is told CodeConflict.
	Pause(ctx context.Context, instanceID string) error
	// Resume lets every process go on where it was, and returns when they do.
	Resume(ctx context.Context, instanceID string) error
}

// TTLSetter is implemented by providers that destroy an instance by themselves
// at the end of CreateRequest.TTL.
type TTLSetter interface {
	// SetTTL moves that time to now plus ttl, and returns it. Return CodeNotFound for
	// an unknown instance. The broker keeps times of its own, and does not rely on it.
	SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (expiresAt time.Time, err error)
}

// Meter is implemented by providers that know what an instance uses.
type Meter interface {
	// InstanceMetrics measures now. It is called every second while somebody
	// watches, up to ten times if they want: keep it cheap. Return CodeNotFound
	// for an unknown instance, and CodeConflict while one that is being paused or
	// resumed cannot be measured: who watches is not bothered with that.
	InstanceMetrics(ctx context.Context, instanceID string) (InstanceMetrics, error)
}

// InstanceMetrics are what an instance uses. What is unknown is 0.
type InstanceMetrics struct {
	MeasuredAt time.Time
	// CPUTime since the instance was made, and CPULimit in processors.
	CPUTime  time.Duration
	CPULimit float64
	// Bytes.
	Memory, MemoryLimit int64
	Disk, DiskLimit     int64
	// Processes and threads.
	Processes, ProcessLimit int64
}
