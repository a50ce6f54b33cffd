package registry

import (
	"container/heap"
	"time"
)

// begin starts the entry's time when the provider has made the instance.
func (e *Entry) begin(now time.Time, maxLifetime time.Duration) {
	e.created, e.lastUsed = now, now
	e.deadline = now.Add(maxLifetime)
	if own := e.sandbox.ExpiresAt; !own.IsZero() {
		e.deadline = earlier(e.deadline, own) // the provider ends it then, whatever we want
	}
	e.expires = earlier(now.Add(e.TTL), e.deadline)
}

// use records a use that ends now: the instance stays for its TTL from now on at least,
// unless its end is fixed.
func (e *Entry) use(now time.Time) {
	e.lastUsed = now
	e.expires = e.snapshot().Expiry(now)
}

// Expiry is when the instance's time is over if all use of it ended now.
func (i Instance) Expiry(now time.Time) time.Time {
	at := i.Expires
	if i.Fixed {
		return at
	}
	if kept := now.Add(i.TTL); kept.After(at) {
		at = kept
	}
	return earlier(at, i.Deadline)
}

// End is when the instance's time is over if nobody uses or renews it any more.
func (i Instance) End() time.Time { return i.unused(i.Expires, i.LastUsed) }

// unused is the end of what nobody uses.
func (s *Spec) unused(expires, lastUsed time.Time) time.Time {
	if s.Fixed {
		return expires
	}
	return earlier(expires, lastUsed.Add(s.Idle))
}

// end is when a visible entry takes no new work any more: what is in use at its limit
// only, and those who waited for the creation get what they waited for, however short its
// life. The zero time stands for no end.
func (e *Entry) end() time.Time {
	switch {
	case !e.state.Visible() || e.waiters > 0:
		return time.Time{}
	case e.PauseAtEnd && e.state.MayBePaused():
		return e.deadline
	}
	end := e.unused(e.expires, e.lastUsed)
	if e.holds > 0 {
		end = e.limit()
	}
	if e.endPauseFailed.again.After(end) {
		end = earlier(e.endPauseFailed.again, e.deadline)
	}
	return end
}

// limit is the end that no use moves.
func (e *Entry) limit() time.Time {
	if e.Fixed {
		return e.expires
	}
	return e.deadline
}

// moveEnd gives the instance another end, which its alarms follow: to a later one when they
// are about to ring.
func (e *Entry) moveEnd(expires, deadline time.Time) {
	before := e.limit()
	e.expires, e.deadline = expires, deadline
	if now := e.limit(); now.Before(before) {
		for a := range e.alarms {
			a.timer.Reset(time.Until(now))
		}
	}
}

// alarm rings when no use may keep an instance any longer.
type alarm struct {
	e     *Entry
	timer *time.Timer
	ring  func()
}

// WhenOver calls ring, on a goroutine of its own, when no use may keep the instance any
// longer, until stop is called. It follows an end that is moved meanwhile.
func (e *Entry) WhenOver(ring func()) (stop func()) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	a := &alarm{e: e, ring: ring}
	a.timer = time.AfterFunc(time.Until(e.limit()), a.fire)
	if e.alarms == nil {
		e.alarms = map[*alarm]struct{}{}
	}
	e.alarms[a] = struct{}{}
	return a.stop
}

// fire rings, unless the end was moved since the timer was set.
func (a *alarm) fire() {
	if a.due() {
		a.ring()
	}
}

// due ends an alarm whose time has come, once, and sets any other again.
func (a *alarm) due() bool {
	a.e.registry.mu.Lock()
	defer a.e.registry.mu.Unlock()
	_, armed := a.e.alarms[a]
	if left := time.Until(a.e.limit()); armed && left > 0 {
		a.timer.Reset(left)
		return false
	}
	delete(a.e.alarms, a)
	return armed
}

func (a *alarm) stop() {
	a.e.registry.mu.Lock()
	defer a.e.registry.mu.Unlock()
	a.timer.Stop()
	delete(a.e.alarms, a)
}

func (e *Entry) over(now time.Time) bool {
	end := e.end()
	return !end.IsZero() && !now.Before(end)
}

// expire retires an entry whose time is over, or has it paused, and says whether it was
// retired. Reaper and requests alike decide here, under the same lock and by the same clock:
// an instance that anybody was told to be alive until some time is alive until then.
func (e *Entry) expire(now time.Time) bool {
	if !e.over(now) {
		return false
	}
	if e.PauseAtEnd && e.state == Running && now.Before(e.deadline) {
		e.pauseAtEnd()
		return false
	}
	e.retireExpired(ReasonExpired)
	e.schedule()
	return true
}

func (e *Entry) retireExpired(reason string) {
	e.reason = reason
	if e.Fixed {
		e.stopReason = stopFixed // also of what goes on in it
		e.terminate()
	} else {
		e.retire()
	}
}

// pauseAtEnd has a running entry paused, instead of retired. A request that makes certain
// that it runs comes first.
func (e *Entry) pauseAtEnd() {
	if e.switching || e.registry.transition(e, PauseBegun) != nil {
		return
	}
	e.switching, e.endPause, e.stopReason = true, true, stopFixed
	e.registry.effects.Pause(e)
	e.schedule()
}

const (
	// pauseRetry is how long after a failed attempt to pause an instance at its end the next
	// one begins.
	pauseRetry = 15 * time.Second
	// pausePatience is how long attempts may fail before it is destroyed: who wants it
	// paused loses it then, and nobody else pays for it any longer.
	pausePatience = 5 * time.Minute
)

// EndPauseFailed says that an instance could not be paused at its end, and certainly is
// not. It runs, and that is tried again, unless that is hopeless or was tried long enough:
// it is destroyed then.
func (e *Entry) EndPauseFailed(hopeless bool) {
	e.locked(func() {
		e.endSwitch()
		if e.registry.transition(e, PauseFailed) != nil {
			return // it was ended meanwhile
		}
		now := time.Now()
		if e.endPauseFailed.since.IsZero() {
			e.endPauseFailed.since = now
		}
		if hopeless || now.Sub(e.endPauseFailed.since) >= pausePatience {
			e.retireExpired(ReasonNoPause)
			return
		}
		e.endPauseFailed.again = now.Add(pauseRetry)
	})
}

// endSwitch ends a request to pause or resume, whoever made it.
func (e *Entry) endSwitch() {
	e.switching = false
	if e.endPause = false; e.state.Visible() {
		e.stopReason = ""
	}
}

// failedPause is what is known of a pause at the end that does not work; zero if it was not
// tried, or has worked.
type failedPause struct {
	since time.Time
	again time.Time // when it is tried again
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

// stopFixed is what executions are told that go on at the end of a fixed instance.
const stopFixed = "the instance's time was over during the execution"

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

// queue orders entries by a time. An entry is in it once, or not at all.
type queue struct {
	items []queued
	// index tells where the queue keeps the place of an entry, less than 0 for none.
	index func(*Entry) *int
}

type queued struct {
	at time.Time
	e  *Entry
}

func newQueue(index func(*Entry) *int) queue { return queue{index: index} }

func (q *queue) Len() int           { return len(q.items) }
func (q *queue) Less(i, j int) bool { return q.items[i].at.Before(q.items[j].at) }

func (q *queue) Swap(i, j int) {
	q.items[i], q.items[j] = q.items[j], q.items[i]
	*q.index(q.items[i].e), *q.index(q.items[j].e) = i, j
}

// Push and Pop are for package heap.
func (q *queue) Push(x any) {
	item := x.(queued)
	*q.index(item.e) = len(q.items)
	q.items = append(q.items, item)
}

func (q *queue) Pop() any {
	last := len(q.items) - 1
	item := q.items[last]
	q.items[last] = queued{}
	q.items = q.items[:last]
	*q.index(item.e) = -1
	return item
}

// set moves an entry to a time; the zero time takes it out.
func (q *queue) set(e *Entry, at time.Time) {
	i := *q.index(e)
	switch {
	case at.IsZero():
		q.remove(e)
	case i < 0:
		heap.Push(q, queued{at, e})
	default:
		q.items[i].at = at
		heap.Fix(q, i)
	}
}

func (q *queue) remove(e *Entry) {
	if i := *q.index(e); i >= 0 {
		heap.Remove(q, i)
	}
}

// due takes out those whose time has come.
func (q *queue) due(now time.Time) (entries []*Entry) {
	for len(q.items) > 0 && !now.Before(q.items[0].at) {
		entries = append(entries, heap.Pop(q).(queued).e)
	}
	return entries
}
