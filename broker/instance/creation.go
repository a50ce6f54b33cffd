package instance

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/tracing/span"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// creations make instances. A creation goes on in the background as long as one of those
// who want its instance waits for it.
type creations struct {
	*lifecycle
	catalog    Catalog
	registry   claims
	reconciler *reconcile.Reconciler
	journal    recorder
	admission  admission
	router     Router
	observer   Observer
	networks   *networks
	brokerID   string
}

// claims give a session its instance, or the leave to make it; registry.Registry does.
type claims interface {
	homes
	Claim(c registry.Claim) (registry.Claimed, error)
}

// acquire returns the session's instance, made now if need be, with a hold on
// it that the caller releases. It returns registry.ErrMoved when the target is no longer
// where the session belongs.
func (c *creations) acquire(ctx context.Context, who tenant.Tenant, t target, req CreateRequest) (e *registry.Entry, created bool, err error) {
	session := req.Session
	if session == "" {
		session = cmp.Or(req.attempt.session, "s-"+randomName())
	}
	for {
		claimed, err := c.registry.Claim(c.claim(who, t, req, session))
		switch {
		case err != nil && claimed.Entry != nil:
			return nil, false, &Fault{Provider: t.provider.Label(), Err: err}
		case err != nil:
			return nil, false, err
		case claimed.Held:
			return claimed.Entry, false, nil
		case claimed.Begun:
			c.begin(ctx, claimed, who, t, req)
		}
		e := claimed.Entry
		again, err := c.await(ctx, e, claimed.Late, req.attempt)
		i := e.Snapshot()
		detached := errors.Is(err, errDetached)
		elsewhere := detached || err != nil && req.attempt.others && ctx.Err() == nil && i.State.Decided() && i.Outcome == registry.Refused
		spilled := i.MaxQueue != nil && i.State.Decided() && sdk.CodeOf(err) == sdk.CodeQuotaExceeded
		if !claimed.Begun && !elsewhere && (spilled && !req.attempt.others || req.turn.waitsLonger(err)) {
			continue
		}
		switch {
		case errors.Is(err, registry.ErrMoved):
			return nil, false, err
		case err != nil:
			return nil, false, &Fault{Provider: t.provider.Label(), Err: err, elsewhere: elsewhere, spilled: spilled, ambiguous: ambiguous(e, i, err)}
		}
		if !again {
			if claimed.Begun {
				c.observeFailOver(i)
			}
			return e, claimed.Begun, nil
		}
	}
}

// claim is what a request asks the registry for.
func (c *creations) claim(who tenant.Tenant, t target, req CreateRequest, session string) registry.Claim {
	spec := registry.Spec{
		Template: t.Template, Image: t.Image(),
		TTL:      cmp.Or(req.TTL, c.limits().DefaultTTL),
		Idle:     cmp.Or(req.Idle, c.limits().MaxIdle),
		Labels:   maps.Clone(req.Labels),
		Claimed:  req.Session != "",
		OneShot:  req.oneShot,
		Intended: time.Now(),
		Routing:  req.attempt.routing,
		Volumes:  slices.Clone(req.Volumes),

		Fixed: req.Fixed, PauseAtEnd: req.PauseAtEnd, FrontDoor: req.FrontDoor, Note: req.Note,
		Network: req.network,
	}
	if req.Snapshot != nil {
		spec.From = req.Snapshot.From
		if req.Snapshot.Fork {
			spec.Fork = req.Snapshot.SnapshotID
		}
	}
	if req.Fixed {
		spec.TTL = cmp.Or(req.TTL, c.limits().MaxLifetime)
		spec.Idle = c.limits().MaxLifetime // its end comes before
	}
	if req.attempt.others {
		spec.MaxQueue = &req.attempt.patience.Full
	}
	return registry.Claim{
		ID:       ID{Tenant: who.Name, Session: session, Instance: randomName()},
		Provider: t.provider,
		Guard: func() error {
			if c.catalog.Offer(who).Removed {
				return noSuchTenant()
			}
			return nil
		},
		Offered: func() bool { return offers(c.catalog, t.provider) },
		New: func() error {
			if err := c.reconciler.Complete(t.provider, req.Session); err != nil {
				return &Fault{Provider: t.provider.Label(), Err: err, elsewhere: req.Session == "" && req.attempt.others}
			}
			return nil
		},
		Matches: req.matches,
		Spec:    spec,
		Joins:   req.attempt.joins,
	}
}

// ambiguous returns a creation that failed with err and may have made something.
func ambiguous(e *registry.Entry, i registry.Instance, err error) *registry.Entry {
	if err == nil || !i.State.Detached() && !i.State.Unclear() {
		return nil
	}
	return e
}

// creation is the making of one instance, by one goroutine.
type creation struct {
	*creations
	e      *registry.Entry
	id     ID
	target target
	req    CreateRequest
	who    tenant.Tenant
	// permit is what the quotas have granted for it.
	permit  *quota.Instance
	outcome registry.Outcome
	search  evidence
}

// begin makes an instance that a Claim has begun. ctx only says why.
func (c *creations) begin(ctx context.Context, claimed registry.Claimed, who tenant.Tenant, t target, req CreateRequest) {
	ctx, cancel := c.bounded(context.WithoutCancel(ctx), req.Wait+req.attempt.left)
	if claimed.Retried != nil {
		req.granted, req.attempt.resumed = claimed.Permit, true // it counts already
		t.Template, t.Built = claimed.Retried.Template, retriedTemplate(claimed.Retried.Image)
	}
	e := claimed.Entry
	e.OnCancel(cancel)
	if req.Snapshot != nil {
		for language, id := range req.Snapshot.Contexts {
			e.SetContext(language, id)
		}
	}
	ctx, part := span.Start(ctx, "creation", span.Provider.String(t.provider.Label()))
	m := &creation{creations: c, e: e, id: e.ID(), who: who, target: t, req: req}
	c.calls.Add(1) // by a caller that is counted itself
	c.tasks.Go("create", func() {
		defer c.calls.Done()
		defer cancel()
		var err error = sdk.Errorf(sdk.CodeInternal, "the creation of an instance panicked")
		m.outcome = registry.Uncertain // unless it ends by itself
		m.search.proofAt = proofOf(t.provider, false)
		defer func() {
			m.finish(err)
			span.End(part, sdk.CodeOf(err))
		}()
		made, failure := m.makeAdmitted(ctx)
		if failure == nil {
			failure = m.noteMade(made)
		}
		err = failure
	})
}

// retriedTemplate is the template of a creation that an earlier process has begun, of which
// the journal has what it was built to.
func retriedTemplate(image string) *routing.Template {
	if image == "" {
		return nil
	}
	return &routing.Template{BuiltTemplate: sdk.BuiltTemplate{Image: image}}
}

// finish publishes the outcome, and has it found out what an ambiguous creation has left.
func (m *creation) finish(err error) {
	i := m.e.Created(m.outcome, err, m.permit)
	m.networks.made(i)
	if i.State.Unclear() {
		m.tasks.Go("resolve a creation", func() { m.resolve(i.Intended) })
	}
}

// make calls the provider and puts its failures into words.
func (m *creation) make(ctx context.Context) (made sdk.Instance, err error) {
	i := m.e.Snapshot()
	if err = m.journal.settle(ctx); err != nil {
		m.notIntended()
		m.outcome = registry.Ours
		return sdk.Instance{}, err
	}
	if err = m.journal.markSuperseded(ctx, m.e, i.Claimed); err == nil {
		err = m.journal.of(i).Write(ctx, i.Record())
	}
	if err != nil {
		m.outcome = registry.Ours
		return sdk.Instance{}, err
	}
	failpoint.Hit(failpoint.CreateIntended)
	labels := map[string]string{
		sdk.LabelTenant:   m.id.Tenant,
		sdk.LabelSession:  m.id.Session,
		sdk.LabelInstance: m.id.Instance,
	}
	if m.brokerID != "" {
		labels[sdk.LabelBroker] = m.brokerID
	}
	var source *sdk.SnapshotSource
	if from := m.req.Snapshot; from != nil {
		source = &sdk.SnapshotSource{ID: from.ProvidersID, Key: from.Key}
		ctx = effect.OfSnapshot(ctx, m.id.Tenant, from.SnapshotID)
	}
	policy := m.networks.wanted(m.who, m.target.provider, i.Network)
	began := time.Now()
	made, err = m.target.ready.Create(ctx, sdk.CreateRequest{
		Snapshot: source,
		MaxQueue: i.MaxQueue,
		Template: m.target.Template, Image: m.target.Image(),
		Labels: labels,
		Env:    m.req.Env,
		// The end of an instance is ours to decide; the provider's limit is
		// there for the day when nobody is left to destroy.
		TTL:            m.limits().MaxLifetime + m.limits().slack(),
		IdempotencyKey: m.id.String(),
		Reuse:          m.req.reuse,
		Volumes:        mountsOf(i.Volumes),
		Network:        policy,
	})
	m.judge(ctx, time.Since(began), err)
	if err == nil {
		failpoint.Hit(failpoint.CreateMade)
		if !m.req.attempt.resumed { // else it may have been made with another one, and is told again
			registry.Govern(m.e, network.Fingerprint(policy))
		}
		return made, nil
	}
	label := m.target.provider.Label()
	if lacksSnapshot(err) && m.outcome == registry.Refused {
		return made, sdk.FieldErrorf(sdk.CodeNotFound, fieldSnapshot, "provider %q does not have this snapshot any more", label)
	}
	switch sdk.CodeOf(err) {
	case sdk.CodeExecutionTimeout, sdk.CodeOutOfMemory, sdk.CodeBlocked:
		// These tell what became of code; there is none yet.
		err = sdk.Errorf(sdk.CodeCreateFailed, "provider %q: %w", label, err)
	}
	return made, providerCall{
		label: label, caller: ctx, ctx: ctx,
		late:   sdk.Errorf(sdk.CodeCreateFailed, "provider %q made no instance within %s", label, m.limits().CreateTimeout),
		broken: sdk.Errorf(sdk.CodeCreateFailed, "provider %q broke off the creation", label),
	}.told(err)
}

// makeAdmitted makes an instance that the quotas admit. While the provider has no
// room it waits for its turn there.
func (m *creation) makeAdmitted(ctx context.Context) (made sdk.Instance, err error) {
	for first := true; ; first = false {
		if first && m.req.granted != nil {
			if m.permit = m.req.granted.Take(); m.permit == nil {
				m.outcome = registry.Ours
				return made, fmt.Errorf("the request is over: %w", context.Canceled)
			}
		} else {
			m.journal.settleFirst(ctx)
			demand := quota.Demand{Tenant: m.id.Tenant, Instance: true, Provider: m.target.provider.Label(), Size: m.target.size()}
			grant, err := m.admission.admitAt(ctx, m.req.turn, demand, m.req.attempt.others)
			if err != nil {
				m.notIntended()
				m.outcome = registry.Ours
				if ofProvider(err) {
					m.outcome = registry.Refused
				}
				return made, err
			}
			m.permit = grant.Instance
		}
		made, err = m.makeWithin(ctx)
		switch {
		case err == nil || m.outcome == registry.Uncertain:
			return made, err
		case sdk.CodeOf(err) != sdk.CodeQuotaExceeded:
			if m.withdraw() {
				m.notIntended()
			}
			return made, err
		}
		if !m.withdraw() {
			return made, err
		}
		if m.req.attempt.others && retryAfter(err) == 0 {
			m.permit.Cancel() // there is room for those who wait longer
			return made, err
		}
		m.permit.Full(retryAfter(err))
		if m.req.turn.left() == 0 || m.req.attempt.others {
			return made, err
		}
	}
}

// notIntended says that the journal has no record of this creation, unless an earlier
// process has left one.
func (m *creation) notIntended() {
	if !m.req.attempt.resumed {
		m.permit.Cancel()
		m.e.NotIntended()
	}
}

// withdraw takes the intent back before the quotas give to others what they count for it:
// after a crash both would count. Where the journal does not take that, it goes on to
// count until it has.
func (m *creation) withdraw() (done bool) {
	if m.permit != nil && m.permit.Released() {
		return true // nothing was intended with it
	}
	ctx, cancel := m.noting()
	defer cancel()
	if err := m.journal.of(m.e.Snapshot()).End(ctx, Ended{ID: m.id, At: time.Now()}); err != nil {
		if !m.search.lived {
			m.permit.Unmade()
		}
		m.logger.Warn("an intent could not be taken back", "instance", m.id.String(), "error", err)
		return false
	}
	return true
}

// makeWithin bounds the provider's part in the making of an instance.
func (m *creation) makeWithin(ctx context.Context) (sdk.Instance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.req.attempt.left, errNoAnswer)
	defer cancel()
	made, err := m.make(ctx)
	if err != nil && m.req.attempt.resumed {
		// An earlier process may have made the instance: how the creation was answered
		// now speaks for this attempt alone.
		if m.outcome != registry.Uncertain {
			m.outcome = registry.Uncertain
			m.search = evidence{adoptable: !m.target.provider.Description().Ephemeral, proofAt: proofOf(m.target.provider, true)}
		}
		m.search.several = true
	}
	return made, err
}

func retryAfter(err error) time.Duration {
	if coded, ok := errors.AsType[*sdk.Error](err); ok {
		return coded.RetryAfter
	}
	return 0
}

// noteMade begins the time of an instance that was made, and writes that down
// before anybody is told.
func (m *creation) noteMade(made sdk.Instance) error {
	i, err := m.e.Made(made, m.limits().MaxLifetime)
	if err != nil {
		return err // and it is not this session's to destroy
	}
	if err = m.record(i); err != nil {
		m.outcome = registry.Unrecorded
	}
	return err
}

func (m *creation) record(i registry.Instance) error {
	if own := i.Sandbox.ExpiresAt; !own.IsZero() && !own.After(i.LastUsed) {
		return sdk.Errorf(sdk.CodeInternal, "provider %q made an instance that ended at %s, before it was there", i.Label, own.UTC().Format(time.RFC3339))
	}
	// Even if nobody waits any more: it may be there for long.
	ctx, cancel := m.noting()
	defer cancel()
	var err error
	if !i.OneShot { // else its intent is known, which will do
		err = m.journal.of(i).Write(ctx, i.Record())
	}
	failpoint.Hit(failpoint.CreateNoted)
	return err
}

// await waits until the creation has ended and takes a hold on the instance. It says
// again when that ended before the hold was taken. late means that its creation had
// failed, or was given up, before the caller came: when that has left nothing it returns
// registry.ErrMoved.
func (c *creations) await(ctx context.Context, e *registry.Entry, late bool, a attempt) (again bool, err error) {
	err = c.awaitDecision(ctx, e, late, a)
	turned := errors.Is(err, errDetached) || errors.Is(err, registry.ErrMoved)
	i, held := e.StopWaiting(!turned)
	switch {
	case !i.State.Decided(), turned:
		return false, err
	case i.Failure != nil && late:
		return false, registry.ErrMoved // to wherever it belongs now
	case i.Failure != nil:
		return false, i.Failure
	default:
		return !held, nil
	}
}

// observeFailOver tells which providers could not serve before this one did.
func (c *creations) observeFailOver(i registry.Instance) {
	for _, t := range i.Routing.Tried {
		c.observer.FailedOver(t.Provider, i.Label, t.Code)
	}
}

// Create returns the session's instance on that provider, made now if there was
// none; created says which. Errors carry SB001, SB004, SB008, SB009, SB010,
// SB012 or SB014.
func (s *Service) Create(ctx context.Context, who tenant.Tenant, req CreateRequest) (info Info, created bool, err error) {
	if err := s.begin(); err != nil {
		return Info{}, false, s.placing.stopping(ctx, who, req, err)
	}
	defer s.calls.Done()
	if err := checkCreate(req, s.limits()); err != nil {
		return Info{}, false, err
	}
	if err := network.Check(s.networks.tenantNow(who).Network, req.Network); err != nil {
		return Info{}, false, err
	}
	req.network = req.Network
	if req.Snapshot != nil {
		if req.network, err = network.Inherit(req.Snapshot.Network, req.Network); err != nil {
			return Info{}, false, err
		}
	}
	// Also for none: of a provider that governs no network nobody knows what there is.
	if req.network != nil && !slices.Contains(req.Capabilities, sdk.CapabilityNetwork) {
		req.Capabilities = append(slices.Clone(req.Capabilities), sdk.CapabilityNetwork)
	}
	if req.PauseAtEnd && !slices.Contains(req.Capabilities, sdk.CapabilityPause) {
		req.Capabilities = append(slices.Clone(req.Capabilities), sdk.CapabilityPause)
	}
	if req.Snapshot != nil {
		req.Capabilities = append(slices.Clone(req.Capabilities), sdk.CapabilitySnapshots)
	}
	if len(req.Volumes) > 0 {
		req.Capabilities = append(slices.Clone(req.Capabilities), sdk.CapabilityVolumes)
	}
	if err := (routing.Wanted{Capabilities: req.Capabilities}).KnownCapabilities(s.catalog.Providers()); err != nil {
		return Info{}, false, err
	}
	if req.turn, err = s.admission.newTurn(req.Wait); err != nil {
		return Info{}, false, err
	}
	if req.Session == "" && req.Key != "" {
		req.Session = SessionOfKey(req.Key)
	}
	if err := s.placing.elsewhere(ctx, who, req.wanted(), req.Session, req.Snapshot != nil || len(req.Volumes) > 0); err != nil {
		return Info{}, false, err
	}
	t, e, created, err := s.obtain(ctx, who, req)
	if err != nil {
		return Info{}, false, err
	}
	if len(req.Requirements) > 0 {
		if err := s.installAtCreation(ctx, e, t, req.Requirements); err != nil {
			if created {
				e.Discard(true) // it was made for nothing
			}
			s.release(e)
			return Info{}, false, err
		}
	}
	// Who asks again for an instance that there is uses it.
	info = infoOf(e.Drop(!created))
	e.AwaitUse()
	failpoint.Hit(failpoint.CreateAnswer)
	return info, created, nil
}

// obtain finds out where an instance belongs and acquires it there.
func (s *Service) obtain(ctx context.Context, who tenant.Tenant, req CreateRequest) (t target, e *registry.Entry, created bool, err error) {
	w := selector{tenant: who, session: req.Session, Wanted: req.wanted()}
	err = s.place(ctx, w, req.Wait, func(a *attempt) (err error) {
		t = a.target
		if t.Language == "" {
			t.Language = t.templateLanguage()
		}
		if err := s.installable(ctx, t, req.Requirements); err != nil {
			if s.providers.moved(w, t.provider) {
				return registry.ErrMoved
			}
			return a.unfit(err)
		}
		req.attempt = *a
		e, created, err = s.creations.acquire(ctx, who, t, req)
		return err
	})
	return t, e, created, err
}

// fieldSnapshot is the field that a provider names when it does not know a snapshot.
const fieldSnapshot = "snapshot"

func lacksSnapshot(err error) bool {
	coded, ok := errors.AsType[*sdk.Error](err)
	return ok && coded.Code == sdk.CodeNotFound && coded.Field == fieldSnapshot
}

// release ends a use that a hold stands for, and waits until it is durable that there was
// one.
func (s *Service) release(e *registry.Entry) {
	e.Release()
	e.AwaitUse()
}

// SessionOfKey names the session of a creation by the key that its caller gave it.
func SessionOfKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "k-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26])
}

// randomName returns 20 characters of [a-z2-7]: 100 bits, which nobody guesses.
func randomName() string {
	return strings.ToLower(rand.Text()[:20])
}

func noSuchTenant() error {
	return sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
}

// wanted is what an instance may reach; nil for nothing.
func (n *networks) wanted(who tenant.Tenant, p Provider, asked *network.Request) *sdk.NetworkPolicy {
	if !governs(p) {
		return nil
	}
	return network.Effective(n.tenantNow(who).Network, asked)
}

func governs(p Provider) bool {
	return slices.Contains(p.Description().Capabilities, sdk.CapabilityNetwork)
}

// made looks at an instance that was just made: its tenant's network may be another one by now.
func (n *networks) made(i registry.Instance) {
	if n.differs(i) {
		n.look()
	}
}
