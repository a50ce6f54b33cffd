// Package supervise is what is known of a program that runs in a sandbox under a
// supervisor of ours. The services of sandboxes kill the process that they have started
// and not what it has started, and do not say why one was killed; so what they start is a
// small Python program, which starts the program proper, holds on to its whole tree of
// processes, has the time limit, and reports. The sandbox needs python3 for it.
//
// The supervisor is core.py and what stands behind it: package stream has the part for
// services that stream what a process prints, package place that for services that only
// run short commands. This package has the report, and what it means to the broker.
package supervise

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed core.py
var core string

// Program is the core of the supervisor, with what stands behind it.
func Program(rest ...string) string { return core + "\n\n" + strings.Join(rest, "\n\n") }

// Artifacts asks for the files that a program makes below artifacts/, and others.
type Artifacts struct {
	Files []string `json:"files"`
	// Most is how many are wanted; one more is told of.
	Most int `json:"most"`
}

// File is one that a program has made. Size is -1 if there is no such regular file.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Done says how a program ended.
type Done struct {
	// Exit is 128 plus the signal if one ended it.
	Exit int `json:"exit"`
	// Reason is why it was ended: see the constants.
	Reason string `json:"reason"`
	// Error says why it did not start: the field at fault, cwd or argv, and a reason.
	Error   string  `json:"error"`
	Seconds float64 `json:"seconds"`
	// Left counts processes that could not be killed.
	Left int `json:"left"`
	// Memory says that the kernel killed something meanwhile for want of memory.
	Memory bool `json:"memory"`
	// Kills is how many processes of the sandbox it has killed so ever.
	Kills int64 `json:"kills"`
	// Peak memory of the largest process, in bytes.
	Peak int64 `json:"peak"`
	// Ended is a time of Unix.
	Ended float64 `json:"ended"`
	Files []File  `json:"files"`
}

// The values of Done.Reason, beside "".
const (
	Timeout   = "timeout"
	Cancelled = "cancelled"
	// Output is that there was more of it than the sandbox keeps.
	Output = "output"
)

// Refusal is why a program could not be started; nil if it was.
func (d Done) Refusal() error {
	if d.Error == "" {
		return nil
	}
	field, why, _ := strings.Cut(d.Error, " ")
	return sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "the program cannot be started: %.200s", strings.ToLower(why))
}

// Settle adds to the result of an execution what its exit code does not say.
func (d Done) Settle(result *sdk.ExecuteResult) {
	switch {
	case d.Reason == Timeout:
		result.Status = sdk.StatusTimeout
	case d.Reason == Cancelled:
		result.Status = sdk.StatusCancelled
	case d.Memory && result.ExitCode != 0:
		result.Status = sdk.StatusOutOfMemory
	default:
		return
	}
	result.Result, result.Detail = nil, ""
}

// Command is what became of a command that was sent these signals, and its exit code,
// which is one of a process whatever the sandbox says.
func (d Done) Command(signals []int) (sdk.CommandState, int) {
	exit := d.Exit & 0xff
	switch {
	case d.Reason == Timeout:
		return sdk.CommandTimeout, exit
	case d.Reason == Cancelled, slices.Contains(signals, exit-128):
		return sdk.CommandCancelled, exit
	case d.Memory && exit != 0:
		return sdk.CommandOutOfMemory, exit
	case exit == 0:
		return sdk.CommandSucceeded, exit
	default:
		return sdk.CommandFailed, exit
	}
}
