package registry

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Spec is what an instance is from its creation on.
type Spec struct {
	Template string
	// Image is what the template was built to, where it is one of the operator.
	Image  string
	TTL    time.Duration // what a use leaves at least
	Idle   time.Duration // the limit of disuse
	Labels map[string]string
	// Claimed, OneShot, Fixed and PauseAtEnd are as in its Record, and so are FrontDoor and
	// Note.
	Claimed, OneShot, Fixed, PauseAtEnd bool
	FrontDoor, Note                     string
	// From is what it goes on from: the ID of a snapshot, or of an instance that it is a
	// fork of. It is empty for a fresh one.
	From string
	// Fork is as in its Record.
	Fork string
	// Carries is as in its Record.
	Carries string
	// Volumes that it has.
	Volumes []Volume
	// Network is what its creation asked for, and is not changed; nil for what its tenant has.
	Network *network.Request
	// Intended is when its creation began.
	Intended time.Time
	// Routing is why it is on its provider.
	Routing routing.Placement
	// MaxQueue is how long its creation may wait for room; nil for as long as the
	// provider likes.
	MaxQueue *time.Duration
}

// Outcome is what a creation that has ended means.
type Outcome int

const (
	// Ours: it failed for a reason of the request or the broker, would elsewhere, and
	// has made nothing; or it did not fail.
	Ours Outcome = iota
	// Refused: the provider could not, and has certainly made nothing.
	Refused
	// Uncertain: the provider could not, or did not say, and may have made something.
	Uncertain
	// Unrecorded: it was made, and the journal did not take it.
	Unrecorded
)

// Instance is a snapshot of an entry. Its maps are not to be changed.
type Instance struct {
	Spec
	ID ID
	// Provider is nil as long as nobody has adopted what an earlier process left.
	Provider routing.Provider
	Label    string // of the provider
	State    State
	// Sandbox is what the provider made.
	Sandbox sdk.Instance
	// Permit is what the quotas count for it; nil until its creation has ended.
	Permit *quota.Instance

	// Outcome and Failure say how its creation has ended, and AmbiguousSince when, if
	// that was without a clear answer.
	Outcome        Outcome
	Failure        error
	AmbiguousSince time.Time
	// Cancelled means that nobody waited for its creation any more.
	Cancelled bool

	Created  time.Time // when the creation began, and once it has ended well, when that was
	LastUsed time.Time
	Expires  time.Time // moved by renewal, and by use unless it is Fixed, up to Deadline
	Deadline time.Time // no new work from then on

	// Installed are the sets of requirements that were, and Contexts the default contexts
	// by language.
	Installed map[string]bool
	Contexts  map[string]string
	// Governed is the fingerprint of the network that its provider was told of last; nil if
	// nobody in this process has told it.
	Governed *string

	Waiters    int // who waits for its creation
	Holds      int // uses in progress
	Executions int // among them
	// StopReason is what executions in it are told, if somebody destroyed it with them.
	StopReason string
	// NotKept means that it is destroyed because nobody asked to keep it.
	NotKept bool
	// EndPause means that it is being paused because its time is over.
	EndPause bool
	// UseNoted means that the journal knows, or is being told, that it was used.
	UseNoted bool
	// Left is the record of an earlier process, as long as no more is known, and Loaded when
	// it came to the registry.
	Left   Record
	Loaded time.Time
	// Changed closes when the state is another one.
	Changed <-chan struct{}
}

// Paused reports whether it is shown as paused: it takes no executions.
func (i Instance) Paused() bool { return paused(i.State, i.EndPause) }

func paused(state State, endPause bool) bool {
	return state == Paused || state == Resuming || endPause
}

// Entry is the handle of an instance. All its methods may be called concurrently.
type Entry struct {
	registry *Registry
	id       ID
	name     string // the ID as text
	label    string

	// All below is guarded by the registry's lock.
	Spec
	provider       routing.Provider
	state          State
	changed        chan struct{}
	cancel         context.CancelFunc // of the creation
	left           Record
	loaded         time.Time
	sandbox        sdk.Instance
	sandboxID      string // also of one that is left
	permit         *quota.Instance
	outcome        Outcome
	failure        error
	ambiguousSince time.Time
	cancelled      bool
	created        time.Time
	lastUsed       time.Time
	expires        time.Time
	deadline       time.Time
	retryAt        time.Time // of a destruction that failed
	installed      map[string]bool
	contexts       map[string]string
	governed       *string
	waiters        int
	holds          int
	executions     int
	switching      bool // it is being paused or resumed
	endPause       bool // its end has it paused
	endPauseFailed failedPause
	quiet          chan struct{} // closed when there are no executions; nil if nobody waits
	shared         bool          // somebody got it beside who had it made
	stopReason     string
	notKept        bool
	tenantRemoved  bool
	useNoted       bool
	useWritten     chan struct{} // closed when the journal was told; nil if it never was
	reason         string        // for its owner, why it ended
	buried         bool          // the journal knows that it ended, or nothing of it
	alarms         map[*alarm]struct{}
	expiryAt       int // places in the queues, less than 0 for none
	chargeAt       int
}

// ID never changes.
func (e *Entry) ID() ID { return e.id }

// Label of the provider never changes.
func (e *Entry) Label() string { return e.label }

func (e *Entry) sessionKey() SessionKey { return SessionKey{e.id.Tenant, e.id.Session, e.label} }

// byID orders entries of one tenant.
func byID(a, b *Entry) int { return strings.Compare(a.name, b.name) }

// Snapshot returns how the instance is now.
func (e *Entry) Snapshot() Instance {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	return e.snapshot()
}

func (e *Entry) snapshot() Instance {
	i := Instance{
		Spec: e.Spec, ID: e.id, Provider: e.provider, Label: e.label, State: e.state, Sandbox: e.sandbox, Permit: e.permit,
		Outcome: e.outcome, Failure: e.failure, AmbiguousSince: e.ambiguousSince, Cancelled: e.cancelled,
		Created: e.created, LastUsed: e.lastUsed, Expires: e.expires, Deadline: e.deadline,
		Installed: e.installed, Contexts: e.contexts, Governed: e.governed,
		Waiters: e.waiters, Holds: e.holds, Executions: e.executions,
		StopReason: e.stopReason, NotKept: e.notKept, EndPause: e.endPause, UseNoted: e.useNoted, Left: e.left, Loaded: e.loaded, Changed: e.changed,
	}
	return i
}

// AskNetwork puts what the owner asks for in the place of what the creation asked for.
func AskNetwork(e *Entry, asked *network.Request) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.Network = asked
}

// Govern notes the fingerprint of the network that the provider was told of.
func Govern(e *Entry, fingerprint string) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	e.governed = &fingerprint
}

// locked runs change and sets the time at which the entry is to be looked at next.
func (e *Entry) locked(change func()) {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	change()
	e.schedule()
}

// Release ends a use, which counts as one until now.
func (e *Entry) Release() {
	e.locked(func() {
		e.use(time.Now())
		e.noteUse()
		e.drop()
	})
}

// Drop gives a hold back, which counts as a use only if it was one, and returns how the
// instance is then.
func (e *Entry) Drop(used bool) (i Instance) {
	e.locked(func() {
		if used {
			e.use(time.Now())
		}
		e.drop()
		i = e.snapshot()
	})
	return i
}

// drop gives back a hold.
func (e *Entry) drop() {
	e.holds--
	if e.holds == 0 && e.state == Draining {
		e.terminate()
	}
}

// terminate has a visible or draining instance destroyed.
func (e *Entry) terminate() {
	if e.registry.transition(e, Terminate) == nil {
		e.registry.effects.Terminate(e)
	}
}

// noteUse has it written down that its end is moved by use: once, and once more after
// each renewal, which may come while the journal has not taken the note before.
func (e *Entry) noteUse() {
	if e.useNoted || e.OneShot || e.Fixed {
		return
	}
	written := make(chan struct{})
	e.useNoted, e.useWritten = true, written
	e.registry.effects.NoteUse(e, func(done bool) {
		e.registry.mu.Lock()
		defer e.registry.mu.Unlock()
		if !done && e.useWritten == written {
			e.useNoted = false // the next use tries again
		}
		close(written)
	})
}

// AwaitUse waits until it is durable that the instance was used, before anybody is told
// how long it stays. What it waits for has a deadline.
func (e *Entry) AwaitUse() {
	e.registry.mu.Lock()
	written := e.useWritten
	e.registry.mu.Unlock()
	if written != nil {
		<-written
	}
}

// Discard has a held instance destroyed when nobody uses it any more; nobody finds it
// from now on. With unlessShared it stays if somebody else has asked for it meanwhile.
func (e *Entry) Discard(unlessShared bool) {
	e.locked(func() {
		if e.state.Visible() && (!unlessShared || !e.shared) {
			e.notKept = true
			e.retire()
		}
	})
}

// retire ends a visible instance: at once, or when those who use it have ended.
func (e *Entry) retire() {
	if e.holds > 0 {
		_ = e.registry.transition(e, Drain)
		return
	}
	e.terminate()
}

// TerminationFailed has the destruction tried again at a time.
func (e *Entry) TerminationFailed(retryAt time.Time) {
	e.locked(func() { e.retryAt = retryAt })
}

// Tombstone is what will be remembered of the instance.
func (e *Entry) Tombstone() Tombstone {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	return e.tombstone()
}

// Terminated ends an instance whose provider has confirmed that it is no more. The
// journal knows the tombstone already.
func (e *Entry) Terminated(t Tombstone) {
	e.locked(func() {
		e.registry.tombstones.add(t)
		e.buried = true
		_ = e.registry.vanish(e, Vanished, "")
	})
}

// Lose ends an instance that is no more, with the reason for its owner. It reports
// whether that was still in the registry.
func (e *Entry) Lose(reason string) (lost bool) {
	e.locked(func() { lost = e.registry.vanish(e, Vanished, reason) == nil })
	return lost
}

// Renew moves the end of an instance's time to ttl from now, and never beyond its
// maximum lifetime; 0 stands for its own TTL.
func (e *Entry) renew(now time.Time, ttl, most time.Duration) {
	if ttl == 0 {
		ttl = e.TTL
	}
	e.lastUsed, e.useNoted = now, false // the next use is to be noted again
	e.endPauseFailed = failedPause{}
	e.moveEnd(earlier(now.Add(min(ttl, most)), e.deadline), e.deadline)
}

// BeginExecution counts an execution in. The error is SB014 for an instance that is
// paused.
func (e *Entry) BeginExecution() (err error) {
	e.locked(func() {
		switch e.state {
		case Pausing, Resuming:
			err = conflict("the instance is being paused or resumed by another request")
		case Paused:
			err = conflict("the instance is paused; resume it first")
			if e.switching {
				err = conflict("the instance is being paused or resumed by another request")
			}
		default:
			e.executions++
		}
	})
	return err
}

// EndExecution counts it out.
func (e *Entry) EndExecution() {
	e.locked(func() {
		if e.executions--; e.executions == 0 && e.quiet != nil {
			close(e.quiet)
			e.quiet = nil
		}
	})
}

// Quiet returns what is closed when the instance has no executions.
func (e *Entry) Quiet() <-chan struct{} {
	e.registry.mu.Lock()
	defer e.registry.mu.Unlock()
	if e.executions == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if e.quiet == nil {
		e.quiet = make(chan struct{})
	}
	return e.quiet
}

// BeginSwitch has the caller pause or resume the instance, one at a time. What was paused
// or is to be takes no execution meanwhile; one that runs goes on to, while its provider
// is asked to make certain of it. The error is SB014.
func (e *Entry) BeginSwitch(pause bool) (err error) {
	e.locked(func() {
		switch {
		case e.switching:
			err = conflict("the instance is being paused or resumed by another request")
		case pause && e.executions > 0:
			err = conflict("the instance has executions in progress; wait for them or interrupt them")
		case pause && e.state == Running:
			err = e.registry.transition(e, PauseBegun)
		case !pause && e.state == Paused:
			err = e.registry.transition(e, ResumeBegun)
		}
		if err == nil {
			e.switching = true
		}
	})
	return err
}

// EndSwitch says whether it worked. An instance that was ended meanwhile stays so. One that
// is paused at its end is kept as long as any may live, and has its own TTL when it was
// resumed.
func (e *Entry) EndSwitch(done bool) {
	e.locked(func() {
		e.endSwitch()
		switch {
		case !e.PauseAtEnd || !done:
		case e.state == Pausing:
			e.endPauseFailed = failedPause{}
			e.moveEnd(e.deadline, e.deadline)
		case e.state == Resuming:
			now := time.Now()
			e.lastUsed = now
			e.moveEnd(earlier(now.Add(e.TTL), e.deadline), e.deadline)
		}
		switch {
		case e.state == Pausing && done:
			_ = e.registry.transition(e, PauseDone)
		case e.state == Pausing:
			_ = e.registry.transition(e, PauseFailed)
		case e.state == Resuming && done:
			_ = e.registry.transition(e, ResumeDone)
		case e.state == Resuming:
			_ = e.registry.transition(e, ResumeFailed)
		}
	})
}

func conflict(text string) error { return sdk.Errorf(sdk.CodeConflict, "%s", text) }

// SetInstalled remembers a set of requirements.
func (e *Entry) SetInstalled(set string) {
	e.locked(func() {
		installed := maps.Clone(e.installed)
		if installed == nil {
			installed = map[string]bool{}
		}
		installed[set] = true
		e.installed = installed
	})
}

// SetContext remembers the default context of a language; without an ID there is none.
// It returns all of them.
func (e *Entry) SetContext(language, id string) (contexts map[string]string) {
	e.locked(func() {
		contexts = maps.Clone(e.contexts)
		if contexts == nil {
			contexts = map[string]string{}
		}
		contexts[language] = id
		if id == "" {
			delete(contexts, language)
		}
		e.contexts = contexts
	})
	return contexts
}

// Charged says when the instance is to be charged next, the zero time for never.
func (e *Entry) Charged(next time.Time) {
	e.locked(func() {
		if e.state == Gone {
			next = time.Time{}
		}
		e.registry.charging.set(e, next)
	})
}

// Shorten ends the time of an instance that is not paid for beyond then.
func (e *Entry) Shorten(until time.Time) {
	e.locked(func() { e.moveEnd(earlier(e.expires, until), earlier(e.deadline, until)) })
}
