package instance

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Install installs packages in an instance of the tenant, whether or not they are
// there. Errors carry SB009, SB010, SB013, SB014 or SB015; what became of the
// installation is no error. When ctx ends, so does the installation.
func (s *Service) Install(ctx context.Context, who tenant.Tenant, id string, req InstallRequest) (Execution, error) {
	if err := s.begin(); err != nil {
		return Execution{}, err
	}
	defer s.calls.Done()
	if req.Timeout < 0 || req.Timeout > s.limits().MaxTimeout {
		return Execution{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "must be more than 0 and at most %s", seconds(s.limits().MaxTimeout))
	}
	switch {
	case req.Language == "":
		return Execution{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "is required")
	case len(req.Requirements) == 0:
		return Execution{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "is required")
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return Execution{}, err
	}
	e, err := s.registry.Hold(who.Name, id)
	if err != nil {
		return Execution{}, s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	defer s.release(e)
	t, err := s.providers.offered(ctx, e.Snapshot().Provider, routing.Wanted{Language: req.Language})
	if err != nil {
		return Execution{}, faultOf(e, err)
	}
	if err := t.installs(req.Requirements); err != nil {
		return Execution{}, faultOf(e, err)
	}
	grant, err := s.admission.admitExecution(ctx, who, 0, cmp.Or(req.Timeout, s.limits().MaxTimeout))
	if err != nil {
		return Execution{}, err
	}
	defer grant.Release()
	grant.Execution.Start()
	if err := e.BeginExecution(); err != nil {
		return Execution{}, faultOf(e, err)
	}
	defer e.EndExecution()
	call, stop := context.WithCancelCause(reserving(ctx, grant))
	defer stop(nil)
	defer context.AfterFunc(s.lifetime, func() { stop(errShuttingDown) })()
	return s.install(ctx, call, stop, e, t, installation{id: "x-" + randomName(), requirements: req.Requirements, timeout: req.Timeout, again: true})
}

// installation is one installation in an instance that the caller holds.
type installation struct {
	id           string // of the execution that it is, or is for
	requirements []string
	timeout      time.Duration // 0 for the longest
	again        bool          // even if the same was installed before
}

// install makes an installation, or says that it was made before. One at a time
// is made in an instance.
func (s *Service) install(caller, ctx context.Context, stop context.CancelCauseFunc, e *registry.Entry, t target, in installation) (Execution, error) {
	if in.timeout == 0 {
		in.timeout = s.limits().MaxTimeout
	}
	execution := Execution{ID: in.id, InstanceID: e.ID().String(), Provider: e.Label()}
	req := ExecuteRequest{Timeout: in.timeout}
	ended := func(err error) (Execution, error) {
		if status, detail, ok := resultOf(ctx, e, err); ok {
			execution.Result = sdk.ExecuteResult{Status: status, ExitCode: 128 + 9, Detail: detail}
			return execution, nil
		}
		return Execution{}, begunFault(e, executionError(caller, ctx, e, req, err, false))
	}
	unlock, err := s.installing.Take(ctx, e)
	if err != nil {
		return ended(err)
	}
	defer unlock()
	set := requirementSet(t.Language, in.requirements)
	if e.Snapshot().Installed[set] && !in.again {
		execution.Result.Status = sdk.StatusSucceeded
		return execution, nil
	}
	installer, ok := t.ready.(sdk.PackageInstaller)
	if !ok {
		return Execution{}, faultOf(e, lacksInterface())
	}
	clock := newClock(in.timeout+answerGrace, func() { stop(errNoAnswer) })
	defer clock.end()
	ctx = effect.WhenBegun(ctx, func() { clock.restart(in.timeout + answerGrace) })
	out := newOutput(s.lifetime, nil, clock)
	result, err := installer.InstallPackages(ctx, sdk.InstallPackagesRequest{
		InstanceID: e.Snapshot().Sandbox.ID, Language: t.Language, Requirements: in.requirements,
		Timeout: in.timeout, OutputLimit: s.limits().Output,
	}, out)
	out.close(&execution)
	if err != nil {
		return ended(explained(ctx, t.ready, err))
	}
	execution.Result = result
	if result.Status == sdk.StatusSucceeded {
		e.SetInstalled(set)
	}
	return execution, nil
}

// installedFor makes the installation that an execution needs. It says ready when
// the code may run; else the execution has ended.
func (s *Service) installedFor(caller, ctx context.Context, stop context.CancelCauseFunc, r *running, e *registry.Entry, t target, req ExecuteRequest) (ended Execution, ready bool, err error) {
	if len(req.Requirements) == 0 {
		return Execution{}, true, nil
	}
	// An interrupt ends the call: there is no execution yet that the provider could
	// interrupt.
	s.executions.begins(ctx, stop, r, e, target{provider: t.provider})
	ended, err = s.install(caller, ctx, stop, e, t, installation{id: r.key.id, requirements: req.Requirements})
	if err != nil || ended.Result.Status == sdk.StatusSucceeded {
		return Execution{}, err == nil, err
	}
	ended.Stdout = nil // the code has printed nothing
	if req.Listener != nil {
		told := req.Listener.Started(s.lifetime, Execution{ID: ended.ID, InstanceID: ended.InstanceID, Provider: ended.Provider})
		if told == nil && len(ended.Stderr) > 0 {
			told = req.Listener.Stderr(s.lifetime, ended.Stderr)
		}
		if told != nil {
			return Execution{}, false, faultOf(e, told)
		}
		ended.Stderr = nil
	}
	return ended, false, nil
}

// installAtCreation makes the installation that the creator of an instance asked
// for.
func (s *Service) installAtCreation(ctx context.Context, e *registry.Entry, t target, requirements []string) error {
	if err := e.BeginExecution(); err != nil {
		return faultOf(e, err)
	}
	defer e.EndExecution()
	call, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(s.lifetime, func() { stop(errShuttingDown) })()
	got, err := s.install(ctx, call, stop, e, t, installation{id: "x-" + randomName(), requirements: requirements})
	switch {
	case err != nil:
		return err
	case got.Result.Status == sdk.StatusSucceeded:
		return nil
	case got.Result.Status == sdk.StatusFailed:
		return faultOf(e, sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "%s", lastWords(got.Stderr)))
	default:
		return faultOf(e, sdk.Errorf(sdk.CodeCreateFailed, "the requirements were not installed: %s", got.Result.Detail))
	}
}

// lastWords is the end of a long text, where an installer says what is wrong.
func lastWords(text []byte) string {
	const most = 1000
	if len(text) > most {
		text = append([]byte("…"), text[len(text)-most:]...)
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD"))
}

// installs refuses requirements that the provider cannot install, or for which
// nobody has named a language.
func (t target) installs(requirements []string) error {
	switch {
	case len(requirements) == 0:
		return nil
	case !slices.Contains(t.provider.Description().Capabilities, sdk.CapabilityPackages):
		return sdk.NotSupported(t.provider.Label(), sdk.CapabilityPackages)
	case t.Language == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "are of a language: name one, or a template that has one")
	default:
		return nil
	}
}

// checkTimeout bounds what is asked before the work begins.
const checkTimeout = 10 * time.Second

// installable is installs, and asks the provider too: nothing is made for what
// cannot be installed.
func (s *Service) installable(ctx context.Context, t target, requirements []string) error {
	if err := t.installs(requirements); err != nil || len(requirements) == 0 {
		return err
	}
	installer, ok := t.ready.(sdk.PackageInstaller)
	if !ok {
		return lacksInterface()
	}
	err := s.asked(ctx, t, func(ctx context.Context) error {
		return installer.CheckPackages(ctx, t.Language, requirements)
	})
	if err == nil {
		return nil
	}
	return providerCall{label: t.provider.Label(), ctx: ctx}.told(err)
}

// asked puts a short question to a provider.
func (s *Service) asked(caller context.Context, t target, question func(context.Context) error) error {
	ctx, cancel := s.bounded(caller, checkTimeout)
	defer cancel()
	err := question(ctx)
	if err == nil {
		return nil
	}
	call := providerCall{
		caller: caller, ctx: ctx,
		late: sdk.Errorf(sdk.CodeUnavailable, "provider %q gave no answer within %s", t.provider.Label(), checkTimeout),
	}
	if ended := call.ended(err); ended != nil {
		return ended
	}
	return explained(ctx, t.ready, err)
}

// requirementSet names what was asked for, in whatever order.
func requirementSet(language sdk.Language, requirements []string) string {
	set := slices.Compact(slices.Sorted(slices.Values(requirements)))
	return string(language) + "\n" + strings.Join(set, "\n")
}
