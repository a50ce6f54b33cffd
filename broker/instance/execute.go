package instance

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// answerGrace is how much longer than its timeout an execution may take before
// the provider counts as not answering: it needs time to kill and to report.
const answerGrace = 5 * time.Second

// errNoAnswer is why a call ends whose provider takes too long.
var errNoAnswer = errors.New("the provider does not answer")

// ExecuteRequest asks for one execution.
type ExecuteRequest struct {
	// ID of the execution, by which it can be interrupted; empty for one of the
	// service's making. The tenant's other executions in progress have others.
	ID   string
	Code string
	// Language of the code; with a context it may be left out.
	Language string
	// Arguments for main, a JSON object; nil for none.
	Arguments json.RawMessage
	// Timeout of the code; zero means the default.
	Timeout time.Duration
	// Env is added to the instance's environment for this execution.
	Env map[string]string
	// ContextID names a context of the instance to run in; empty for a fresh
	// interpreter.
	ContextID string
	// Context is DefaultContext for the context that the service makes in the instance
	// at first use, one for each language; empty for none.
	Context string
	// Files to return as artifacts, by names or patterns below /workspace, beside
	// what comes by itself.
	Files []string
	// Requirements are packages of the language to install before the code runs,
	// unless the same were installed in the instance before.
	Requirements []string
	// Wait is how long it may wait for its turn where a quota or the provider has
	// no room.
	Wait time.Duration
	// Listener, if not nil, gets the output, which Execution does not hold then.
	Listener Listener
}

// RunRequest asks for an execution wherever it fits.
type RunRequest struct {
	ExecuteRequest
	// Session whose instance to use or to make; empty for a fresh one.
	Session            string
	Template, Provider string
	// Keep the instance afterwards; nil means to keep it if a session was
	// named.
	Keep *bool
}

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
	if err := s.checkExecute(&req); err != nil {
		return Execution{}, err
	}
	r, err := s.executions.enroll(who, req.ID)
	if err != nil {
		return Execution{}, err
	}
	defer s.executions.leave(r)
	e, err := s.registry.Hold(who.Name, id)
	if err != nil {
		return Execution{}, err
	}
	defer s.release(e)
	provider := e.Snapshot().Provider
	if err := req.capable(provider); err != nil {
		return Execution{}, faultOf(e, err)
	}
	t, err := s.providers.offered(ctx, provider, selector{language: req.Language})
	if err != nil {
		return Execution{}, faultOf(e, err)
	}
	if t.language == "" && len(req.Requirements) > 0 {
		if t.language, err = s.languageOfContext(ctx, e, t, req.ContextID); err != nil {
			return Execution{}, faultOf(e, err)
		}
	}
	if err := t.installs(req.Requirements); err != nil {
		return Execution{}, faultOf(e, err)
	}
	if r.quota, err = s.admission.admitExecution(ctx, who, req.Wait, req.Timeout); err != nil {
		return Execution{}, err
	}
	defer r.quota.Release()
	return s.run(ctx, r, e, t, req)
}

// Run takes the session's instance or makes one, runs the code in it, and
// destroys or keeps it. The destruction does not delay the answer, and comes
// after the end of the executions that others began in the instance.
func (s *Service) Run(ctx context.Context, who tenant.Tenant, req RunRequest) (_ Execution, err error) {
	if err := s.begin(); err != nil {
		return Execution{}, err
	}
	defer s.calls.Done()
	if err := s.checkExecute(&req.ExecuteRequest); err != nil {
		return Execution{}, err
	}
	create := CreateRequest{Session: req.Session, Template: req.Template, Language: req.Language, Provider: req.Provider, Wait: req.Wait}
	if err := checkCreate(create, s.limits()); err != nil {
		return Execution{}, err
	}
	if create.turn, err = s.admission.newTurn(req.Wait); err != nil {
		return Execution{}, err
	}
	r, err := s.executions.enroll(who, req.ID)
	if err != nil {
		return Execution{}, err
	}
	defer s.executions.leave(r)
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
	w := selector{tenant: who, session: req.Session, provider: req.Provider, template: req.Template, language: req.Language}
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
	create.oneShot, create.attempt = !keep, *a
	grant, err := s.admission.admitRun(ctx, who, t, create.turn, req, a.others)
	if err != nil {
		return Execution{}, false, a.refusedByQuota(err)
	}
	defer grant.Release()
	r.quota, create.granted = grant.Execution, grant.Instance
	creating := ctx
	if !keep {
		creating = effect.MadeFor(ctx, sdk.ExecuteRequest{ExecutionID: r.key.id, Language: t.language, Code: req.Code, Env: req.Env})
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
	execution, err := s.runCode(caller, r, e, t, req)
	s.observeExecution(e, t, execution, err)
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
		id, err := s.contexts.of(ctx, e, t)
		if err != nil {
			return Execution{}, faultOf(e, s.executionError(caller, ctx, e, req, err, false))
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
	out := newOutput(s.lifetime, s.limits().Output, req.Listener, clock)
	failpoint.Hit(failpoint.ExecuteBegin)
	asked := sdk.ExecuteRequest{
		InstanceID:  e.Snapshot().Sandbox.ID,
		ExecutionID: execution.ID,
		Language:    t.language,
		Code:        req.Code,
		Arguments:   req.Arguments,
		Env:         req.Env,
		Timeout:     req.Timeout,
		OutputLimit: s.limits().Output,
		ContextID:   req.ContextID,
		Artifacts:   req.artifacts(t.provider, s.limits().Artifacts),
	}
	result, err := t.ready.Execute(ctx, asked, out)
	if req.Context != "" && lacksContext(err) { // nothing ran: it was deleted, or has ended
		if asked.ContextID, err = s.contexts.renew(ctx, e, t, asked.ContextID); err == nil {
			result, err = t.ready.Execute(ctx, asked, out)
		}
	}
	failpoint.Hit(failpoint.ExecuteEnd)
	out.close(&execution)
	result.Truncated = result.Truncated || out.truncated
	boundResult(&result)
	execution.Result = result
	if err == nil {
		return execution, nil
	}
	if status, detail, ok := s.outcome(ctx, e, err); ok {
		execution.Result = sdk.ExecuteResult{Status: status, ExitCode: 128 + 9, Truncated: out.truncated, Detail: detail}
		return execution, nil
	}
	err = s.executionError(caller, ctx, e, req, err, !withoutEffect(err))
	if sdk.CodeOf(err) == sdk.CodeNotFound {
		r.quota.Cancel() // the instance or the context was gone before
	}
	return Execution{}, begunFault(e, err)
}

// bound is how long the provider may take in all.
func (req ExecuteRequest) bound() time.Duration {
	bound := req.Timeout + answerGrace
	if req.inContext() {
		bound += sdk.MaxContextWait
	}
	return bound
}

// outcome recognizes errors that tell what became of the code, which is a
// result and not a failure.
func (s *Service) outcome(ctx context.Context, e *registry.Entry, err error) (sdk.Status, string, bool) {
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
func (s *Service) executionError(caller, ctx context.Context, e *registry.Entry, req ExecuteRequest, err error, ran bool) error {
	switch {
	case caller.Err() != nil:
		return caller.Err()
	case errors.Is(context.Cause(ctx), errShuttingDown):
		return shuttingDown()
	case effect.Refused(err):
		return err
	case errors.Is(context.Cause(ctx), errNoAnswer):
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q gave no answer within %s", e.Label(), req.bound())
	case req.inContext() && (lacksContext(err) || sdk.CodeOf(err) == sdk.CodeConflict):
		return err
	case sdk.CodeOf(err) == sdk.CodeNotFound:
		e.Lose(registry.ReasonLost)
		if ran {
			return sdk.Errorf(sdk.CodeUnavailable, "the instance is gone, and the code may have run")
		}
		gone := registry.NoSuchInstance()
		gone.NoEffect = true
		return gone
	case brokenOff(err):
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q broke off the execution", e.Label())
	default:
		return providerError(e.Label(), err)
	}
}

// checkExecute checks a request and fills in its timeout.
func (s *Service) checkExecute(req *ExecuteRequest) error {
	switch {
	case req.Timeout == 0:
		req.Timeout = s.limits().DefaultTimeout
	case req.Timeout < 0 || req.Timeout > s.limits().MaxTimeout:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "must be more than 0 and at most %s", seconds(s.limits().MaxTimeout))
	}
	if err := checkFiles(req.Files, s.limits().Artifacts.MaxCount); err != nil {
		return err
	}
	if err := req.checkContext(); err != nil {
		return err
	}
	if req.Language == "" && req.ContextID == "" {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "is required")
	}
	if sdk.ParseLanguage(req.Language) == sdk.Bash && req.Arguments != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main that could take them; use env")
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return err
	}
	return checkEnv(req.Env)
}
