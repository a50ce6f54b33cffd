package sdk

import (
	"context"
	"time"
)

// Pauser is implemented by providers that can freeze an instance. Both methods
// are idempotent and return CodeNotFound for an unknown instance.
type Pauser interface {
	// Pause freezes every process; memory and files stay, wherever the provider keeps them. The broker pauses no
	// instance with an execution in progress, and starts none in a paused one; a
	// provider that sees one answers CodeConflict. A command that a pause stops is
	// running before, meanwhile and after it. Who follows a command or watches files
	// meanwhile goes on afterwards, or is told CodeConflict.
	Pause(ctx context.Context, instanceID string) error
	// Resume lets every process go on where it was, and returns when they do.
	Resume(ctx context.Context, instanceID string) error
}

// PauseReleaser is implemented by Pausers whose paused instances may hold no memory: they are
// written down and go on from there.
type PauseReleaser interface {
	Pauser
	// PauseReleasing is Pause, and the broker calls it in the place of that. released says that
	// the instance holds no memory of the machine and no place that a running one could have,
	// until Resume, which may find that there is no room: CodeQuotaExceeded, and it stays
	// paused. The tenant's quota of paused instances counts it then, and not that of
	// instances. False is for one that is only frozen. Of one that is paused already it says
	// the same again.
	PauseReleasing(ctx context.Context, instanceID string) (released bool, err error)
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
