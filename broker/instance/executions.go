package instance

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
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

// What the calls of executions end with.
var (
	// errInterrupted: the provider did not interrupt it.
	errInterrupted = errors.New("the execution was interrupted")
	// errTenantRemoved: the instance was destroyed with its tenant.
	errTenantRemoved = errors.New("the tenant was removed during the execution")
	// errKilled: an administrator destroyed the instance.
	errKilled = errors.New("an administrator destroyed the instance during the execution")
)

var executionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// executions are those in progress, from when they were asked for until they have ended.
type executions struct {
	life *lifecycle
	mu   *sync.Mutex
	all  map[executionKey]*running
	in   map[*registry.Entry]map[*running]struct{}
}

// executionKey names an execution: those of one tenant that are in progress
// differ.
type executionKey struct{ tenant, id string }

// running is one execution. The fields below the line are guarded by executions.mu.
type running struct {
	key executionKey
	// quota is the leave to run it; nil before it has one.
	quota *quota.Execution

	// ---
	entry       *registry.Entry // where it runs; nil as long as that is not known
	sandbox     string          // the provider's own ID of that
	ctx         context.Context // of its call
	end         context.CancelCauseFunc
	provider    sdk.Interrupter // nil if it cannot interrupt
	interrupted bool
}

func newExecutions(life *lifecycle) executions {
	return executions{life: life, mu: &sync.Mutex{}, all: map[executionKey]*running{}, in: map[*registry.Entry]map[*running]struct{}{}}
}

// enroll makes an execution known, under the name that its caller chose or one of
// the service's. The caller of enroll must call leave.
func (x executions) enroll(who tenant.Tenant, id string) (*running, error) {
	if id == "" {
		id = "x-" + randomName()
	} else if !executionName.MatchString(id) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "execution_id", "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	r := &running{key: executionKey{who.Name, id}}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[r.key] != nil {
		return nil, sdk.FieldErrorf(sdk.CodeConflict, "execution_id", "an execution of that name is in progress")
	}
	x.all[r.key] = r
	return r, nil
}

func (x executions) leave(r *running) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, r.key)
	x.moveTo(r, nil)
}

func (x executions) moveTo(r *running, e *registry.Entry) {
	if delete(x.in[r.entry], r); len(x.in[r.entry]) == 0 {
		delete(x.in, r.entry)
	}
	if r.entry = e; e == nil {
		return
	}
	if x.in[e] == nil {
		x.in[e] = map[*running]struct{}{}
	}
	x.in[e][r] = struct{}{}
}

// begins records where an execution runs, with what ends its call.
func (x executions) begins(ctx context.Context, end context.CancelCauseFunc, r *running, e *registry.Entry, t target) {
	sandbox := e.Snapshot().Sandbox.ID
	x.mu.Lock()
	x.moveTo(r, e)
	r.sandbox, r.ctx, r.end, r.provider = sandbox, ctx, end, nil
	if slices.Contains(t.provider.Description().Capabilities, sdk.CapabilityInterrupt) {
		r.provider, _ = t.ready.(sdk.Interrupter)
	}
	if r.interrupted { // when it was about to run in an instance that proved to be gone
		end(errInterrupted)
	}
	x.mu.Unlock()
	// Who destroys an instance ends the executions that it finds here, after it has said
	// why.
	if e.Snapshot().StopReason != "" {
		end(errKilled)
	}
}

// stop ends the calls of the executions in an instance.
func (x executions) stop(e *registry.Entry, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for r := range x.in[e] {
		r.end(cause)
	}
}

// interrupt ends an execution of the tenant as Ctrl-C would.
func (x executions) interrupt(who tenant.Tenant, instanceID, executionID string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[executionKey{who.Name, executionID}]
	if r == nil || r.entry == nil || r.entry.ID().String() != instanceID {
		return sdk.Errorf(sdk.CodeNotFound, "no such execution is in progress in this instance")
	}
	if r.interrupted {
		return nil
	}
	r.interrupted = true
	ctx, end, provider, id := r.ctx, r.end, r.provider, r.sandbox
	// The execution is counted in calls, which Shutdown waits for before it waits
	// for tasks.
	x.life.tasks.Go("interrupt", func() {
		if provider != nil && interrupt(ctx, provider, id, executionID) == nil {
			select { // it ends by itself, or the provider sees to it
			case <-ctx.Done():
			case <-time.After(interruptBound):
			}
		}
		end(errInterrupted)
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

// Interrupt ends an execution of the tenant as Ctrl-C would. It returns when that
// has begun; what became of the execution is told to its own caller. Interrupting
// it again does nothing. The error is SB013, for an execution that is not in
// progress in that instance.
func (s *Service) Interrupt(who tenant.Tenant, instanceID, executionID string) error {
	return s.executions.interrupt(who, instanceID, executionID)
}
