package instance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Lease is the use of an instance for something beside executions: its files,
// commands, ports. The instance is not reaped before Release. It may be that of a volume,
// which has files alone: see LeaseVolume.
type Lease struct {
	// InstanceID is the provider's own name for the instance.
	InstanceID string

	service  *Service
	entry    *registry.Entry // nil for a volume
	label    string          // of the provider
	provider sdk.Provider
}

// Lease returns the use of an instance of the tenant for a capability. Errors are
// SB013 for an unknown instance, SB015 where its provider lacks the capability,
// and SB009.
func (s *Service) Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*Lease, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	e, err := s.registry.Hold(who.Name, id)
	if err != nil {
		s.calls.Done()
		return nil, s.InstanceElsewhere(ctx, who.Name, id, err)
	}
	i := e.Snapshot()
	l := &Lease{InstanceID: i.Sandbox.ID, service: s, entry: e, label: e.Label()}
	if !slices.Contains(i.Provider.Description().Capabilities, capability) {
		l.Release()
		return nil, faultOf(e, sdk.NotSupported(e.Label(), capability))
	}
	if l.provider, err = s.providers.waitReady(ctx, i.Provider, s.limits().CreateTimeout, false); err != nil {
		l.Release()
		return nil, faultOf(e, err)
	}
	return l, nil
}

// Release ends the use.
func (l *Lease) Release() {
	if l.entry != nil {
		l.service.release(l.entry)
	}
	l.service.calls.Done()
}

// Info describes the instance.
func (l *Lease) Info() Info {
	return infoOf(l.entry.Snapshot())
}

// Network is what the owner of the instance asks for now; nil for what its tenant has.
func (l *Lease) Network() *network.Request { return l.entry.Snapshot().Network }

// Call asks the provider in the context that ctx is, for at most d, and puts its failure
// into words. left says that it may have done something all the same. The context that use
// gets ends as that of Within.
func (l *Lease) Call(ctx context.Context, d time.Duration, use func(ctx context.Context) error) (left bool, err error) {
	within, cancel := l.Within(ctx)
	defer cancel()
	within, stop := context.WithTimeoutCause(within, d, errNoAnswer)
	defer stop()
	if err = use(within); err == nil {
		return false, nil
	}
	left = outcomeOf(within, err) == registry.Uncertain
	if errors.Is(context.Cause(within), errNoAnswer) {
		return left, faultOf(l.entry, sdk.Errorf(sdk.CodeUnavailable, "provider %q did not answer within %s", l.entry.Label(), d))
	}
	return left, l.Fault(within, err)
}

// Provider of the instance, and whether it is the one that gets new instances: else it is
// about to be replaced, and another one has its label.
func (l *Lease) Provider() (p Provider, current bool) {
	p = l.entry.Snapshot().Provider
	return p, offers(l.service.catalog, p)
}

// errTimeOver is what uses end with that would keep an instance beyond the end that no
// use moves.
var errTimeOver = errors.New("the instance's time is over")

// Within returns a context that ends with ctx, when the broker stops, and at the
// end of the instance's maximum lifetime, or at its end if that is fixed: as it is then,
// not as it was when the context was made. Calls of the provider belong into it.
func (l *Lease) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.until(ctx, l.service.lifetime)
}

// Watching is Within for calls that only look on at what goes on, for as long as
// they are let. It ends already when the broker begins to stop: nothing that is
// watched would come to its end by waiting.
func (l *Lease) Watching(ctx context.Context) (context.Context, context.CancelFunc) {
	return l.until(ctx, l.service.watching)
}

func (l *Lease) until(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := func() {}
	if l.entry != nil {
		forget = l.entry.WhenOver(func() { cancel(errTimeOver) })
	}
	stop := context.AfterFunc(end, func() { cancel(errShuttingDown) })
	return ctx, func() {
		forget()
		stop()
		cancel(nil)
	}
}

// Capable returns the provider of a lease as the interface of its capability.
func Capable[T any](l *Lease) (T, error) {
	p, ok := l.provider.(T)
	if !ok {
		return p, lacksInterface()
	}
	return p, nil
}

func lacksInterface() error {
	return sdk.Errorf(sdk.CodeInternal, "the provider's client lacks the interface of a capability")
}

// explainer is a provider that knows more about the errors of its capabilities:
// whether its process has died, and what of the text is secret.
type explainer interface {
	Explain(ctx context.Context, err error) error
}

func explained(ctx context.Context, provider sdk.Provider, err error) error {
	if p, ok := provider.(explainer); ok {
		return p.Explain(ctx, err)
	}
	return err
}

// Fault puts the failure of a call of the provider into words for the tenant. ctx
// is the one from Within. nil gives nil.
func (l *Lease) Fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errShuttingDown) {
		return shuttingDown()
	}
	if errors.Is(context.Cause(ctx), errTimeOver) {
		if i := l.entry.Snapshot(); i.PauseAtEnd && i.State.Visible() {
			return faultOf(l.entry, sdk.Errorf(sdk.CodeConflict, "%w, and it is paused; resume it to go on", errTimeOver))
		}
		return faultOf(l.entry, sdk.Errorf(sdk.CodeNotFound, "%w; create a new one if you need one", errTimeOver))
	}
	err = explained(ctx, l.provider, err)
	if l.entry == nil {
		return volumeFault(ctx, l.label, err)
	}
	switch code := sdk.CodeOf(err); {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	case code == sdk.CodeNotFound, code == sdk.CodeConflict, code == sdk.CodeNotAllowed:
		// These speak of the file or command that the caller named, and not,
		// as from Create or Execute, of the provider's account.
		return faultOf(l.entry, err)
	default:
		return begunFault(l.entry, providerCall{label: l.entry.Label(), ctx: ctx}.told(err))
	}
}

// maxArguments and maxArgv bound the arguments of a command, in number and in
// bytes together. Linux takes at most 128 KiB in one.
const (
	maxArguments = 1024
	maxArgv      = 128 << 10
)

// BoundCommand checks a request for a command in the leased instance and fills in
// its limits. One that somebody waits for has the time limit of an execution;
// others have none unless they ask.
func (l *Lease) BoundCommand(req *sdk.CommandRequest, waitedFor bool) error {
	req.InstanceID, req.KeepOutput = l.InstanceID, l.service.limits().Output
	size := 0
	for _, argument := range req.Argv {
		if size += len(argument) + 1; strings.ContainsRune(argument, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "holds a NUL character, which no argument can")
		}
	}
	limits := l.service.limits()
	switch {
	case len(req.Argv) == 0 || req.Argv[0] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "must name a program")
	case len(req.Argv) > maxArguments || size > maxArgv:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "has more than %d arguments or %d bytes; put them into a file", maxArguments, maxArgv)
	case strings.ContainsRune(req.Cwd, 0):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "holds a NUL character, which no path can")
	case req.Timeout < 0, waitedFor && req.Timeout > limits.MaxTimeout:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "must be more than 0 and at most %s, unless the command runs in the background", seconds(limits.MaxTimeout))
	case req.Timeout == 0 && waitedFor:
		req.Timeout = limits.DefaultTimeout
	}
	return checkEnv(req.Env)
}

// AnswerGrace is how much longer than its timeout something may take before the
// provider counts as not answering.
func (l *Lease) AnswerGrace() time.Duration { return answerGrace }

// OutputLimit is how many bytes of each output stream an answer may hold.
func (l *Lease) OutputLimit() int64 { return l.service.limits().Output }
