package instance

import "time"

// slack is how much longer than MaxLifetime a provider is told to keep an
// instance. Its clock starts when the creation does, ours when that has ended;
// and at the end of the maximum lifetime a running execution may finish, and the
// destruction is ours to do.
func (l Limits) slack() time.Duration {
	return l.CreateTimeout + l.MaxTimeout + answerGrace + reapInterval + destroyTimeout
}

// begin starts the entry's time when the provider has made the instance. The
// caller holds Service.mu.
func (e *entry) begin(now time.Time, limits Limits) {
	e.created, e.lastUsed = now, now
	e.deadline = now.Add(limits.MaxLifetime)
	if own := e.instance.ExpiresAt; !own.IsZero() {
		e.deadline = earlier(e.deadline, own) // the provider ends it then, whatever we want
	}
	e.expires = earlier(now.Add(e.ttl), e.deadline)
}

// use records a use that ends now: the instance stays for its TTL from now on at
// least. The caller holds Service.mu.
func (e *entry) use(now time.Time) {
	e.lastUsed = now
	e.expires = e.expiry(now)
}

// expiry is when the entry's time is over if all use of it ended now. The caller
// holds Service.mu.
func (e *entry) expiry(now time.Time) time.Time {
	at := e.expires
	if kept := now.Add(e.ttl); kept.After(at) {
		at = kept
	}
	return earlier(at, e.deadline)
}

// over reports whether a live entry takes no new work any more. What is in use
// ends at its deadline only, and those who waited for the creation get what they
// waited for, however short its life. The caller holds Service.mu.
func (e *entry) over(now time.Time) bool {
	switch {
	case e.state != live || e.waiters > 0:
		return false
	case e.holds > 0:
		return !now.Before(e.deadline)
	default:
		return !now.Before(e.expires) || !now.Before(e.lastUsed.Add(e.idle))
	}
}

// retire hides an entry whose time is over, and says whether it was. It is
// destroyed at once, or when those who use it have ended. Reaper and requests
// alike decide here, under the same lock and by the same clock: an instance that
// anybody was told to be alive until some time is alive until then. The caller
// holds mu.
func (s *Service) retire(e *entry, now time.Time) bool {
	if !e.over(now) {
		return false
	}
	s.hide(e)
	e.reason = reasonExpired
	if e.holds > 0 {
		e.doomed = true
	} else {
		s.destroyLater(e)
	}
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
