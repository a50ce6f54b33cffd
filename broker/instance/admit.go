package instance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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

// turn is how long a request may wait for its turn, and since when it does.
type turn struct {
	arrived time.Time
	wait    time.Duration
}

// newTurn checks what a request says about waiting.
func (s *Service) newTurn(wait time.Duration) (turn, error) {
	if most := s.limits().MaxWait; wait < 0 || wait > most {
		return turn{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "wait_ms", "must be at most %d", most.Milliseconds())
	}
	return turn{arrived: time.Now(), wait: wait}, nil
}

// left is how long it may still wait.
func (t turn) left() time.Duration { return max(0, t.wait-time.Since(t.arrived)) }

// admit takes from the quotas what a request needs. Nobody waits any more when the
// broker drains.
func (s *Service) admit(ctx context.Context, t turn, d quota.Demand) (quota.Grant, error) {
	d.Wait, d.Arrived = t.left(), t.arrived
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.watching, cancel)()
	grant, err := s.quotas.Admit(ctx, d)
	if err != nil && s.watching.Err() != nil && errors.Is(err, context.Canceled) {
		return quota.Grant{}, shuttingDown()
	}
	return grant, err
}

// admitRun takes what one execution needs: with an instance of its own, if it is to
// have a fresh one.
func (s *Service) admitRun(ctx context.Context, who tenant.Tenant, t target, turn turn, req RunRequest, others bool) (quota.Grant, error) {
	return s.admitAt(ctx, turn, quota.Demand{
		Tenant: who.Name, Execution: true, Timeout: req.Timeout,
		Instance: req.Session == "", Provider: t.provider.Label(),
	}, others)
}

// admitAt is admit for a demand that does not wait for room at its provider where
// there are others to ask.
func (s *Service) admitAt(ctx context.Context, t turn, d quota.Demand, others bool) (quota.Grant, error) {
	if !others || t.wait == 0 {
		return s.admit(ctx, t, d)
	}
	grant, err := s.admit(ctx, turn{arrived: t.arrived}, d)
	if err == nil || ofProvider(err) || sdk.CodeOf(err) != sdk.CodeQuotaExceeded {
		return grant, err
	}
	return s.admit(ctx, t, d)
}

// ofProvider reports whether a quota refuses only because of the provider: it has no
// room, or its instances are too large for the tenant.
func ofProvider(err error) bool {
	refusal, ok := errors.AsType[*quota.Refusal](err)
	return ok && (refusal.Limit == quota.ProviderFull || refusal.Limit == quota.MaxMemoryMB || refusal.Limit == quota.MaxCPUs)
}

// admitExecution takes what an execution needs in an instance that there is.
func (s *Service) admitExecution(ctx context.Context, who tenant.Tenant, wait, timeout time.Duration) (*quota.Execution, error) {
	turn, err := s.newTurn(wait)
	if err != nil {
		return nil, err
	}
	grant, err := s.admit(ctx, turn, quota.Demand{Tenant: who.Name, Execution: true, Timeout: timeout})
	return grant.Execution, err
}

// makeAdmitted makes an instance that the quotas admit. While the provider has no
// room it waits for its turn there.
func (s *Service) makeAdmitted(ctx context.Context, e *entry, t target, req CreateRequest) (made sdk.Instance, err error) {
	for first := true; ; first = false {
		if first && req.granted != nil {
			if e.permit = req.granted.Take(); e.permit == nil {
				e.verdict = ours
				return made, fmt.Errorf("the request is over: %w", context.Canceled)
			}
		} else {
			grant, err := s.admitAt(ctx, req.turn, quota.Demand{Tenant: e.id.Tenant, Instance: true, Provider: t.provider.Label()}, req.way.others)
			if err != nil {
				e.verdict = ours
				if ofProvider(err) {
					e.verdict = refused
				}
				return made, err
			}
			e.permit = grant.Instance
		}
		made, err = s.makeWithin(ctx, e, t, req)
		switch {
		case err == nil || e.verdict == unclear:
			return made, err
		case sdk.CodeOf(err) != sdk.CodeQuotaExceeded:
			e.permit.Cancel()
			return made, err
		}
		if e.maxQueue != nil && retryAfter(err) == 0 {
			e.permit.Cancel() // there is room for those who wait longer
			return made, err
		}
		e.permit.Full(retryAfter(err))
		if req.turn.left() == 0 || req.way.others {
			return made, err
		}
	}
}

// makeWithin bounds the provider's part in the making of an instance.
func (s *Service) makeWithin(ctx context.Context, e *entry, t target, req CreateRequest) (sdk.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, req.way.left)
	defer cancel()
	made, err := s.make(ctx, e, t, req.Env)
	if err != nil && req.way.resumed {
		s.doubtResumed(e)
	}
	return made, err
}

func retryAfter(err error) time.Duration {
	if coded, ok := errors.AsType[*sdk.Error](err); ok {
		return coded.RetryAfter
	}
	return 0
}

// waitsLonger reports whether a request whose turn has not ended may go on when the
// creation of somebody else, which it waited for, was refused.
func (t turn) waitsLonger(err error) bool {
	return sdk.CodeOf(err) == sdk.CodeQuotaExceeded && t.left() > 0
}

// payments looks after what instances pay for their lives.
type payments struct{ busy atomic.Bool }

// payForLives has the instances pay that are due. One whose tenant has no more money
// takes no new work from the end of what it has paid.
func (s *Service) payForLives() {
	s.mu.Lock()
	var due []*entry
	for _, e := range s.entries {
		if e.state == live && e.permit.Due() {
			due = append(due, e)
		}
	}
	s.mu.Unlock()
	if len(due) == 0 || !s.payments.busy.CompareAndSwap(false, true) {
		return
	}
	s.tasks.Go("pay for instances", func() {
		defer s.payments.busy.Store(false)
		ctx, cancel := s.noting()
		defer cancel()
		defer context.AfterFunc(s.lifetime, cancel)()
		for _, e := range due {
			until, err := e.permit.Renew(ctx)
			if sdk.CodeOf(err) == sdk.CodeQuotaExceeded {
				s.mu.Lock()
				e.deadline, e.expires = earlier(e.deadline, until), earlier(e.expires, until)
				s.mu.Unlock()
			}
		}
	})
}

// cover pays for the instance's life to the end of an execution, before that begins.
func (s *Service) cover(ctx context.Context, e *entry, bound time.Duration) error {
	s.mu.Lock()
	permit := e.permit
	s.mu.Unlock()
	return permit.Cover(ctx, time.Now().Add(bound))
}
