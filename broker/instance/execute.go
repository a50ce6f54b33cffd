package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// answerGrace is how much longer than its timeout an execution may take before
// the provider counts as not answering: it needs time to kill and to report.
const answerGrace = 5 * time.Second

// Execution is what became of code that was taken on.
type Execution struct {
	ID         string
	InstanceID string
	// Provider by label.
	Provider string
	// Routing says why it ran there; the zero value where the caller named the
	// instance.
	Routing        Routing
	Result         sdk.ExecuteResult
	Stdout, Stderr []byte
	Artifacts      []sdk.Artifact
}

// Execute runs code in an instance of the tenant. Errors carry SB009, SB010,
// SB013 or SB014; what the code did is no error. When ctx ends, so does the execution.
func (s *Service) Execute(ctx context.Context, who tenant.Tenant, id string, req ExecuteRequest) (Execution, error) {
	if err := s.begin(); err != nil {
		return Execution{}, err
	}
	defer s.calls.Done()
	if err := req.check(s.limits()); err != nil {
		return Execution{}, err
	}
	r, err := s.executions.enroll(who, req.ID)
	if err != nil {
		return Execution{}, err
	}
	defer s.executions.leave(r)
	e, err := s.registry.Hold(who.Name, id)
	if err != nil {
		return Execution{}, s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	defer s.release(e)
	provider := e.Snapshot().Provider
	if err := req.capable(provider); err != nil {
		return Execution{}, faultOf(e, err)
	}
	t, err := s.providers.offered(ctx, provider, routing.Wanted{Language: req.Language})
	if err != nil {
		return Execution{}, faultOf(e, err)
	}
	if t.Language == "" && len(req.Requirements) > 0 {
		if t.Language, err = languageOfContext(ctx, s.asked, e, t, req.ContextID); err != nil {
			return Execution{}, faultOf(e, err)
		}
	}
	if err := t.installs(req.Requirements); err != nil {
		return Execution{}, faultOf(e, err)
	}
	req.queued()
	grant, err := s.admission.admitExecution(ctx, who, req.Wait, req.Timeout)
	if err != nil {
		return Execution{}, err
	}
	defer grant.Release()
	req.taken()
	r.quota = grant.Execution
	return s.run(reserving(ctx, grant), r, e, t, req)
}

// Run takes the session's instance or makes one, runs the code in it, and
// destroys or keeps it. The destruction does not delay the answer, and comes
// after the end of the executions that others began in the instance.
func (s *Service) Run(ctx context.Context, who tenant.Tenant, req RunRequest) (_ Execution, err error) {
	create := CreateRequest{
		Session: req.Session, Template: req.Template, Language: req.Language, Provider: req.Provider, FrontDoor: req.FrontDoor, Wait: req.Wait,
	}
	if err := s.begin(); err != nil {
		return Execution{}, s.placing.stopping(ctx, who, create, err)
	}
	defer s.calls.Done()
	if err := req.check(s.limits()); err != nil {
		return Execution{}, err
	}
	if err := checkCreate(create, s.limits()); err != nil {
		return Execution{}, err
	}
	if create.turn, err = s.admission.newTurn(req.Wait); err != nil {
		return Execution{}, err
	}
	if err := s.placing.elsewhere(ctx, who, create.wanted(), req.Session, false); err != nil {
		return Execution{}, err
	}
	r, err := s.executions.enroll(who, req.ID)
	if err != nil {
		return Execution{}, err
	}
	defer s.executions.leave(r)
	req.queued()
	for {
		execution, lost, err := s.runOnce(ctx, who, r, create, req)
		if !lost {
			return execution, err
		}
	}
}

// runOnce does the work of Run. It says lost when the session's instance was
// gone already, which the provider knows: it may end an old one by itself. Nothing ran
// then, and the session gets a new one, as it would have a moment later.
func (s *Service) runOnce(ctx context.Context, who tenant.Tenant, r *running, create CreateRequest, req RunRequest) (execution Execution, lost bool, err error) {
	w := selector{tenant: who, session: req.Session, Wanted: routing.Wanted{Provider: req.Provider, Template: req.Template, Language: req.Language}}
	err = s.place(ctx, w, req.Wait, func(a *attempt) (err error) {
		execution, lost, err = s.runAt(ctx, a, r, create, req)
		return err
	})
	return execution, lost, err
}

// runAt does it with the provider of one attempt.
func (s *Service) runAt(ctx context.Context, a *attempt, r *running, create CreateRequest, req RunRequest) (execution Execution, lost bool, err error) {
	t, who := a.target, a.search.selector.tenant
	if err := req.capable(t.provider); err != nil {
		return Execution{}, false, a.unfit(err)
	}
	if err := s.installable(ctx, t, req.Requirements); err != nil {
		if s.providers.moved(a.search.selector, t.provider) {
			return Execution{}, false, registry.ErrMoved
		}
		return Execution{}, false, a.unfit(err)
	}
	keep := req.Session != ""
	if req.Keep != nil {
		keep = *req.Keep
	}
	create.oneShot, create.reuse, create.attempt = !keep, !keep && who.Reuse, *a
	if req.Session == "" {
		s.journal.settleFirst(ctx)
	}
	grant, err := s.admission.admitRun(ctx, who, t, create.turn, req, a.others)
	if err != nil {
		return Execution{}, false, a.refusedByQuota(err)
	}
	defer grant.Release()
	req.taken()
	r.quota, create.granted = grant.Execution, grant.Instance
	ctx = reserving(ctx, grant)
	creating := ctx
	if !keep {
		creating = effect.MadeFor(ctx, sdk.ExecuteRequest{ExecutionID: r.key.id, Language: t.Language, Code: req.Code, Env: req.Env})
	}
	e, created, err := s.creations.acquire(creating, who, t, create)
	if err != nil {
		return Execution{}, false, err
	}
	a.arrived()
	defer s.release(e)
	if !keep {
		defer e.Discard(false)
	}
	execution, err = s.run(ctx, r, e, t, req.ExecuteRequest)
	execution.Routing = e.Snapshot().Routing
	if !created {
		execution.Routing = a.routing.Onto(execution.Routing)
	}
	if created && sdk.CodeOf(err) == sdk.CodeNotSupported {
		e.Discard(true) // it was made for nothing
	}
	return execution, !created && sdk.CodeOf(err) == sdk.CodeNotFound && withoutEffect(err), err
}

// run executes code in an instance that the caller holds, and has it counted.
func (s *Service) run(caller context.Context, r *running, e *registry.Entry, t target, req ExecuteRequest) (Execution, error) {
	began := time.Now()
	ctx, part := span.Start(caller, "execution", span.Provider.String(e.Label()), span.Language.String(string(t.Language)))
	execution, err := s.runCode(ctx, r, e, t, req)
	part.SetAttributes(span.Status.String(string(execution.Result.Status)))
	span.End(part, sdk.CodeOf(err))
	s.observeExecution(caller, e, t, execution, time.Since(began), err)
	return execution, err
}

func (s *Service) runCode(caller context.Context, r *running, e *registry.Entry, t target, req ExecuteRequest) (Execution, error) {
	if err := e.BeginExecution(); err != nil {
		return Execution{}, faultOf(e, err)
	}
	defer e.EndExecution()
	ctx, stop := context.WithCancelCause(caller)
	defer stop(nil)
	defer context.AfterFunc(s.lifetime, func() { stop(errShuttingDown) })()
	if err := e.Snapshot().Permit.Cover(ctx, time.Now().Add(req.bound())); err != nil {
		return Execution{}, faultOf(e, err)
	}
	r.quota.Start()
	if ended, ready, err := s.installedFor(caller, ctx, stop, r, e, t, req); !ready {
		return ended, err
	}
	if req.Context != "" {
		id, err := s.contexts.of(ctx, e, t, req.ContextCwd)
		if err != nil {
			return Execution{}, faultOf(e, executionError(caller, ctx, e, req, err, false))
		}
		req.ContextID = id
	}
	clock := newClock(req.bound(), func() { stop(errNoAnswer) })
	defer clock.end()
	ctx = effect.WhenBegun(ctx, func() { clock.restart(req.bound()) })
	s.executions.begins(ctx, stop, r, e, t)

	execution := Execution{ID: r.key.id, InstanceID: e.ID().String(), Provider: e.Label()}
	if req.Listener != nil {
		if err := req.Listener.Started(s.lifetime, execution); err != nil {
			return Execution{}, faultOf(e, err)
		}
	}
	out := newOutput(s.lifetime, req.Listener, clock)
	failpoint.Hit(failpoint.ExecuteBegin)
	asked := sdk.ExecuteRequest{
		InstanceID:  e.Snapshot().Sandbox.ID,
		ExecutionID: execution.ID,
		Language:    t.Language,
		Code:        req.Code,
		Arguments:   req.Arguments,
		Env:         req.Env,
		Timeout:     req.Timeout,
		OutputLimit: s.limits().Output,
		ContextID:   req.ContextID,
		Artifacts:   req.artifacts(t.provider, s.limits().Artifacts),
	}
	result, err := t.ready.Execute(ctx, asked, out)
	if req.Context != "" && lacksContext(err) && !out.ran() { // it was deleted, or has ended
		if asked.ContextID, err = s.contexts.renew(ctx, e, t, req.ContextCwd, asked.ContextID); err == nil {
			result, err = t.ready.Execute(ctx, asked, out)
		}
	}
	failpoint.Hit(failpoint.ExecuteEnd)
	out.close(&execution)
	boundResult(&result)
	execution.Result = result
	if err == nil {
		return execution, nil
	}
	if status, detail, ok := resultOf(ctx, e, err); ok {
		execution.Result = sdk.ExecuteResult{Status: status, ExitCode: 128 + 9, Detail: detail}
		return execution, nil
	}
	err = executionError(caller, ctx, e, req, err, !withoutEffect(err))
	if sdk.CodeOf(err) == sdk.CodeNotFound {
		r.quota.Cancel() // the instance or the context was gone before
	}
	return Execution{}, begunFault(e, err)
}

// What clients' parsers of JSON can be expected to read: Python's stops at a thousand
// levels and at 4,300 digits, and fails for the whole answer.
const (
	maxResultDepth  = 100
	maxResultDigits = 1000
)

// boundResult makes a failure of a result that would keep clients from reading the
// answer. Code can write one itself. The result is known to be JSON.
func boundResult(r *sdk.ExecuteResult) {
	var detail string
	switch depth, digits := measure(r.Result); {
	case depth > maxResultDepth:
		detail = fmt.Sprintf("main returned JSON with %d levels; at most %d are allowed", depth, maxResultDepth)
	case digits > maxResultDigits:
		detail = fmt.Sprintf("main returned a number of %d characters; at most %d are allowed", digits, maxResultDigits)
	default:
		return
	}
	r.Result, r.Detail = nil, detail
	if r.Status == sdk.StatusSucceeded {
		r.Status, r.ExitCode = sdk.StatusFailed, max(r.ExitCode, 1)
	}
}

// measure returns how many arrays and objects are in one another, and how long the
// longest number is.
func measure(text json.RawMessage) (depth, digits int) {
	level, run := 0, 0
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		if c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || run > 0 && (c == 'e' || c == 'E') {
			run++
			digits = max(digits, run)
			continue
		}
		run = 0
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			level++
			depth = max(depth, level)
		case ']', '}':
			level--
		}
	}
	return depth, digits
}

// resultOf recognizes errors that tell what became of the code, which is a
// result and not a failure.
func resultOf(ctx context.Context, e *registry.Entry, err error) (sdk.Status, string, bool) {
	detail := "stopped by the provider"
	if coded, ok := errors.AsType[*sdk.Error](err); ok {
		detail = coded.Message
	}
	for _, status := range sdk.Statuses() {
		if code := status.Code(); code != "" && code == sdk.CodeOf(err) {
			return status, detail, true
		}
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return sdk.StatusCancelled, errInterrupted.Error(), true
	}
	if reason := e.Snapshot().StopReason; reason != "" {
		return sdk.StatusCancelled, reason, true
	}
	return "", "", false
}

// executionError puts the failure of an execution into words. ran says that its code may
// have.
func executionError(caller, ctx context.Context, e *registry.Entry, req ExecuteRequest, err error, ran bool) error {
	call := providerCall{
		label: e.Label(), caller: caller, ctx: ctx,
		late:   sdk.Errorf(sdk.CodeUnavailable, "provider %q gave no answer within %s", e.Label(), req.bound()),
		broken: sdk.Errorf(sdk.CodeUnavailable, "provider %q broke off the execution", e.Label()),
	}
	ended := call.ended(err)
	switch code := sdk.CodeOf(err); {
	case ended != nil:
		return ended
	case req.inContext() && (lacksContext(err) || code == sdk.CodeConflict):
		return err
	case code != sdk.CodeNotFound:
		return call.told(err)
	}
	e.Lose(registry.ReasonLost)
	if ran {
		return sdk.Errorf(sdk.CodeUnavailable, "the instance is gone, and the code may have run")
	}
	gone := registry.NoSuchInstance()
	gone.NoEffect = true
	return gone
}

// observeExecution tells how an execution has ended. Who left has cancelled it.
func (s *Service) observeExecution(ctx context.Context, e *registry.Entry, t target, execution Execution, took time.Duration, err error) {
	status, code := execution.Result.Status, execution.Result.Status.Code()
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		status, code = sdk.StatusCancelled, ""
	case err != nil:
		status, code = StatusError, sdk.CodeOf(err)
	}
	s.observer.Executed(ctx, ExecutionOutcome{
		Provider: e.Label(), Language: t.Language, Status: status, Code: code, Took: took, PeakMemoryBytes: execution.Result.PeakMemoryBytes,
	})
}

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
func (s *Service) Interrupt(ctx context.Context, who tenant.Tenant, instanceID, executionID string) error {
	err := s.executions.interrupt(who, instanceID, executionID)
	return s.InstanceElsewhere(ctx, who.Name, instanceID, err)
}
