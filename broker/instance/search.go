package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Router says in which order providers are asked for a new instance, and learns from
// what comes of it; routing.Router is it.
type Router interface {
	routing.Orderer
	Succeeded(label string, took time.Duration)
	Failed(label string)
}

// search is the way of one request to a provider that serves it.
type search struct {
	*providers
	creations *creations
	selector  selector
	until     time.Time // no further provider is asked after that
	offer     Offer     // of the last look
	// shortlist are those that may still be asked.
	shortlist routing.Shortlist
	// detached are creations that may have made an instance for this request. It comes
	// back to them once, when nobody else serves.
	detached []*registry.Entry
	cameBack bool
	// fault is what the caller is told if nobody can.
	fault  *Fault
	unlock func() // nil as long as the search for the session is not held
}

// attempt is a provider that is asked, with what a creation there has to know of the
// search.
type attempt struct {
	search *search
	target target
	// chosen by the search: neither named by the request nor the session's home.
	chosen bool
	// others may be asked when this provider has certainly made nothing.
	others  bool
	routing Routing
	// joins means that the session has an instance there, or one is being made: if that
	// is over, who may make one has to be found out anew.
	joins bool
	// resumed means that an earlier process may have made it.
	resumed bool
	// left of CreateTimeout, when the provider was ready.
	left time.Duration
	// patience where others may be asked.
	patience Patience
	// trial means that the provider's circuit is open, and that another one is ready.
	trial bool
	// session that the request has from the creation that it came back to.
	session string
	// faithful requests detach nothing.
	faithful bool
}

// unfit is for a request that this provider cannot serve, whatever its state.
func (a *attempt) unfit(err error) error {
	return &Fault{Provider: a.target.provider.Label(), Err: err, elsewhere: a.chosen}
}

func (a *attempt) refusedByQuota(err error) error {
	if a.chosen && ofProvider(err) {
		return a.unfit(err)
	}
	return err
}

// arrived ends the search: the session has its instance.
func (a *attempt) arrived() { a.search.leave() }

func (r *search) leave() {
	if r.unlock != nil {
		r.unlock()
		r.unlock = nil
	}
}

// place finds a provider for what a request wants and calls use with it; with another
// one when that could certainly do nothing. Of requests that look for a provider for
// the same session one does so at a time, so that they do not find two.
func (s *Service) place(ctx context.Context, w selector, wait time.Duration, use func(*attempt) error) error {
	until := time.Now().Add(wait + 2*s.limits().CreateTimeout + resolveTimeout())
	r := &search{providers: s.providers, creations: s.creations, selector: w, until: until}
	defer r.leave()
	r.selector.Templates = s.catalog.Offer(w.tenant).Templates
	for {
		a, err := r.next(ctx)
		if err == nil {
			err = use(a)
		}
		if errors.Is(err, registry.ErrMoved) {
			r.shortlist.Forget()
			continue
		}
		if err == nil {
			return nil
		}
		fault, ok := errors.AsType[*Fault](err)
		if ok && fault.elsewhere && ctx.Err() == nil {
			r.note(fault)
			if time.Now().Before(r.until) {
				continue
			}
			err = r.failed()
		}
		waits := false
		if waits, err = r.comeBack(ctx, err); waits {
			continue
		}
		if fault, ok = errors.AsType[*Fault](err); ok {
			fault.Tried = r.shortlist.TriedBeside(fault.Provider)
		}
		return err
	}
}

// note takes down that a provider could not serve. What the caller is told if nobody
// can is rather that a provider does not work than that another one does not fit.
func (r *search) note(fault *Fault) {
	label, code := fault.Provider, sdk.CodeOf(fault.Err)
	if fault.ambiguous != nil {
		r.detached = append(r.detached, fault.ambiguous)
	}
	r.shortlist.Strike(label, code, fault.spilled)
	if code != sdk.CodeInvalidRequest && code != sdk.CodeNotSupported || r.fault == nil {
		r.fault = fault
	}
}

// failed is the error when nobody is left to ask.
func (r *search) failed() error {
	if r.fault == nil {
		return sdk.Errorf(sdk.CodeUnavailable, "there is no provider to ask at the moment")
	}
	final := *r.fault
	final.elsewhere = false
	return &final
}

// next returns the provider that is to be asked now: the one that the request names;
// else the one where its session lives; else the next in the order.
func (r *search) next(ctx context.Context) (*attempt, error) {
	w := r.selector
	offer := r.catalog.Offer(w.tenant)
	r.offer = offer
	usable := offer.Usable()
	if w.Provider != "" {
		p, err := w.Named(usable, offer.Providers)
		if err != nil {
			return nil, err
		}
		return r.at(ctx, r.holderOf(w, p), routing.ReasonRequested, false, false)
	}
	if len(usable) == 0 {
		return nil, sdk.Errorf(sdk.CodeNotAllowed, "this tenant may use none of the providers")
	}
	candidates := offer.Candidates(usable)
	several := len(candidates) > 1
	home, sure, e := r.homeOf(w, usable, offer.Active)
	if sure == unclear && several && !e.Snapshot().State.Left() {
		return nil, r.awaitAmbiguous(ctx, e, attempt{others: !r.cameBack, faithful: r.cameBack, patience: offer.Patience})
	}
	if home != nil && (sure != tentative || !r.shortlist.WasTried(home.Label())) {
		a, err := r.at(ctx, home, routing.ReasonSession, false, sure == tentative && several)
		if err == nil {
			a.others, a.joins = sure != certain && several, true
		}
		return a, err
	}
	if several && w.session != "" && r.unlock == nil {
		unlock, err := r.hold(ctx, w.work())
		if err != nil {
			return nil, err
		}
		r.unlock = unlock
		return r.next(ctx) // somebody may have found one meanwhile
	}
	r.shortlist.Fill(r.router, offer, candidates)
	choice, trial, ok := r.shortlist.Next(r.router, offer.Providers, several)
	if !ok {
		return nil, r.failed()
	}
	p := routing.Labelled(usable, choice.Label)
	if p == nil {
		return nil, registry.ErrMoved // the order is of another configuration than there is now
	}
	if e, goesOn := r.elsewhere(w, choice.Label); goesOn { // for who has named its provider
		return nil, r.awaitAmbiguous(ctx, e, attempt{faithful: true})
	} else if e != nil {
		return nil, &Fault{Provider: e.Label(), Err: stillAmbiguous(e)}
	}
	a, err := r.at(ctx, p, choice.Reason, true, r.shortlist.HasOthers())
	if err == nil {
		a.trial = trial && a.others && r.shortlist.AnotherIsReady(r.catalog.Providers(), p)
	}
	return a, err
}

// at waits until a provider is ready and checks that it offers what is wanted. It
// returns registry.ErrMoved for one that was replaced or removed meanwhile: that one has
// no say any more.
func (r *search) at(ctx context.Context, p Provider, reason string, chosen, others bool) (*attempt, error) {
	w := r.selector
	began, limit := time.Now(), r.limits().CreateTimeout
	if p.Description().Name != "" { // what does not fit is not waited for
		if _, err := w.FitOf(p); err != nil && !r.moved(w, p) {
			return nil, &Fault{Provider: p.Label(), Err: err, elsewhere: chosen}
		}
	}
	ready, err := r.awaitProvider(ctx, p, limit, others, chosen && r.shortlist.Untouched())
	elsewhere := others && !errors.Is(err, errShuttingDown)
	var t target
	if err == nil {
		elsewhere = chosen
		t.provider, t.ready = p, ready
		t.Fit, err = w.FitOf(p)
	}
	if err != nil {
		if ctx.Err() == nil && r.moved(w, p) {
			return nil, registry.ErrMoved
		}
		return nil, &Fault{Provider: p.Label(), Err: err, elsewhere: elsewhere}
	}
	return &attempt{
		search: r, target: t, chosen: chosen, others: others, left: limit - time.Since(began), patience: r.offer.Patience,
		session: w.session, routing: r.shortlist.Placed(reason, chosen),
	}, nil
}

// awaitProvider waits until the provider is ready: a moment where another one is, after
// the start of the broker for the one that is asked first as long as its grace, and else
// for most of limit.
func (r *search) awaitProvider(ctx context.Context, p Provider, limit time.Duration, others, first bool) (sdk.Provider, error) {
	began, grace := time.Now(), time.Time{}
	if others && first {
		grace = r.graceOf(r.offer)
	}
	wait := routing.NewWait(began, limit, others, grace)
	for {
		until, look, well := wait.Next(time.Now(), func() bool { return r.shortlist.AnotherIsReady(r.catalog.Providers(), p) })
		ready, err := r.waitReady(ctx, p, time.Until(look), well)
		if !errors.Is(err, errNotInTime) {
			return ready, err
		}
		if !time.Now().Before(until) {
			return nil, sdk.Errorf(sdk.CodeUnavailable, "provider %q was not ready within %s", p.Label(), until.Sub(began).Round(time.Millisecond))
		}
	}
}

// elsewhere returns a creation for the session on a provider other than that one, which
// goes on or of which nobody knows what it has made; nil if there is none.
func (r *search) elsewhere(w selector, than string) (e *registry.Entry, goesOn bool) {
	for _, p := range r.creations.reconciler.Providers() {
		e, i := r.registry.Home(registry.SessionKey{Tenant: w.tenant.Name, Session: w.session, Provider: p.Label()})
		if p.Label() != than && e != nil && (i.State.Creating() || i.State.Unclear()) {
			return e, i.State.Creating()
		}
	}
	return nil, false
}

// awaitAmbiguous waits for certainty about an unclear creation, whether or not its
// provider can be asked. It returns registry.ErrMoved when that has come, and an error
// when it has not.
func (r *search) awaitAmbiguous(ctx context.Context, e *registry.Entry, a attempt) error {
	e.Wait()
	switch again, err := r.creations.await(ctx, e, true, a); {
	case errors.Is(err, errDetached):
		return &Fault{Provider: e.Label(), Err: err, elsewhere: true, ambiguous: e}
	case errors.Is(err, registry.ErrMoved):
	case err != nil:
		return &Fault{Provider: e.Label(), Err: err}
	case !again:
		e.Drop(false)
	}
	return registry.ErrMoved
}

// comeBack has a request whose other providers could not serve wait for what it has
// detached, once. It reports whether there is something to wait for.
func (r *search) comeBack(ctx context.Context, err error) (waits bool, _ error) {
	code := sdk.CodeOf(err)
	if r.cameBack || ctx.Err() != nil || errors.Is(err, errShuttingDown) || code == sdk.CodeInvalidRequest || code == sdk.CodeNotSupported {
		return false, err
	}
	fault, ok := errors.AsType[*Fault](err)
	last := ok && fault.ambiguous != nil && len(r.detached) > 0
	if last && !fault.ambiguous.Detach() {
		return false, err // that one is about to be made
	}
	for _, e := range r.detached {
		if e.Reclaim() {
			r.cameBack = true
			r.shortlist.Forget()
			r.selector.session = e.ID().Session // if it had none it shares this one with nobody
			if err := r.awaitAmbiguous(ctx, e, attempt{faithful: true}); !errors.Is(err, registry.ErrMoved) {
				return false, err
			}
			return true, nil
		}
	}
	return false, err
}

func (w selector) work() registry.WorkKey {
	return registry.WorkKey{Tenant: w.tenant.Name, Session: w.session}
}

// hold waits until nobody else looks for a provider for the session.
func (p *providers) hold(ctx context.Context, key registry.WorkKey) (leave func(), err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.lifetime, cancel)()
	leave, err = p.searches.Take(waiting, key)
	if err != nil && ctx.Err() == nil {
		err = shuttingDown()
	}
	return leave, err
}

// target is where a request goes: a ready provider, with the template and the
// language that it understands.
type target struct {
	routing.Fit
	provider Provider
	ready    sdk.Provider
}

// selector is what a request says about its target.
type selector struct {
	routing.Wanted
	tenant tenant.Tenant
	// session is empty for a request without one.
	session string
}

// homes know where a session has its instance; registry.Registry does.
type homes interface {
	// Home returns the instance that a session has on a provider; nil if it has none.
	Home(key registry.SessionKey) (*registry.Entry, registry.Instance)
}

// providers choose where a request goes.
type providers struct {
	*lifecycle
	catalog  Catalog
	registry homes
	router   Router

	// searches are held by the requests that look for a provider for a session.
	searches keylock.Locks[registry.WorkKey]
}

func offers(catalog Catalog, p Provider) bool { return slices.Contains(catalog.Providers(), p) }

// moved reports whether a request that was on its way to a provider belongs on
// another one by now, because that one was replaced or removed.
func (p *providers) moved(w selector, from Provider) bool {
	to := routing.Labelled(p.catalog.Offer(w.tenant).Usable(), from.Label())
	return to == nil || p.holderOf(w, to) != from
}

// offered waits until a provider is ready and checks that it offers what a request
// wants.
func (p *providers) offered(ctx context.Context, provider Provider, w routing.Wanted) (target, error) {
	ready, err := p.waitReady(ctx, provider, p.limits().CreateTimeout, false)
	if err != nil {
		return target{}, err
	}
	fit, err := w.FitOf(provider)
	return target{Fit: fit, provider: provider, ready: ready}, err
}

// size is that of an instance, where the template says it.
func (t target) size() quota.Size {
	if t.Built == nil {
		return quota.Size{}
	}
	return quota.Size{MemoryMB: t.Built.MemoryMB, CPUs: t.Built.CPUs}
}

// templateLanguage is the first language of the target's template; empty if it has
// none.
func (t target) templateLanguage() sdk.Language {
	if t.Built != nil && len(t.Built.Languages) > 0 {
		return t.Built.Languages[0]
	}
	for _, offered := range t.provider.Description().Templates {
		if offered.Name == t.Template && len(offered.Languages) > 0 {
			return offered.Languages[0]
		}
	}
	return ""
}

// errNotInTime is why a wait for a provider is over that we have bounded.
var errNotInTime = errors.New("the time to become ready is over")

// waitReady waits for the provider, at most for d: until it can be asked, or until it is
// well.
func (p *providers) waitReady(ctx context.Context, provider Provider, d time.Duration, well bool) (ready sdk.Provider, err error) {
	wait, cancel := p.bounded(ctx, d)
	defer cancel()
	if awaiter, can := provider.(wellAwaiter); can && well {
		err = awaiter.AwaitWell(wait)
	}
	if err == nil {
		ready, err = provider.Provider(wait)
	}
	switch {
	case err == nil:
		return ready, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(context.Cause(wait), errShuttingDown):
		return nil, shuttingDown()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoAnswer):
		late := sdk.Errorf(sdk.CodeUnavailable, "provider %q was not ready within %s", provider.Label(), d)
		return nil, fmt.Errorf("%w (%w)", late, errNotInTime)
	default:
		return nil, err
	}
}

// holderOf returns where the session's instance on that provider lives: on the one
// before it, if it was upgraded meanwhile.
func (p *providers) holderOf(w selector, of Provider) Provider {
	if w.session == "" {
		return of
	}
	if e, i := p.registry.Home(registry.SessionKey{Tenant: w.tenant.Name, Session: w.session, Provider: of.Label()}); e != nil && i.Provider != nil {
		return i.Provider
	}
	return of
}

// certainty says how sure it is that a session's instance is at a provider.
type certainty int

const (
	// tentative: it is being made there.
	tentative certainty = iota
	// unclear: it may be there. No other provider is asked before that is known.
	unclear
	// certain: it is there, so that no other provider can have it.
	certain
)

func certaintyOf(i registry.Instance, home Provider) certainty {
	switch {
	case i.State.Visible(), i.State == registry.Unknown && i.Left.Made != "":
		return certain
	case i.State.Unclear(), i.State == registry.Unknown && !home.Description().Ephemeral:
		return unclear
	default:
		return tentative
	}
}

// homeOf returns the usable provider on which the session already has an instance:
// the active one if there are several, else the one made last, and how sure that is.
func (p *providers) homeOf(w selector, usable []Provider, active string) (home Provider, sure certainty, e *registry.Entry) {
	if w.session == "" {
		return nil, tentative, nil
	}
	var last registry.Instance
	for _, candidate := range usable {
		entry, i := p.registry.Home(registry.SessionKey{Tenant: w.tenant.Name, Session: w.session, Provider: candidate.Label()})
		if entry == nil || e != nil && !prefers(i, last, active) {
			continue
		}
		home, last, e = candidate, i, entry
		if i.Provider != nil {
			home = i.Provider
		}
	}
	if e == nil {
		return nil, tentative, nil
	}
	return home, certaintyOf(last, home), e
}

// prefers reports whether an instance of the session comes before another one: what
// there is before what an earlier process has left, and of that what was made before what
// was only intended.
func prefers(i, to registry.Instance, active string) bool {
	switch left := i.State.Left(); {
	case left != to.State.Left():
		return !left
	case left && (i.Left.Made != "") != (to.Left.Made != ""):
		return i.Left.Made != "" && to.Left.Made == ""
	case left:
		return i.Left.Made == "" && i.Left.Intended.After(to.Left.Intended)
	default:
		return to.Label != active && (i.Label == active || i.Created.After(to.Created))
	}
}

// StateUnavailable is the Status.State of a provider that has failed repeatedly: it is
// waited for no longer.
const StateUnavailable = "unavailable"

// wellAwaiter is a provider that can be waited for until it answers a health probe well.
type wellAwaiter interface {
	// AwaitWell waits until then, and gives up at once on one that is unavailable.
	AwaitWell(ctx context.Context) error
}

// Awaited is the provider that requests wait for after the start of the broker, although
// another one could serve.
type Awaited struct {
	ProviderInfo
	// Until is when they go elsewhere.
	Until time.Time
}

// Awaited says which provider requests wait for at this moment, since the broker has
// just begun.
func (s *Service) Awaited() (Awaited, bool) {
	offer := s.catalog.Offer(tenant.Tenant{})
	candidates := offer.Candidates(offer.Providers)
	if len(candidates) < 2 {
		return Awaited{}, false
	}
	first := offer.First(candidates)
	until := s.providers.graceOf(offer)
	if status := first.Status(); status.Ready || status.State == StateUnavailable || !time.Now().Before(until) {
		return Awaited{}, false
	}
	return Awaited{ProviderInfo: describe(first, offer.Active), Until: until}, true
}

// graceOf is when requests stop to wait for the provider that is asked first.
func (p *providers) graceOf(offer Offer) time.Time { return p.started.Add(offer.Patience.Start) }
