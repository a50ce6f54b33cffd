package provider

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// reason is why a sandbox has ended.
type reason int

const (
	unexplained reason = iota
	destroyed          // somebody asked for it, or its time was over
	outOfMemory        // the host's kernel killed it for what it took
)

// reasonBound is how long it may take until a sandbox that answers no more has
// ended and the reason is known.
const reasonBound = 10 * time.Second

// endedBecause says why the sandbox of the instance has ended, the same to all who
// ask. An instance that is still known is taken back.
func (i *instance) endedBecause(ctx context.Context) reason {
	i.ended.Do(func() {
		if i.among.lookUp(i.ID) != i {
			i.reason = destroyed
			return
		}
		// The answer is for others too, who may have more patience.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reasonBound)
		defer cancel()
		oom := i.sandbox().OutOfMemory(ctx)
		switch known := i.among.lose(i); {
		case oom:
			i.reason = outOfMemory
		case !known:
			i.reason = destroyed
		default:
			i.logger.Warn("sandbox ended unexpectedly", "instance", i.ID, "stderr", i.sandbox().Stderr())
		}
	})
	return i.reason
}

// executionLost answers for an execution whose sandbox ended under it.
func (i *instance) executionLost(ctx context.Context, started time.Time) (sdk.ExecuteResult, error) {
	result := sdk.ExecuteResult{ExitCode: 137, Duration: time.Since(started)}
	switch i.endedBecause(ctx) {
	case outOfMemory:
		result.Status, result.Detail = sdk.StatusOutOfMemory, "the code used more memory than its sandbox has, and the sandbox was killed for it"
	case destroyed:
		result.Status, result.Detail = sdk.StatusCancelled, "the instance was destroyed while the code ran"
	default:
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox ended while the code ran")
	}
	return result, nil
}

// Lost implements guestcalls.Instance: it is the error of any other call whose sandbox ended under it.
func (i *instance) Lost(ctx context.Context) error {
	switch i.endedBecause(ctx) {
	case outOfMemory:
		return sdk.Errorf(sdk.CodeUnavailable, "the programs and files in the sandbox took more memory than it has, and the sandbox was killed for it: "+
			"create a new instance, and use less memory in it or ask the operator for more than %d MiB", i.sandbox().limits.MemoryMB)
	case destroyed:
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	default:
		return sdk.Errorf(sdk.CodeUnavailable, "the sandbox ended during the call")
	}
}
