package registry

import "fmt"

// State of an instance. The page docs/architecture.md shows the whole table; a test
// compares it with this one.
type State int

// The states.
const (
	// Unknown: an earlier process has left its record, and its provider has not said
	// yet whether it still has it.
	Unknown State = iota + 1
	// Orphaned: as Unknown, but nobody may ask for it any more. It is destroyed when
	// its provider lists it.
	Orphaned
	// Pending: its provider is being asked to make it.
	Pending
	// PendingDetached: as Pending, but its session has given it up and may have
	// another one.
	PendingDetached
	// Ambiguous: its creation has ended, and nobody knows whether the provider has it.
	Ambiguous
	// AmbiguousDetached: as Ambiguous, given up by its session.
	AmbiguousDetached
	// Recording: the provider has made it, and that is being written down.
	Recording
	// RecordingDetached: as Recording, given up by its session.
	RecordingDetached
	// Running: its owner may use it.
	Running
	// Pausing: the provider is being asked to freeze it.
	Pausing
	// Paused: it keeps its memory and takes no executions.
	Paused
	// Resuming: the provider is being asked to thaw it.
	Resuming
	// Draining: nobody finds it any more, and it is destroyed when the last of those who
	// use it has ended.
	Draining
	// Terminating: it is being destroyed.
	Terminating
	// Gone: the registry does not have it any more.
	Gone
)

var stateNames = map[State]string{
	Unknown: "unknown", Orphaned: "orphaned", Pending: "pending", PendingDetached: "pending, detached",
	Ambiguous: "ambiguous", AmbiguousDetached: "ambiguous, detached", Recording: "recording", RecordingDetached: "recording, detached",
	Running: "running", Pausing: "pausing", Paused: "paused", Resuming: "resuming",
	Draining: "draining", Terminating: "terminating", Gone: "gone",
}

// String is the name in the table.
func (s State) String() string { return stateNames[s] }

// Visible reports whether the owner finds the instance.
func (s State) Visible() bool { return s >= Running && s <= Resuming }

// MayBePaused reports whether its provider may have it frozen.
func (s State) MayBePaused() bool { return s >= Pausing && s <= Resuming }

// Creating reports whether the creation goes on.
func (s State) Creating() bool {
	return s == Pending || s == PendingDetached || s == Recording || s == RecordingDetached
}

// Unclear reports whether the creation has ended without a clear answer.
func (s State) Unclear() bool { return s == Ambiguous || s == AmbiguousDetached }

// Detached reports whether the session has given the creation up.
func (s State) Detached() bool {
	return s == PendingDetached || s == AmbiguousDetached || s == RecordingDetached
}

// Left reports whether an earlier process has left the instance, and no more is known.
func (s State) Left() bool { return s == Unknown || s == Orphaned }

// Decided reports whether it is known how the creation has ended, well or not.
func (s State) Decided() bool { return s >= Running }

// Event is what happens to an instance.
type Event int

// The events.
const (
	// Adopted: its provider lists what an earlier process has left.
	Adopted Event = iota + 1
	// AdoptedPaused is Adopted for one that was paused.
	AdoptedPaused
	// Retried: the provider is asked once more for what an earlier process intended.
	Retried
	// Detach: the session turns to another provider.
	Detach
	// Reclaim: nobody else could serve the session, which comes back.
	Reclaim
	// Made: the provider has made it.
	Made
	// Found: the provider lists what an ambiguous creation has made.
	Found
	// Failed: the creation has ended, and certainly has left nothing.
	Failed
	// Unclear: the creation has ended, and may have made something.
	Unclear
	// Recorded: the journal has it.
	Recorded
	// Unwanted: it was made, and nobody waits for it any more or the journal has not
	// taken it.
	Unwanted
	// PauseBegun, PauseDone and PauseFailed tell of a request to pause it, or of its time
	// that is over, where that has it paused.
	PauseBegun
	PauseDone
	PauseFailed
	// ResumeBegun, ResumeDone and ResumeFailed tell of a request to resume it.
	ResumeBegun
	ResumeDone
	ResumeFailed
	// Drain: its time is over, or it is not to be kept, and somebody uses it.
	Drain
	// Terminate: its time is over, somebody has destroyed it, or its last use has ended.
	Terminate
	// TenantRemoved: its owner is a tenant no more.
	TenantRemoved
	// Vanished: it is no more. Its destruction was confirmed, its provider does not
	// list it, or its provider is gone.
	Vanished
)

var eventNames = map[Event]string{
	Adopted: "adopted", AdoptedPaused: "adopted, paused", Retried: "retried", Detach: "detach", Reclaim: "reclaim",
	Made: "made", Found: "found", Failed: "failed", Unclear: "unclear", Recorded: "recorded", Unwanted: "unwanted",
	PauseBegun: "pause begun", PauseDone: "pause done", PauseFailed: "pause failed",
	ResumeBegun: "resume begun", ResumeDone: "resume done", ResumeFailed: "resume failed",
	Drain: "drain", Terminate: "terminate", TenantRemoved: "tenant removed", Vanished: "vanished",
}

// String is the name in the table.
func (e Event) String() string { return eventNames[e] }

// table is what may happen in each state. What it does not have is refused.
var table = map[State]map[Event]State{
	Unknown:           {Adopted: Running, AdoptedPaused: Paused, Retried: Pending, TenantRemoved: Orphaned, Vanished: Gone},
	Orphaned:          {Vanished: Gone},
	Pending:           {Made: Recording, Failed: Gone, Unclear: Ambiguous, Detach: PendingDetached, TenantRemoved: PendingDetached, Vanished: Gone},
	PendingDetached:   {Made: RecordingDetached, Failed: Gone, Unclear: AmbiguousDetached, Reclaim: Pending, TenantRemoved: PendingDetached, Vanished: Gone},
	Ambiguous:         {Found: Recording, Failed: Gone, Detach: AmbiguousDetached, TenantRemoved: AmbiguousDetached, Vanished: Gone},
	AmbiguousDetached: {Failed: Gone, Reclaim: Ambiguous, TenantRemoved: AmbiguousDetached, Vanished: Gone},
	Recording:         {Made: Recording, Failed: Gone, Recorded: Running, Unwanted: Terminating, TenantRemoved: RecordingDetached, Vanished: Gone},
	RecordingDetached: {Made: RecordingDetached, Failed: Gone, Unwanted: Terminating, TenantRemoved: RecordingDetached, Vanished: Gone},
	Running:           {PauseBegun: Pausing, Drain: Draining, Terminate: Terminating, TenantRemoved: Terminating, Vanished: Gone},
	Pausing:           {PauseDone: Paused, PauseFailed: Running, Drain: Draining, Terminate: Terminating, TenantRemoved: Terminating, Vanished: Gone},
	Paused:            {ResumeBegun: Resuming, Drain: Draining, Terminate: Terminating, TenantRemoved: Terminating, Vanished: Gone},
	Resuming:          {ResumeDone: Running, ResumeFailed: Paused, Drain: Draining, Terminate: Terminating, TenantRemoved: Terminating, Vanished: Gone},
	Draining:          {Terminate: Terminating, TenantRemoved: Draining, Vanished: Gone},
	Terminating:       {Terminate: Terminating, TenantRemoved: Terminating, Vanished: Gone},
	Gone:              {},
}

// IllegalTransition is an event that the state of an instance does not allow. It is a
// defect of the caller.
type IllegalTransition struct {
	State State
	Event Event
}

func (e *IllegalTransition) Error() string {
	return fmt.Sprintf("an instance that is %s cannot take the event %q", e.State, e.Event)
}

// Next returns the state that an event leads to.
func Next(s State, event Event) (State, error) {
	next, ok := table[s][event]
	if !ok {
		return s, &IllegalTransition{s, event}
	}
	return next, nil
}
