package instance

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// interruptRetry is how soon a provider is asked again that does not know
	// the execution yet: an interrupt may overtake it.
	interruptRetry = 20 * time.Millisecond
	// interruptBound is how long after an interrupt an execution may go on
	// before its call is ended.
	interruptBound = sdk.InterruptGrace + answerGrace
)

// errInterrupted is why a call ends whose provider did not interrupt it.
var errInterrupted = errors.New("the execution was interrupted")

var executionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// running is an execution from when it was asked for until it has ended. The
// fields below the line are guarded by Service.mu.
type running struct {
	key executionKey
	// quota is the leave to run it; nil before it has one.
	quota *quota.Execution

	// ---
	entry       *entry                  // where it runs; nil as long as that is not known
	ctx         context.Context         // of its call
	stop        context.CancelCauseFunc // ends the call
	provider    sdk.Interrupter         // nil if it cannot interrupt
	interrupted bool
}

// executionKey names an execution: those of one tenant that are in progress
// differ.
type executionKey struct{ tenant, id string }

// enroll makes an execution known, under the name that its caller chose or one of
// the service's. The caller of enroll must call leave.
func (s *Service) enroll(who tenant.Tenant, id string) (*running, error) {
	if id == "" {
		id = "x-" + randomName()
	} else if !executionName.MatchString(id) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "execution_id", "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	r := &running{key: executionKey{who.Name, id}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[r.key] != nil {
		return nil, sdk.FieldErrorf(sdk.CodeConflict, "execution_id", "an execution of that name is in progress")
	}
	s.running[r.key] = r
	return r, nil
}

func (s *Service) leave(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, r.key)
}

// begins records where an execution runs, with what ends its call.
func (s *Service) begins(ctx context.Context, stop context.CancelCauseFunc, r *running, e *entry, t target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.entry, r.ctx, r.stop, r.provider = e, ctx, stop, nil
	if slices.Contains(e.provider.Description().Capabilities, sdk.CapabilityInterrupt) {
		r.provider, _ = t.ready.(sdk.Interrupter)
	}
	if e.stopped != "" { // since this execution was let in
		stop(errKilled)
	}
	if r.interrupted { // when it was about to run in an instance that proved to be gone
		stop(errInterrupted)
	}
}

// Interrupt ends an execution of the tenant as Ctrl-C would. It returns when that
// has begun; what became of the execution is told to its own caller. Interrupting
// it again does nothing. The error is SB013, for an execution that is not in
// progress in that instance.
func (s *Service) Interrupt(who tenant.Tenant, instanceID, executionID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[executionKey{who.Name, executionID}]
	if r == nil || r.entry == nil || r.entry.id.String() != instanceID {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is in progress in this instance")
	}
	if r.interrupted {
		return nil
	}
	r.interrupted = true
	ctx, stop, provider, id := r.ctx, r.stop, r.provider, r.entry.instance.ID
	// The execution is counted in calls, which Shutdown waits for before it waits
	// for tasks.
	s.tasks.Go("interrupt", func() {
		if provider != nil && interrupt(ctx, provider, id, executionID) == nil {
			select { // it ends by itself, or the provider sees to it
			case <-ctx.Done():
			case <-time.After(interruptBound):
			}
		}
		stop(errInterrupted)
	})
	return nil
}

// interrupt asks the provider until it knows the execution.
func interrupt(ctx context.Context, provider sdk.Interrupter, instanceID, executionID string) error {
	ctx, cancel := context.WithTimeout(ctx, interruptBound)
	defer cancel()
	for {
		err := provider.Interrupt(ctx, instanceID, executionID)
		if sdk.CodeOf(err) != sdk.CodeNotFound {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interruptRetry):
		}
	}
}
