package instance

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"

	"github.com/hashicorp/go-hclog"
)

// Quotas say what a tenant may still use; quota.Keeper is it.
type Quotas interface {
	// Admit waits for its turn as long as the demand allows. Errors carry SB008
	// and SB009.
	Admit(ctx context.Context, d quota.Demand) (quota.Grant, error)
	// Adopt counts in an instance that there is already, whatever the limits: among those that
	// are paused and hold no memory, or among the others.
	Adopt(tenant, provider string, paused bool) *quota.Instance
}

// unlimited are the quotas of a service without any.
type unlimited struct{}

func (unlimited) Admit(context.Context, quota.Demand) (quota.Grant, error) { return quota.Grant{}, nil }

func (unlimited) Adopt(string, string, bool) *quota.Instance { return nil }

// admission takes from the quotas what requests need.
type admission struct {
	*lifecycle
	quotas   Quotas
	observer Observer
}

// turn is how long a request may wait for its turn, and since when it does.
type turn struct {
	arrived time.Time
	wait    time.Duration
}

// newTurn checks what a request says about waiting.
func (a admission) newTurn(wait time.Duration) (turn, error) {
	if most := a.limits().MaxWait; wait < 0 || wait > most {
		return turn{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "wait_ms", "must be at most %d", most.Milliseconds())
	}
	return turn{arrived: time.Now(), wait: wait}, nil
}

// left is how long it may still wait.
func (t turn) left() time.Duration { return max(0, t.wait-time.Since(t.arrived)) }

// admit takes from the quotas what a request needs, and has the wait observed.
func (a admission) admit(ctx context.Context, t turn, d quota.Demand) (quota.Grant, error) {
	began := time.Now()
	within, part := span.Start(ctx, "admission")
	grant, err := a.ask(within, t, d)
	span.End(part, sdk.CodeOf(err))
	a.observe(ctx, time.Since(began), err)
	return grant, err
}

// observe tells how long a request has waited for its turn.
func (a admission) observe(ctx context.Context, waited time.Duration, err error) {
	outcome := AdmitGranted
	switch {
	case err != nil && ctx.Err() != nil:
		outcome = AdmitLeft
	case err != nil:
		outcome = AdmitRefused
	}
	a.observer.Admitted(ctx, outcome, waited)
}

// ask takes from the quotas what a request needs. Nobody waits any more when the broker
// drains.
func (a admission) ask(ctx context.Context, t turn, d quota.Demand) (quota.Grant, error) {
	d.Wait, d.Arrived = t.left(), t.arrived
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.watching, cancel)()
	grant, err := a.quotas.Admit(ctx, d)
	if err != nil && a.watching.Err() != nil && errors.Is(err, context.Canceled) {
		return quota.Grant{}, shuttingDown()
	}
	return grant, err
}

// reserving returns a context for the effects that a grant is for.
func reserving(ctx context.Context, g quota.Grant) context.Context {
	if g.Reservation == nil {
		return ctx
	}
	return effect.WithReservation(ctx, g.Reservation)
}

// admitRun takes what one execution needs: with an instance of its own, if it is to
// have a fresh one.
func (a admission) admitRun(ctx context.Context, who tenant.Tenant, t target, turn turn, req RunRequest, others bool) (quota.Grant, error) {
	return a.admitAt(ctx, turn, quota.Demand{
		Tenant: who.Name, Execution: true, Timeout: req.Timeout,
		Instance: req.Session == "", Provider: t.provider.Label(), Size: t.size(), Noted: true,
	}, others)
}

// admitAt is admit for a demand that does not wait for room at its provider where
// there are others to ask.
func (a admission) admitAt(ctx context.Context, t turn, d quota.Demand, others bool) (quota.Grant, error) {
	if !others || t.wait == 0 {
		return a.admit(ctx, t, d)
	}
	began := time.Now()
	within, part := span.Start(ctx, "admission", span.Provider.String(d.Provider))
	grant, err := a.ask(within, turn{arrived: t.arrived}, d)
	if err != nil && !ofProvider(err) && sdk.CodeOf(err) == sdk.CodeQuotaExceeded {
		grant, err = a.ask(within, t, d)
	}
	span.End(part, sdk.CodeOf(err))
	a.observe(ctx, time.Since(began), err)
	return grant, err
}

// ofProvider reports whether a quota refuses only because of the provider: it has no
// room, or its instances are too large for the tenant.
func ofProvider(err error) bool {
	refusal, ok := errors.AsType[*quota.Refusal](err)
	return ok && (refusal.Limit == quota.ProviderFull || refusal.Limit == quota.MaxMemoryMB || refusal.Limit == quota.MaxCPUs)
}

// admitExecution takes what an execution needs in an instance that there is.
func (a admission) admitExecution(ctx context.Context, who tenant.Tenant, wait, timeout time.Duration) (quota.Grant, error) {
	turn, err := a.newTurn(wait)
	if err != nil {
		return quota.Grant{}, err
	}
	return a.admit(ctx, turn, quota.Demand{Tenant: who.Name, Execution: true, Timeout: timeout, Noted: true})
}

// waitsLonger reports whether a request whose turn has not ended may go on when the
// creation of somebody else, which it waited for, was refused.
func (t turn) waitsLonger(err error) bool {
	return sdk.CodeOf(err) == sdk.CodeQuotaExceeded && t.left() > 0
}

// chargeLives has the instances pay that are due. One whose tenant has no more money
// takes no new work from the end of what it has paid.
func (s *Service) chargeLives() {
	due := s.registry.Chargeable(time.Now())
	if len(due) == 0 {
		return
	}
	s.tasks.Go("charge instances", func() {
		ctx, cancel := s.noting()
		defer cancel()
		defer context.AfterFunc(s.lifetime, cancel)()
		for _, e := range due {
			permit := e.Snapshot().Permit
			until, err := permit.Renew(ctx)
			if sdk.CodeOf(err) == sdk.CodeQuotaExceeded {
				e.Shorten(until)
			}
			e.Charged(permit.NextCharge())
		}
	})
}

// lifecycle is how long the parts of a service work, and within which limits.
type lifecycle struct {
	logger  hclog.Logger
	bounds  atomic.Pointer[Limits]
	started time.Time

	mu       sync.Mutex
	draining bool
	// calls counts requests in progress and creations. Add is called under mu and never
	// when draining, or by who is counted already, as WaitGroup demands.
	calls sync.WaitGroup
	// lifetime ends executions and creations when the broker stops, cleanup
	// ends destruction when that has taken too long.
	// watching ends already when the drain begins, for those who only look on.
	lifetime    context.Context
	endLifetime context.CancelCauseFunc
	watching    context.Context
	endWatching context.CancelFunc
	cleanup     context.Context
	endCleanup  context.CancelFunc
	tasks       *background.Group
}

func newLifecycle(logger hclog.Logger, limits Limits) *lifecycle {
	l := &lifecycle{logger: logger, started: time.Now(), tasks: background.NewGroup(logger)}
	l.bounds.Store(&limits)
	l.lifetime, l.endLifetime = context.WithCancelCause(context.Background())
	l.watching, l.endWatching = context.WithCancel(l.lifetime)
	l.cleanup, l.endCleanup = context.WithCancel(context.Background())
	return l
}

func (l *lifecycle) limits() Limits { return *l.bounds.Load() }

// begin registers a call; the caller must call calls.Done when it ends.
func (l *lifecycle) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining {
		return shuttingDown()
	}
	l.calls.Add(1)
	return nil
}

// drain refuses new work from now on, ends what only watches, and waits for the calls.
// When ctx ends first they are cancelled; it still waits for them to notice.
func (l *lifecycle) drain(ctx context.Context) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	l.endWatching()

	stop := context.AfterFunc(ctx, func() { l.endLifetime(errShuttingDown) })
	defer stop()
	l.calls.Wait()
}

func (l *lifecycle) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// noting returns a context for what is written down although nobody waits for it, or
// nobody may stop it.
func (l *lifecycle) noting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.cleanup, cmp.Or(l.limits().DiskTimeout, 30*time.Second))
}

// bounded returns a context for a call that ends with ctx, with errNoAnswer after d, or
// with errShuttingDown when the broker stops.
func (l *lifecycle) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, d, errNoAnswer)
	stop := context.AfterFunc(l.lifetime, func() { cancelCause(errShuttingDown) })
	return ctx, func() {
		stop()
		cancel()
		cancelCause(nil)
	}
}

// slack is how much longer than MaxLifetime a provider is told to keep an
// instance. Its clock starts when the creation does, ours when that has ended;
// and at the end of the maximum lifetime a running execution may finish, and the
// destruction is ours to do.
func (l Limits) slack() time.Duration {
	return l.CreateTimeout + l.MaxTimeout + answerGrace + reapInterval + destroyTimeout
}
