package sdk

import (
	"context"
	"time"
)

// Interrupter is implemented by providers that can do to running code what
// Ctrl-C does in a terminal: Python sees a KeyboardInterrupt, other programs a
// SIGINT, and whatever they started in the foreground with them. For a provider
// without it the broker ends the context of Execute.
type Interrupter interface {
	// Interrupt tells the code and returns; it does not wait for its end. Code
	// that still runs InterruptGrace later is killed with its whole process
	// tree. Either way Execute returns StatusCancelled, with the exit code as
	// it ended and the output so far. A second Interrupt of the same execution
	// does nothing.
	//
	// Return CodeNotFound for an execution that is not running. The broker asks
	// again for a while, since its request may overtake that for the execution.
	Interrupt(ctx context.Context, instanceID, executionID string) error
}

// InterruptGrace is how long interrupted code may take to end by itself.
const InterruptGrace = time.Second
