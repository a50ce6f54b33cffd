package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// CreateRequest asks for an instance.
type CreateRequest struct {
	// Session of the tenant; empty for one of the service's own making.
	Session string
	// Template or Language say what the instance is for; both may be empty.
	Template, Language string
	// Provider by label; empty for the usual one.
	Provider string
	// Requirements are packages of the language, or of the template's first, to
	// install before Create returns.
	Requirements []string
	// Env is added to the environment of every execution.
	Env map[string]string
	// Labels are the tenant's own notes, by which it finds instances again.
	Labels map[string]string
	// TTL is how long it lives from its creation, and again from the end of
	// each use; zero means the default.
	TTL time.Duration
	// Idle is how long it may be unused before it is destroyed, whatever is
	// left of the TTL; zero means the longest there is.
	Idle time.Duration
	// Key is the caller's own name for this request; empty for none. Without a
	// session, one that is made from the key takes its place: who asks again with
	// the key gets the same instance.
	Key string

	// oneShot instances are destroyed after one execution.
	oneShot bool

	// Wait is how long it may wait for its turn where a quota or the provider has
	// no room.
	Wait time.Duration

	// Languages and Capabilities that the provider must have; the request for one
	// by name is refused without them.
	Languages    []string
	Capabilities []sdk.Capability

	turn turn
	// granted, if not nil, is for a fresh instance.
	granted *quota.Instance
	way     onTheWay
}

// Create returns the session's instance on that provider, made now if there was
// none; created says which. Errors carry SB001, SB004, SB008, SB009, SB010,
// SB012 or SB014.
func (s *Service) Create(ctx context.Context, who tenant.Tenant, req CreateRequest) (info Info, created bool, err error) {
	if err := s.begin(); err != nil {
		return Info{}, false, err
	}
	defer s.calls.Done()
	if err := checkCreate(req, s.limits()); err != nil {
		return Info{}, false, err
	}
	if err := (needs{capabilities: req.Capabilities}).known(s.catalog.Providers()); err != nil {
		return Info{}, false, err
	}
	if req.turn, err = s.newTurn(req.Wait); err != nil {
		return Info{}, false, err
	}
	if req.Session == "" && req.Key != "" {
		req.Session = sessionOfKey(req.Key)
	}
	t, e, created, err := s.obtain(ctx, who, req)
	if err != nil {
		return Info{}, false, err
	}
	if len(req.Requirements) > 0 {
		if err := s.installAtCreation(ctx, e, t, req.Requirements); err != nil {
			if created {
				s.undo(e)
			}
			s.release(e)
			return Info{}, false, err
		}
	}
	info = s.finishCreate(e, created)
	s.awaitNote(e)
	failpoint.Hit(failpoint.CreateAnswer)
	return info, created, nil
}

// finishCreate gives back the hold that the creation took.
func (s *Service) finishCreate(e *entry, created bool) Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !created { // who asks for it again uses it
		e.use(now)
	}
	s.drop(e)
	return e.info(now)
}

// obtain finds out where an instance belongs and acquires it there.
func (s *Service) obtain(ctx context.Context, who tenant.Tenant, req CreateRequest) (t target, e *entry, created bool, err error) {
	w := wish{
		tenant: who, session: req.Session, provider: req.Provider, template: req.Template, language: req.Language,
		needs: needs{languages: req.Languages, capabilities: req.Capabilities},
	}
	err = s.route(ctx, w, req.Wait, func(st *stop) (err error) {
		t = st.target
		if t.language == "" {
			t.language = t.templateLanguage()
		}
		if err := s.installable(ctx, t, req.Requirements); err != nil {
			if s.moved(w, t.provider) {
				return errMoved
			}
			return st.unfit(err)
		}
		req.way = st.way
		e, created, err = s.acquire(ctx, who, t, req)
		return err
	})
	return t, e, created, err
}

// acquire returns the session's instance, made now if need be, with a hold on
// it that the caller releases. It returns errMoved when the target is no longer
// where the session belongs.
func (s *Service) acquire(ctx context.Context, who tenant.Tenant, t target, req CreateRequest) (e *entry, created bool, err error) {
	session := req.Session
	if session == "" {
		session = cmp.Or(req.way.session, "s-"+randomName())
	}
	key := sessionKey{who.Name, session, t.provider.Label()}
	for {
		s.mu.Lock()
		if s.removed(who) {
			s.mu.Unlock()
			return nil, false, noSuchTenant()
		}
		e, found := s.sessions[key]
		if found && s.retire(e, time.Now()) {
			found = false
		}
		if found && e.provider != t.provider || !found && !s.offers(t.provider) {
			s.mu.Unlock()
			return nil, false, errMoved
		}
		if found {
			if err := e.conflict(req); err != nil {
				s.mu.Unlock()
				return nil, false, err
			}
			e.shared = true
			if e.state == live {
				e.holds++
				s.noteUse(e)
				s.mu.Unlock()
				return e, false, nil
			}
		} else {
			if e, err = s.resumeCreation(ctx, key, t, req); err != nil {
				s.mu.Unlock()
				return nil, false, &Fault{Provider: t.provider.Label(), Err: err}
			}
			if e == nil && req.way.joins {
				s.mu.Unlock()
				return nil, false, errMoved
			}
			if e == nil {
				if err := s.awaitsLists(t.provider, req.Session); err != nil {
					s.mu.Unlock()
					return nil, false, &Fault{Provider: t.provider.Label(), Err: err, elsewhere: req.Session == "" && req.way.others}
				}
				id := ID{Tenant: key.tenant, Session: key.session, Instance: randomName()}
				e = s.startCreation(ctx, id, t, req)
			}
		}
		e.waiters++
		late := e.state == unsettled || e.abandoned
		s.mu.Unlock()

		again, err := s.await(ctx, e, late, req.way)
		forsaken := errors.Is(err, errForsaken)
		elsewhere := forsaken || err != nil && req.way.others && ctx.Err() == nil && e.certain() && e.verdict == refused
		spilled := e.maxQueue != nil && e.certain() && sdk.CodeOf(err) == sdk.CodeQuotaExceeded
		if found && !elsewhere && (spilled && !req.way.others || req.turn.waitsLonger(err)) {
			continue
		}
		switch {
		case errors.Is(err, errMoved):
			return nil, false, err
		case err != nil:
			return nil, false, &Fault{Provider: t.provider.Label(), Err: err, elsewhere: elsewhere, spilled: spilled, doubtful: s.doubtful(e, err)}
		}
		if !again {
			if !found {
				s.observeFailOver(e)
			}
			return e, !found, nil
		}
	}
}

// startCreation registers an instance and makes it in the background: several
// callers may wait for it, and it goes on as long as one of them does. The
// caller holds mu, and ctx only says why.
func (s *Service) startCreation(ctx context.Context, id ID, t target, req CreateRequest) *entry {
	ctx, cancel := s.bounded(context.WithoutCancel(ctx), req.Wait+req.way.left)
	e := &entry{
		id:       id,
		provider: t.provider,
		template: t.template,
		ttl:      cmp.Or(req.TTL, s.limits().DefaultTTL),
		idle:     cmp.Or(req.Idle, s.limits().MaxIdle),
		labels:   maps.Clone(req.Labels),
		claimed:  req.Session != "",
		oneShot:  req.oneShot,
		intended: time.Now(),
		created:  time.Now(),
		ready:    make(chan struct{}),
		unclear:  make(chan struct{}),
		left:     make(chan struct{}),
		cancel:   cancel,

		installing: make(chan struct{}, 1), makingContext: make(chan struct{}, 1),
		routing: req.way.routing,
	}
	if req.way.others {
		e.maxQueue = &req.way.patience.Full
	}
	s.entries[e.id.String()] = e
	s.sessions[e.sessionKey()] = e
	s.calls.Add(1) // under mu and by a caller that is counted itself
	s.tasks.Go("create", func() {
		defer s.calls.Done()
		defer cancel()
		var err error = sdk.Errorf(sdk.CodeInternal, "the creation of an instance panicked")
		e.verdict = unclear // unless it ends by itself
		e.doubt.until = proofOf(e.provider, false)
		unnoted := false
		defer func() { s.finishCreation(e, unnoted, err) }()
		made, failure := s.makeAdmitted(ctx, e, t, req)
		if failure == nil {
			unnoted, failure = s.noteMade(e, made)
		}
		err = failure
	})
	return e
}

// make calls the provider and puts its failures into words.
func (s *Service) make(ctx context.Context, e *entry, t target, env map[string]string) (made sdk.Instance, err error) {
	err = s.noteGivenUp(ctx, e)
	if err == nil {
		s.mu.Lock()
		record := e.record()
		s.mu.Unlock()
		err = s.journalOf(e).Write(ctx, record)
	}
	if err != nil {
		e.verdict = ours
		return sdk.Instance{}, err
	}
	failpoint.Hit(failpoint.CreateIntended)
	labels := map[string]string{
		sdk.LabelTenant:   e.id.Tenant,
		sdk.LabelSession:  e.id.Session,
		sdk.LabelInstance: e.id.Instance,
	}
	if s.brokerID != "" {
		labels[sdk.LabelBroker] = s.brokerID
	}
	began := time.Now()
	made, err = t.ready.Create(ctx, sdk.CreateRequest{
		MaxQueue: e.maxQueue,
		Template: t.template,
		Labels:   labels,
		Env:      env,
		// The end of an instance is ours to decide; the provider's limit is
		// there for the day when nobody is left to destroy.
		TTL:            s.limits().MaxLifetime + s.limits().slack(),
		IdempotencyKey: e.id.String(),
	})
	s.judge(ctx, e, time.Since(began), err)
	if err == nil {
		failpoint.Hit(failpoint.CreateMade)
		return made, nil
	}
	label := e.provider.Label()
	switch code := sdk.CodeOf(err); {
	case errors.Is(context.Cause(ctx), errShuttingDown):
		return made, shuttingDown()
	case notAsked(err):
		return made, err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return made, sdk.Errorf(sdk.CodeCreateFailed, "provider %q made no instance within %s", label, s.limits().CreateTimeout)
	case ctx.Err() != nil: // nobody waits any more
		return made, err
	case brokenOff(err):
		return made, sdk.Errorf(sdk.CodeCreateFailed, "provider %q broke off the creation", label)
	case code == sdk.CodeExecutionTimeout, code == sdk.CodeOutOfMemory, code == sdk.CodeBlocked:
		// These tell what became of code; there is none yet.
		return made, sdk.Errorf(sdk.CodeCreateFailed, "provider %q: %w", label, err)
	default:
		return made, providerError(label, err)
	}
}

// finishCreation publishes the outcome. An instance that nobody waits for any more, or
// that could not be written down, is destroyed; what an unclear creation has left is
// found out first.
func (s *Service) finishCreation(e *entry, unnoted bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.err = err
	switch {
	case s.entries[e.id.String()] != e: // lost with its provider meanwhile
	case s.isLost(e.provider): // whatever it has left, nobody can ask
		if e.verdict == unclear {
			e.verdict = refused
		}
		s.lose(e, reasonRemoved)
	case unnoted:
		s.hide(e)
		s.destroyLater(e)
	case err != nil && e.verdict == unclear:
		s.unsettle(e)
		return
	case err != nil:
		s.hide(e)
		s.forget(e)
	case e.waiters == 0, e.forsaken, e.disowned: // its callers went away or elsewhere meanwhile
		s.hide(e)
		s.destroyLater(e)
	default:
		e.state = live
	}
	close(e.ready)
}

// certain reports whether it is known how the creation has ended.
func (e *entry) certain() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// inUse reports whether an entry has the provider's instance already, or what an
// earlier process left: no two sessions ever share one. The caller holds mu.
func (s *Service) inUse(provider Provider, id string) bool {
	for _, other := range s.entries {
		if other.instance.ID == id && other.provider.Label() == provider.Label() {
			return true
		}
	}
	_, left := s.byProvidersID(provider)[id]
	return left
}

// await waits until the entry is ready and takes a hold on it. It says again when the
// instance ended before the hold was taken. late means that its creation had failed, or
// was given up, before the caller came: when that has left nothing it returns errMoved.
func (s *Service) await(ctx context.Context, e *entry, late bool, way onTheWay) (again bool, err error) {
	err = s.awaitReady(ctx, e, late, way)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.waiters--
	if !e.certain() && e.waiters == 0 && e.state == creating && !e.forsaken {
		e.abandoned = true
		e.cancel()
	}
	switch {
	case !e.certain(), errors.Is(err, errForsaken), errors.Is(err, errMoved):
		return false, err
	case e.err != nil && late:
		return false, errMoved // to wherever it belongs now
	case e.err != nil:
		return false, e.err
	case e.state != live:
		return true, nil
	}
	e.holds++
	return false, nil
}

// release ends a use: it gives back a hold that acquire or hold took.
func (s *Service) release(e *entry) {
	s.mu.Lock()
	e.use(time.Now())
	s.noteUse(e)
	s.drop(e)
	s.mu.Unlock()
	s.awaitNote(e)
}

// drop gives back a hold. The caller holds mu.
func (s *Service) drop(e *entry) {
	e.holds--
	if e.holds == 0 && e.doomed {
		s.destroyLater(e)
	}
}

// hide makes an entry invisible and frees its session. The caller holds mu.
func (s *Service) hide(e *entry) {
	e.state = ending
	if key := e.sessionKey(); s.sessions[key] == e {
		delete(s.sessions, key)
	}
}

func checkCreate(req CreateRequest, limits Limits) error {
	if req.Session != "" && !sessionName.MatchString(req.Session) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "session_id", "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	if req.TTL < 0 || req.TTL > limits.MaxLifetime {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0 and at most %s", seconds(limits.MaxLifetime))
	}
	if req.Idle < 0 || req.Idle > limits.MaxIdle {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "idle", "must be more than 0 and at most %s", seconds(limits.MaxIdle))
	}
	if err := checkLabels(req.Labels); err != nil {
		return err
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return err
	}
	return checkEnv(req.Env)
}

// conflict says where the request names something else than the session's
// instance is. What it does not name does not matter.
func (e *entry) conflict(req CreateRequest) error {
	switch {
	case req.Template != "" && req.Template != e.template:
		return sdk.FieldErrorf(sdk.CodeConflict, "template", "the session already has an instance of the template %q", e.template)
	case req.TTL != 0 && req.TTL != e.ttl:
		return sdk.FieldErrorf(sdk.CodeConflict, "ttl", "the session already has an instance with a ttl of %s; renew that to move its end", seconds(e.ttl))
	case req.Idle != 0 && req.Idle != e.idle:
		return sdk.FieldErrorf(sdk.CodeConflict, "idle", "the session already has an instance with an idle limit of %s", seconds(e.idle))
	default:
		return nil
	}
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%g seconds", d.Seconds())
}
