package sdk

import (
	"encoding/json"
	"time"
)

// ExecuteRequest asks for one execution.
type ExecuteRequest struct {
	InstanceID string
	// ExecutionID names this execution among those that run in the instance. A
	// tenant may have chosen it: 1 to 64 of A-Z a-z 0-9 _ . -
	ExecutionID string
	Language    Language
	Code        string
	// Arguments for main, a JSON object. Nil means that none were given,
	// which is not the same as an empty object: see the contract in the
	// package documentation.
	Arguments json.RawMessage
	// Env is added to the instance's environment for this execution.
	Env map[string]string
	// Timeout is the wall-clock limit of the code. It is always positive.
	// Time spent waiting for an interpreter does not count.
	Timeout time.Duration
	// OutputLimit in bytes, for stdout and for stderr each. What exceeds it
	// is dropped and ExecuteResult.Truncated is set. It is always positive, and
	// bounds the result of main as well.
	OutputLimit int64
	// ContextID names a stateful interpreter of the instance to run in. Empty,
	// as it is for providers without Contexts, means a fresh one. With one,
	// Language is the context's or empty.
	ContextID string
	// Artifacts asks for artifacts. It is nil for providers that do not list
	// CapabilityArtifacts, and where nobody wants any.
	Artifacts *ArtifactLimits
}

// Output receives what an execution produces while it runs. Its methods may be
// called from several goroutines; each call blocks until the broker has room
// for more, and an error means that nobody listens any more.
type Output interface {
	// Stdout and Stderr take raw bytes in order, cut anywhere, at most
	// MaxOutputChunk at a time; the bytes are copied.
	Stdout(p []byte) error
	Stderr(p []byte) error
	// Artifact takes an artifact, one after the other.
	Artifact(a Artifact) error
}

// MaxOutputChunk is the most bytes in one call of Output's methods. The wire
// layer cuts longer ones.
const MaxOutputChunk = 256 << 10

// ExecuteResult is what became of the code.
type ExecuteResult struct {
	Status Status
	// ExitCode of the interpreter, 0 to 255; 128 plus the signal when one ended it.
	// It is 0 where Status is succeeded, and is not where it is failed: the broker
	// refuses a result that contradicts itself.
	ExitCode int
	// Result is the JSON that main returned; nil when nothing was called. One
	// above OutputLimit makes the execution fail.
	Result json.RawMessage
	// Duration is the wall-clock time that the code ran.
	Duration time.Duration
	// Truncated says that output above the limit was dropped.
	Truncated bool
	// PeakMemoryBytes of the code's own processes, 0 if unknown.
	PeakMemoryBytes int64
	// Detail says in a sentence why Status is not succeeded, where the exit
	// code and stderr do not.
	Detail string
	// Findings are what the provider's code policy objects to, in the order of
	// the code. They come with any status: a policy may be there to watch.
	// What exceeds MaxFindings is dropped.
	Findings []Finding
}

// Finding is a place in the code that a code policy objects to.
type Finding struct {
	// Line and Column count from 1, columns in characters; 0 if unknown.
	Line, Column int
	// Rule is a stable name by which an operator can allow it, such as
	// python.import.ctypes.
	Rule string
	// Message says in a few words what was found.
	Message string
}

// MaxFindings is the most findings in one result, and MaxFindingText the most
// bytes in each of a finding's texts; longer ones are cut.
const (
	MaxFindings    = 50
	MaxFindingText = 1 << 10
)

// Status says what became of an execution.
type Status string

// The values of Status.
const (
	StatusSucceeded   Status = "succeeded"     // exit code 0
	StatusFailed      Status = "failed"        // any other exit code, or main broke its contract
	StatusTimeout     Status = "timeout"       // killed at its time limit, SB005
	StatusOutOfMemory Status = "out_of_memory" // killed at its memory limit, SB006
	StatusBlocked     Status = "blocked"       // refused by the code policy, SB007
	StatusCancelled   Status = "cancelled"     // stopped on request
)

// Statuses lists all values of Status.
func Statuses() []Status {
	return []Status{StatusSucceeded, StatusFailed, StatusTimeout, StatusOutOfMemory, StatusBlocked, StatusCancelled}
}

// Code returns the error code that goes with a status: SB005, SB006 and SB007
// have one, the others give "".
func (s Status) Code() Code {
	switch s {
	case StatusTimeout:
		return CodeExecutionTimeout
	case StatusOutOfMemory:
		return CodeOutOfMemory
	case StatusBlocked:
		return CodeBlocked
	default:
		return ""
	}
}
