package registry_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// onOne does something with one instance, often what its state calls for.
func (m *model) onOne(x *modelled) {
	var acts []func(*modelled)
	switch {
	case m.chance(25):
		acts = []func(*modelled){
			m.made, m.found, m.nothing, m.detach, m.reclaim, m.hold, m.find, m.renew, m.destroy, m.loseOne, m.adopt, m.settle,
			m.switchIt, m.home, m.charged, m.superseded, m.shorten, m.relabel, m.alarm,
		}
	case x.state.Left():
		acts = []func(*modelled){m.adopt, m.adopt, m.settle, m.find}
	case x.state.Creating():
		acts = []func(*modelled){m.made, m.created, m.created, m.stopWaiting, m.detach, m.reclaim, m.wait}
	case x.state.Unclear():
		acts = []func(*modelled){m.found, m.nothing, m.stopWaiting, m.detach, m.reclaim, m.wait}
	case x.state == registry.Terminating:
		acts = []func(*modelled){m.terminatedOne, m.terminationFailed, m.destroy}
	default:
		acts = []func(*modelled){m.hold, m.switchIt, m.execution, m.discard, m.renew, m.find, m.relabel, m.alarm}
	}
	acts = append(acts, m.release, m.release, m.stopWaiting)
	pick(m, acts...)(x)
}

func (m *model) made(x *modelled) {
	m.doing = "made"
	id := "box-" + x.id.Instance
	if m.chance(5) {
		id = cmp.Or(pick(m, m.all...).sandbox, id)
	}
	own := m.chance(20)
	box := sdk.Instance{ID: id}
	if own {
		box.ExpiresAt = time.Now().Add(2 * time.Second)
	}
	i, err := x.e.Made(box, 30*time.Second)
	switch {
	case m.taken(x, id):
		m.want(sdk.CodeOf(err) == sdk.CodeInternal, "that the provider gave out %s before: %v", id, err)
	case !m.move(x, registry.Made):
		m.want(err != nil, "an error")
	default:
		m.want(err == nil && i.State == x.state, "success: %v", err)
		x.sandbox = id
		m.begin(x, time.Now(), box.ExpiresAt)
	}
}

// taken reports whether another instance has what a provider calls so.
func (m *model) taken(x *modelled, sandbox string) bool {
	return slices.ContainsFunc(m.all, func(y *modelled) bool { return y != x && y.label == x.label && y.sandbox == sandbox })
}

func (m *model) begin(x *modelled, now, own time.Time) {
	x.lastUsed, x.deadline = now, now.Add(30*time.Second)
	if !own.IsZero() {
		x.deadline = first(x.deadline, own)
	}
	x.expires = first(now.Add(x.spec.TTL), x.deadline)
}

// created ends a creation, as its maker does: once, and with success only if it was made.
func (m *model) created(x *modelled) {
	m.doing = "created"
	if !x.state.Creating() {
		return
	}
	outcome, failure := pick(m, registry.Ours, registry.Refused, registry.Uncertain), error(errRefused)
	switch {
	case x.state != registry.Pending && x.state != registry.PendingDetached && x.sandbox == "": // found, and not made its session's
		outcome = registry.Ours
	case x.sandbox != "":
		outcome = pick(m, registry.Ours, registry.Ours, registry.Unrecorded)
		if outcome == registry.Ours && m.chance(80) {
			failure = nil
		}
	}
	x.e.Created(outcome, failure, nil)
	r := m.retired[x.provider]
	switch {
	case r != nil && r.lost:
		m.vanish(x, registry.Vanished)
	case outcome == registry.Uncertain:
		m.want(m.move(x, registry.Unclear), "a legal end")
	case outcome != registry.Unrecorded && failure != nil:
		m.want(m.vanish(x, registry.Failed), "a legal end")
	case outcome == registry.Unrecorded, x.waiters == 0, x.state.Detached(), x.removed:
		m.want(m.move(x, registry.Unwanted), "a legal end")
		m.terminated++
	default:
		m.want(m.move(x, registry.Recorded), "a legal end")
		x.charge = time.Time{}
	}
}

func (m *model) found(x *modelled) {
	m.doing = "found"
	want := x.waiters > 0 && x.state == registry.Ambiguous && m.move(x, registry.Found)
	m.want(x.e.Found() == want, "found: %t", want)
}

func (m *model) nothing(x *modelled) {
	m.doing = "nothing"
	x.e.Nothing(m.chance(50))
	if x.state.Unclear() {
		m.vanish(x, registry.Failed)
	}
}

func (m *model) detach(x *modelled) {
	m.doing = "detach"
	want := x.state == registry.PendingDetached || x.state == registry.AmbiguousDetached || m.move(x, registry.Detach)
	m.want(x.e.Detach() == want, "detached: %t", want)
}

func (m *model) reclaim(x *modelled) {
	m.doing = "reclaim"
	want := m.owners[x.key()] == nil && !x.removed && m.move(x, registry.Reclaim)
	m.want(x.e.Reclaim() == want, "reclaimed: %t", want)
	if want {
		m.own(x)
	}
}

func (m *model) wait(x *modelled) {
	m.doing = "wait"
	x.e.Wait()
	x.waiters++
}

func (m *model) stopWaiting(x *modelled) {
	m.doing = "stop waiting"
	if x.waiters == 0 {
		return
	}
	take := m.chance(70)
	_, held := x.e.StopWaiting(take)
	if x.waiters--; x.waiters == 0 && (x.state == registry.Pending || x.state == registry.Recording) {
		x.cancelled = true
	}
	m.want(held == (take && x.state.Visible()), "held or not in %s: %t", x.state, held)
	if held {
		x.holds++
	}
}

func (m *model) find(x *modelled) {
	m.doing = "find"
	m.notFor(x)
	e, _, err := m.reg.Find(x.id.Tenant, x.id.String())
	m.expire(x)
	named, _, unnamed := m.reg.Named(x.id.Instance)
	if !x.state.Visible() {
		m.absent(x, err)
		told := error(registry.NoSuchInstance())
		if x.state == registry.Unknown {
			told = err
		}
		m.want(named == nil && unnamed != nil && unnamed.Error() == told.Error(), "nothing by its name: %v", unnamed)
		return
	}
	m.want(err == nil && e == x.e, "%s: %v", x.id, err)
	m.want(unnamed == nil && named == x.e, "%s by its name: %v", x.id, unnamed)
}

func (m *model) relabel(x *modelled) {
	m.doing = "relabel"
	labels := map[string]string{"n": fmt.Sprint(m.n)}
	_, i, err := m.reg.Relabel(x.id.Tenant, x.id.String(), func(is map[string]string) error {
		clear(is)
		maps.Copy(is, labels)
		return nil
	})
	if m.expire(x) || !x.state.Visible() {
		m.absent(x, err)
		return
	}
	x.spec.Labels = labels
	m.want(err == nil && maps.Equal(i.Labels, labels), "other labels: %v", err)
}

// shorten ends the time of what is not paid for.
func (m *model) shorten(x *modelled) {
	m.doing = "shorten"
	until := time.Now().Add(time.Duration(m.rand.IntN(5)) * time.Second)
	x.e.Shorten(until)
	x.expires, x.deadline = first(x.expires, until), first(x.deadline, until)
	m.listen()
}

// alarm wants to be told of the limit, or does not any more.
func (m *model) alarm(x *modelled) {
	m.doing = "alarm"
	if len(m.alarms) > 0 && m.chance(50) {
		at := m.rand.IntN(len(m.alarms))
		m.alarms[at].stop()
		m.alarms = slices.Delete(m.alarms, at, at+1)
		return
	}
	if x.holds == 0 {
		return
	}
	a := &alarm{x: x}
	a.stop = x.e.WhenOver(func() { a.rang.Add(1) })
	m.alarms = append(m.alarms, a)
	m.listen()
}

// notFor makes certain that another tenant does not find it.
func (m *model) notFor(x *modelled) {
	_, _, err := m.reg.Find("nobody", x.id.String())
	m.want(err != nil && err.Error() == registry.NoSuchInstance().Error(), "nothing for another tenant: %v", err)
}

func (m *model) absent(x *modelled, err error) {
	want := sdk.CodeNotFound
	adoptable := !x.left.OneShot && (x.left.Made != "" || x.left.Claimed)
	if x.state == registry.Unknown && adoptable {
		want = sdk.CodeUnavailable
	}
	m.want(sdk.CodeOf(err) == want, "%s in %s: %v", want, x.state, err)
}

func (m *model) hold(x *modelled) {
	m.doing = "hold"
	e, err := m.reg.Hold(x.id.Tenant, x.id.String())
	if m.expire(x) || !x.state.Visible() {
		m.absent(x, err)
		return
	}
	m.want(err == nil && e == x.e, "a hold: %v", err)
	x.holds++
	m.noteUse(x)
}

func (m *model) release(x *modelled) {
	m.doing = "release"
	switch used := m.chance(50); {
	case x.holds == 0:
	case m.chance(70):
		x.e.Release()
		m.use(x)
		m.noteUse(x)
		m.drop(x)
	default:
		x.e.Drop(used)
		if used {
			m.use(x)
		}
		m.drop(x)
	}
}

func (m *model) renew(x *modelled) {
	m.doing = "renew"
	ttl := time.Duration(m.rand.IntN(10)) * time.Second
	_, i, err := m.reg.Renew(x.id.Tenant, x.id.String(), ttl, 5*time.Second)
	if m.expire(x) || !x.state.Visible() {
		m.absent(x, err)
		return
	}
	if ttl == 0 {
		ttl = x.spec.TTL
	}
	x.lastUsed, x.noted, x.note = time.Now(), false, -1
	x.failing, x.pauseAgain = time.Time{}, time.Time{}
	x.expires = first(time.Now().Add(min(ttl, 5*time.Second)), x.deadline)
	m.want(err == nil && i.Expires.Equal(x.expires), "a renewal: %v", err)
}

// listen hears which alarms have rung: once, those of instances whose limit is over.
func (m *model) listen() {
	synctest.Wait()
	m.alarms = slices.DeleteFunc(m.alarms, func(a *alarm) bool {
		over := !time.Now().Before(a.x.limit())
		m.want(a.rang.Load() == 1 == over && a.rang.Load() <= 1, "an alarm of %s: %t, and it rang %d times", a.x.id, over, a.rang.Load())
		return over
	})
}

func (m *model) destroy(x *modelled) {
	m.doing = "destroy"
	_, _, err := m.reg.Destroy(x.id.Tenant, x.id.String(), "destroyed", "")
	want := !x.notKept && x.state != registry.Draining && m.move(x, registry.Terminate)
	m.want((err == nil) == want, "destroyed: %t, %v", want, err)
	if want {
		x.retryAt = time.Time{}
		return
	}
	m.absent(x, err)
}

func (m *model) discard(x *modelled) {
	m.doing = "discard"
	unlessShared := m.chance(50)
	x.e.Discard(unlessShared)
	if x.state.Visible() && (!unlessShared || !x.shared) {
		x.notKept = true
		m.retire(x)
	}
}

func (m *model) loseOne(x *modelled) {
	m.doing = "lose"
	if !m.chance(20) {
		return
	}
	want := m.vanish(x, registry.Vanished)
	m.want(x.e.Lose(registry.ReasonLost) == want, "lost: %t", want)
}

func (m *model) terminatedOne(x *modelled) {
	m.doing = "terminated"
	x.e.Terminated(x.e.Tombstone())
	m.vanish(x, registry.Vanished)
}

func (m *model) terminationFailed(x *modelled) {
	m.doing = "termination failed"
	x.retryAt = time.Now().Add(time.Duration(m.rand.IntN(5)) * time.Second)
	x.e.TerminationFailed(x.retryAt)
}

func (m *model) execution(x *modelled) {
	m.doing = "execution"
	if x.executions > 0 && m.chance(60) {
		x.e.EndExecution()
		x.executions--
		return
	}
	err := x.e.BeginExecution()
	if x.state == registry.Pausing || x.state == registry.Paused || x.state == registry.Resuming {
		m.want(sdk.CodeOf(err) == sdk.CodeConflict, "a conflict: %v", err)
		return
	}
	m.want(err == nil, "an execution: %v", err)
	x.executions++
}

func (m *model) switchIt(x *modelled) {
	m.doing = "pause or resume"
	if x.switching {
		done := m.chance(70)
		own := x.endPause
		x.switching, x.endPause = false, false
		if own && !done {
			m.failPause(x)
			return
		}
		x.e.EndSwitch(done)
		switch {
		case !x.spec.PauseAtEnd || !done:
		case x.state == registry.Pausing:
			x.failing, x.pauseAgain, x.expires = time.Time{}, time.Time{}, x.deadline
		case x.state == registry.Resuming:
			x.lastUsed = time.Now()
			x.expires = first(time.Now().Add(x.spec.TTL), x.deadline)
		}
		event := map[registry.State]map[bool]registry.Event{
			registry.Pausing:  {true: registry.PauseDone, false: registry.PauseFailed},
			registry.Resuming: {true: registry.ResumeDone, false: registry.ResumeFailed},
		}[x.state][done]
		m.move(x, event)
		return
	}
	pause := m.chance(50)
	err := x.e.BeginSwitch(pause)
	if pause && x.executions > 0 {
		m.want(sdk.CodeOf(err) == sdk.CodeConflict, "a conflict: %v", err)
		return
	}
	m.want(err == nil, "success: %v", err)
	x.switching = true
	switch {
	case pause && x.state == registry.Running:
		m.move(x, registry.PauseBegun)
	case !pause && x.state == registry.Paused:
		m.move(x, registry.ResumeBegun)
	}
}

// failPause says that an end could not have an instance paused: it runs for a time, or is
// destroyed.
func (m *model) failPause(x *modelled) {
	hopeless := m.chance(30)
	x.e.EndPauseFailed(hopeless)
	if !m.move(x, registry.PauseFailed) {
		return
	}
	if x.failing.IsZero() {
		x.failing = time.Now()
	}
	x.pauseAgain = time.Now().Add(15 * time.Second)
	if hopeless || time.Since(x.failing) >= 5*time.Minute {
		x.pauseAgain = time.Time{}
		m.retireExpired(x)
	}
}

func (m *model) home(x *modelled) {
	m.doing = "home"
	e, _ := m.reg.Home(x.key())
	owner := m.owners[x.key()]
	if m.expire(owner) {
		owner = nil
	}
	m.want(owner == nil && e == nil || owner != nil && e == owner.e, "the session's own")
}

func (m *model) charged(x *modelled) {
	m.doing = "charged"
	next := time.Now().Add(time.Duration(m.rand.IntN(3)) * time.Second)
	if m.chance(20) {
		next = time.Time{}
	}
	x.e.Charged(next)
	if x.charge = next; x.state == registry.Gone {
		x.charge = time.Time{}
	}
}

func (m *model) superseded(x *modelled) {
	m.doing = "superseded"
	n := 0
	for _, y := range m.all {
		if y.id.Tenant == x.id.Tenant && y.id.Session == x.id.Session && (y.state >= registry.Draining || y.state.Detached()) {
			n++
		}
	}
	got := x.e.Superseded()
	m.want(len(got) == n, "%d were given up, not %d", n, len(got))
}

func (m *model) adopt(x *modelled) {
	m.doing = "adopt"
	owner := m.catalog[slices.IndexFunc(m.catalog, func(p *provider) bool { return p.label == x.label })]
	listed := sdk.Instance{ID: cmp.Or(x.left.Made, "box-"+x.id.Instance)}
	if m.chance(5) {
		listed.ID = cmp.Or(pick(m, m.all...).sandbox, listed.ID)
	}
	left := x.left
	event := registry.Adopted
	if left.Paused {
		event = registry.AdoptedPaused
	}
	other := m.owners[x.key()]
	_, adopted := x.e.Adopt(owner, listed, 30*time.Second, always)
	want := left.Adoptable() && !m.taken(x, listed.ID) && (other == nil || other == x) && m.move(x, event)
	m.want(adopted == want, "adopted: %t", want)
	if !want {
		return
	}
	x.provider, x.sandbox, x.noted, x.note, x.charge = owner, listed.ID, left.Used, -1, time.Time{}
	x.spec = registry.Spec{TTL: left.TTL, Idle: left.Idle, Fixed: left.Fixed, PauseAtEnd: left.PauseAtEnd, FrontDoor: left.FrontDoor}
	if left.Made == "" {
		m.begin(x, left.Intended, time.Time{})
	} else {
		x.lastUsed, x.expires, x.deadline = left.Created, left.Expires, left.Deadline
	}
	if left.Used {
		m.use(x)
	}
	m.own(x)
}

func (m *model) settle(x *modelled) {
	m.doing = "settle"
	_, ok := x.e.Settle(registry.Tombstone{ID: x.id, At: time.Now(), Reason: registry.ReasonRestart})
	want := x.state.Left() && m.move(x, registry.Vanished)
	m.want(ok == want, "settled: %t", want)
}
