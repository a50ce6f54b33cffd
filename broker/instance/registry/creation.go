package registry

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Claim asks for the one instance of a session on a provider.
type Claim struct {
	// ID is that of a new one.
	ID       ID
	Provider routing.Provider
	// Guard refuses the request, and Offered reports whether the provider gets new
	// instances; New refuses a new one. They are called under the registry's lock: what a
	// change of the catalog ends is not begun behind its back.
	Guard   func() error
	Offered func() bool
	New     func() error
	// Matches refuses an instance that is not as the request wants it.
	Matches func(Spec) error
	// Spec is that of a new one.
	Spec Spec
	// Joins means that the caller wants an instance that there is, and no new one.
	Joins bool
}

// Claimed is what a Claim got. With Held the caller has a hold on a running instance;
// else it waits for the creation, until Entry.StopWaiting, and with Begun makes it.
type Claimed struct {
	Entry       *Entry
	Held, Begun bool
	// Late means that the creation had failed, or was given up, before.
	Late bool
	// Retried is the record of an earlier process that intended the instance, and
	// Permit what the quotas count for it already.
	Retried *Record
	Permit  *quota.Instance
}

// Claim returns the session's instance on the provider, or begins one. It returns
// ErrMoved when that provider is not where the session belongs.
func (r *Registry) Claim(c Claim) (Claimed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.Guard(); err != nil {
		return Claimed{}, err
	}
	now := time.Now()
	e := r.sessions[SessionKey{c.ID.Tenant, c.ID.Session, c.Provider.Label()}]
	if e != nil && e.expire(now) {
		e = nil
	}
	left := e != nil && e.state.Left()
	if e != nil && !left && e.provider != c.Provider || (e == nil || left) && !c.Offered() {
		return Claimed{}, ErrMoved
	}
	switch {
	case left:
		return r.retry(e, c)
	case e == nil:
		if c.Joins {
			return Claimed{}, ErrMoved
		}
		if err := c.New(); err != nil {
			return Claimed{}, err
		}
		e := &Entry{registry: r, id: c.ID, name: c.ID.String(), label: c.Provider.Label(), provider: c.Provider, state: Pending, expiryAt: -1, chargeAt: -1}
		e.changed = make(chan struct{})
		e.pend(c)
		r.add(e)
		r.own(e)
		return Claimed{Entry: e, Begun: true}, nil
	}
	if err := c.Matches(e.Spec); err != nil {
		return Claimed{}, err
	}
	e.shared = true
	if e.state.Visible() {
		e.holds++
		e.noteUse()
		e.schedule()
		return Claimed{Entry: e, Held: true}, nil
	}
	e.waiters++
	return Claimed{Entry: e, Late: e.state.Unclear() || e.cancelled}, nil
}

func (e *Entry) pend(c Claim) {
	e.Spec, e.waiters, e.created = c.Spec, 1, c.Spec.Intended
}

// OnCancel says what ends the creation, and does so if nobody waits for it any more.
func (e *Entry) OnCancel(cancel context.CancelFunc) {
	e.locked(func() {
		if e.cancel = cancel; e.cancelled {
			cancel()
		}
	})
}

// cancelCreation ends the creation, because nobody waits for what it makes.
func (e *Entry) cancelCreation() {
	e.cancelled = true
	if e.cancel != nil {
		e.cancel()
	}
}

// retry has the provider asked once more for what an earlier process intended for the
// session: the same creation gives the same instance, whether there is one already or
// not. The error is for one that is there, and only not listed yet.
func (r *Registry) retry(e *Entry, c Claim) (Claimed, error) {
	left := e.left
	if left.Made != "" || left.OneShot {
		return Claimed{}, stillUnknown(left)
	}
	spec := c.Spec
	spec.Template, spec.Image, spec.TTL, spec.Idle, spec.Labels = left.Template, left.Image, left.TTL, left.Idle, left.Labels
	spec.Fixed, spec.PauseAtEnd, spec.FrontDoor, spec.Note = left.Fixed, left.PauseAtEnd, left.FrontDoor, left.Note
	spec.From, spec.Fork = left.From, left.Fork
	spec.Volumes = left.Volumes
	spec.Network = left.Network
	if err := c.Matches(spec); err != nil {
		return Claimed{}, err
	}
	// What it goes on from may be kept from more by now.
	spec.Network = network.Both(left.Network, c.Spec.Network)
	claimed := Claimed{Entry: e, Begun: true, Retried: &left, Permit: e.permit}
	c.Spec, e.permit, e.provider = spec, nil, c.Provider
	if err := r.transition(e, Retried); err != nil {
		return Claimed{}, err
	}
	e.pend(c)
	r.place(e)
	return claimed, nil
}

// NotIntended says that the journal has no record of a creation that is about to fail.
func (e *Entry) NotIntended() { e.locked(func() { e.buried = true }) }

// StopWaiting ends the waiting of a caller. With take it returns held, and a hold, when
// the creation has ended well. A creation for which nobody waits is cancelled.
func (e *Entry) StopWaiting(take bool) (i Instance, held bool) {
	e.locked(func() {
		e.waiters--
		if e.waiters == 0 && (e.state == Pending || e.state == Recording) {
			e.cancelCreation()
		}
		if held = take && e.state.Visible(); held {
			e.holds++
		}
		i = e.snapshot()
	})
	return i, held
}

// Wait adds a caller to those that wait for the creation.
func (e *Entry) Wait() { e.locked(func() { e.waiters++ }) }

// Made begins the time of an instance that the provider made. The error is SB000 if that
// is somebody's already: no two sessions ever share one.
func (e *Entry) Made(made sdk.Instance, maxLifetime time.Duration) (i Instance, err error) {
	e.locked(func() {
		if e.registry.holder(e, made.ID) != nil {
			err = sdk.Errorf(sdk.CodeInternal, "provider %q gave out an instance that it had given out before", e.label)
			return
		}
		if err = e.registry.transition(e, Made); err != nil {
			return
		}
		e.registry.setSandbox(e, made.ID)
		e.sandbox = made
		e.begin(time.Now(), maxLifetime)
		i = e.snapshot()
	})
	return i, err
}

// Found reports whether what an ambiguous creation has made becomes its session's
// instance, since somebody waits for it. Made and Created follow then.
func (e *Entry) Found() (taken bool) {
	e.locked(func() {
		taken = e.waiters > 0 && e.state == Ambiguous && e.registry.transition(e, Found) == nil
	})
	return taken
}

// Created tells how the creation has ended. An instance that nobody waits for any more,
// or that could not be written down, is destroyed; what an ambiguous creation has left is
// found out by the caller first. It returns how the instance is then.
func (e *Entry) Created(outcome Outcome, failure error, permit *quota.Instance) (i Instance) {
	e.locked(func() {
		r := e.registry
		e.outcome, e.failure, e.permit = outcome, failure, permit
		switch {
		case r.isLost(e.provider): // whatever it has left, nobody can ask
			if outcome == Uncertain {
				e.outcome = Refused
			}
			_ = r.vanish(e, Vanished, ReasonRemoved)
		case outcome == Uncertain && failure != nil:
			if r.transition(e, Unclear) == nil {
				e.ambiguousSince = time.Now()
			}
		case outcome != Unrecorded && failure != nil:
			_ = r.vanish(e, Failed, "")
		case outcome == Unrecorded, e.waiters == 0, e.state.Detached(), e.tenantRemoved:
			if r.transition(e, Unwanted) == nil {
				r.effects.Terminate(e)
			}
		default:
			if r.transition(e, Recorded) == nil {
				r.charging.set(e, permit.NextCharge())
			}
		}
		i = e.snapshot()
	})
	return i
}

// Nothing ends an ambiguous creation that has left nothing: its session may have another
// instance, from another provider too. lived means that something was found and
// destroyed, which is to be paid for.
func (e *Entry) Nothing(lived bool) {
	e.locked(func() {
		if !e.state.Unclear() {
			return // lost with its provider
		}
		if !lived {
			e.permit.Unmade()
		}
		_ = e.registry.vanish(e, Failed, "")
	})
}

// Detach lets the session have another instance, and reports whether it may: not when the
// creation has ended or is about to. What it makes all the same is destroyed.
func (e *Entry) Detach() (detached bool) {
	e.locked(func() {
		if detached = e.state == PendingDetached || e.state == AmbiguousDetached; !detached {
			detached = e.registry.transition(e, Detach) == nil
		}
	})
	return detached
}

// Reclaim makes a creation that was detached its session's again, since nobody else
// could serve. It reports whether that was in time.
func (e *Entry) Reclaim() (reclaimed bool) {
	e.locked(func() {
		r := e.registry
		if r.sessions[e.sessionKey()] != nil || e.tenantRemoved {
			return
		}
		if reclaimed = r.transition(e, Reclaim) == nil; reclaimed {
			r.own(e)
		}
	})
	return reclaimed
}

// Superseded are the instances of the same session that were given up, and whose end
// nobody has confirmed yet.
func (e *Entry) Superseded() (given []Instance) {
	r := e.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.work[WorkKey{e.id.Tenant, e.id.Session}] {
		if other.state >= Draining || other.state.Detached() {
			given = append(given, other.snapshot())
		}
	}
	return given
}
