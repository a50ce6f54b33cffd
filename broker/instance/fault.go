package instance

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Fault is an error with the provider and the instance that it concerns.
type Fault struct {
	Provider string
	// InstanceID is empty when there is no instance yet.
	InstanceID string
	// Begun means that the provider was asked: what was to be done may have been.
	Begun bool
	Err   error
	// Tried are the providers that were asked in vain.
	Tried []Tried

	// elsewhere means that it concerns this provider alone, which has made nothing:
	// another may be asked.
	elsewhere bool
	// spilled means that it was full, and might have had room later.
	spilled bool
	// ambiguous is the creation of which nobody knows what it has made; nil if there is
	// none.
	ambiguous *registry.Entry
}

// HasBegun is Begun, for the API, which keeps such an answer for an Idempotency-Key.
func (f *Fault) HasBegun() bool { return f.Begun }

// Error says what happened and where.
func (f *Fault) Error() string {
	if f.InstanceID != "" {
		return fmt.Sprintf("instance %s: %v", f.InstanceID, f.Err)
	}
	return fmt.Sprintf("provider %s: %v", f.Provider, f.Err)
}

// Unwrap returns what happened.
func (f *Fault) Unwrap() error { return f.Err }

// errNoAnswer is why the context of a call ends whose provider takes too long.
var errNoAnswer = errors.New("the provider does not answer")

// errShuttingDown is what waits and executions end with when the broker stops.
var errShuttingDown = errors.New("the broker is shutting down")

func shuttingDown() error {
	return sdk.Errorf(sdk.CodeUnavailable, "%w", errShuttingDown)
}

// providerCall is a call of a provider that has failed, with what its failure means.
type providerCall struct {
	label string
	// caller is the context of who asked; nil where that does not end the call.
	caller context.Context
	// ctx is the context of the call. It ends with errNoAnswer when the provider takes
	// too long.
	ctx context.Context
	// late is told in the latter case, and broken when the provider has ended the call as
	// if its context had ended; nil where that cannot be.
	late, broken error
}

// ended is the failure in words where the provider has not answered: the broker, the
// caller or the time has ended the call, or it was not even made. Else it is nil.
func (c providerCall) ended(err error) error {
	switch {
	case errors.Is(context.Cause(c.ctx), errShuttingDown):
		return shuttingDown()
	case effect.Refused(err):
		return err
	case c.late != nil && errors.Is(context.Cause(c.ctx), errNoAnswer):
		return c.late
	case c.caller != nil && c.caller.Err() != nil:
		return c.caller.Err()
	case c.broken != nil && brokenOff(err):
		return c.broken
	default:
		return nil
	}
}

// told is the one place that puts the failure of a provider's call into words for who
// asked. What it hides stays in the chain, behind the public error, for the log.
func (c providerCall) told(err error) error {
	if ended := c.ended(err); ended != nil {
		return ended
	}
	code := sdk.CodeOf(err)
	public := code.FromProvider()
	if public == code {
		return err
	}
	return fmt.Errorf("%w (%w)", sdk.Errorf(public, "provider %q has trouble with its own back end; the operator finds more in the broker's log", c.label), err)
}

// withoutEffect reports whether whoever failed knows that nothing has happened.
func withoutEffect(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.NoEffect
}

// faultOf is the failure of what concerns an instance.
func faultOf(e *registry.Entry, err error) error {
	return &Fault{Provider: e.Label(), InstanceID: e.ID().String(), Err: err}
}

// begunFault is faultOf for what the provider was asked to do. It does nothing of what it
// refuses, and was not even asked where the audit log refused.
func begunFault(e *registry.Entry, err error) error {
	begun := !refusal(sdk.CodeOf(err)) && !effect.Refused(err) && !withoutEffect(err)
	return &Fault{Provider: e.Label(), InstanceID: e.ID().String(), Begun: begun, Err: err}
}

// refusal reports whether a code says that the provider has refused to do something in an
// instance.
func refusal(code sdk.Code) bool {
	switch code {
	case sdk.CodeNotFound, sdk.CodeConflict, sdk.CodeInvalidRequest, sdk.CodeNotSupported:
		return true
	default:
		return false
	}
}
