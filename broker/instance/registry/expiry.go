package registry

import "time"

// begin starts the entry's time when the provider has made the instance.
func (e *Entry) begin(now time.Time, maxLifetime time.Duration) {
	e.created, e.lastUsed = now, now
	e.deadline = now.Add(maxLifetime)
	if own := e.sandbox.ExpiresAt; !own.IsZero() {
		e.deadline = earlier(e.deadline, own) // the provider ends it then, whatever we want
	}
	e.expires = earlier(now.Add(e.TTL), e.deadline)
}

// use records a use that ends now: the instance stays for its TTL from now on at least.
func (e *Entry) use(now time.Time) {
	e.lastUsed = now
	e.expires = e.snapshot().Expiry(now)
}

// Expiry is when the instance's time is over if all use of it ended now.
func (i Instance) Expiry(now time.Time) time.Time {
	at := i.Expires
	if kept := now.Add(i.TTL); kept.After(at) {
		at = kept
	}
	return earlier(at, i.Deadline)
}

// end is when a visible entry takes no new work any more: what is in use at its deadline
// only, and those who waited for the creation get what they waited for, however short its
// life. The zero time stands for no end.
func (e *Entry) end() time.Time {
	switch {
	case !e.state.Visible() || e.waiters > 0:
		return time.Time{}
	case e.holds > 0:
		return e.deadline
	default:
		return earlier(e.expires, e.lastUsed.Add(e.Idle))
	}
}

func (e *Entry) over(now time.Time) bool {
	end := e.end()
	return !end.IsZero() && !now.Before(end)
}

// expire retires an entry whose time is over, and says whether it was. Reaper and
// requests alike decide here, under the same lock and by the same clock: an instance that
// anybody was told to be alive until some time is alive until then.
func (e *Entry) expire(now time.Time) bool {
	if !e.over(now) {
		return false
	}
	e.reason = ReasonExpired
	e.retire()
	e.schedule()
	return true
}

// schedule sets the time at which Expire looks at the entry.
func (e *Entry) schedule() {
	if e.state == Gone {
		return
	}
	at := e.end()
	if e.state == Terminating {
		at = e.retryAt
	}
	e.registry.expiry.set(e, at)
}

// Expire retires the instances whose time is over, and has those destroyed where that did
// not work before.
func (r *Registry) Expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.expiry.due(now) {
		if e.state == Terminating {
			e.retryAt = time.Time{} // set again if this attempt fails too
			e.terminate()
			continue
		}
		if !e.expire(now) {
			e.schedule()
		}
	}
}

// Chargeable takes those out that are to be charged by now: whoever charges them says
// when they are next, by Entry.Charged.
func (r *Registry) Chargeable(now time.Time) []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.charging.due(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
