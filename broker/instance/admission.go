package instance

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Quotas say what a tenant may still use; quota.Keeper is it.
type Quotas interface {
	// Admit waits for its turn as long as the demand allows. Errors carry SB008
	// and SB009.
	Admit(ctx context.Context, d quota.Demand) (quota.Grant, error)
	// Adopt counts in an instance that there is already, whatever the limits.
	Adopt(tenant, provider string) *quota.Instance
}

// unlimited are the quotas of a service without any.
type unlimited struct{}

func (unlimited) Admit(context.Context, quota.Demand) (quota.Grant, error) { return quota.Grant{}, nil }
func (unlimited) Adopt(string, string) *quota.Instance                     { return nil }

// admission takes from the quotas what requests need.
type admission struct {
	*lifecycle
	quotas Quotas
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

// admit takes from the quotas what a request needs. Nobody waits any more when the
// broker drains.
func (a admission) admit(ctx context.Context, t turn, d quota.Demand) (quota.Grant, error) {
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
		Instance: req.Session == "", Provider: t.provider.Label(), Noted: true,
	}, others)
}

// admitAt is admit for a demand that does not wait for room at its provider where
// there are others to ask.
func (a admission) admitAt(ctx context.Context, t turn, d quota.Demand, others bool) (quota.Grant, error) {
	if !others || t.wait == 0 {
		return a.admit(ctx, t, d)
	}
	grant, err := a.admit(ctx, turn{arrived: t.arrived}, d)
	if err == nil || ofProvider(err) || sdk.CodeOf(err) != sdk.CodeQuotaExceeded {
		return grant, err
	}
	return a.admit(ctx, t, d)
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
