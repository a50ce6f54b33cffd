package instance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Router says in which order providers are asked for a new instance, and learns from
// what comes of it; routing.Router is it.
type Router interface {
	Order(policy routing.Policy, candidates []routing.Candidate) []routing.Choice
	// Enter reports whether a provider may be asked where others could be, and whether
	// that is a trial, which only one that is well is given.
	Enter(label string, well bool) (may, trial bool)
	Succeeded(label string, took time.Duration)
	Failed(label string)
}

// Routing says why a provider serves.
type Routing struct {
	// Reason is one of those of package routing.
	Reason string `json:"reason,omitempty"`
	// PlacedBy is the reason for which the instance was made there, where Reason is
	// that the session lives there.
	PlacedBy string `json:"placed_by,omitempty"`
	// Tried are the providers that could not serve, in order: when the instance was
	// made, where it is not from now.
	Tried []Tried `json:"tried,omitempty"`
}

// onto is the routing of a use of an instance that was placed before.
func (r Routing) onto(placed Routing) Routing {
	if r.Reason == routing.ReasonSession {
		r.PlacedBy = placed.Reason
		both := slices.Concat(placed.Tried, r.Tried)
		r.Tried = both[:min(len(both), 2*maxTried)]
	}
	return r
}

// Tried is a provider that could not serve a request, and the code of the reason.
type Tried struct {
	Provider string   `json:"provider"`
	Code     sdk.Code `json:"code"`
}

const (
	// maxTried bounds what an answer says of providers that could not serve.
	maxTried = 16
	// readyPatience is how long a provider that is starting is waited for where
	// another one is ready.
	readyPatience = time.Second
	// readyShare is the part of CreateTimeout that is waited for a provider to be ready.
	// The rest is for the creation: one that has hardly begun when its time is over
	// would leave its session waiting for what may be there.
	readyShare = 0.9
)

// route is the way of one request to a provider that serves it.
type route struct {
	service *Service
	wish    wish
	until   time.Time // no further provider is asked after that
	offer   Offer     // of the last look
	// order is of those that may still be asked, if ordered. Those in passed, whose
	// circuits are open, come last.
	ordered bool
	order   []routing.Choice
	passed  []string
	// tried are those that could not serve.
	tried []Tried
	// forsaken are creations that may have made an instance for this request. It comes
	// back to them once, when nobody else serves.
	forsaken []*entry
	cameBack bool
	// full is the first that had no room and was not waited for.
	full *routing.Choice
	// fault is what the caller is told if nobody can.
	fault  *Fault
	unlock func() // nil as long as the session's way is not held
}

// stop is a provider that is asked.
type stop struct {
	route  *route
	wish   wish
	target target
	way    onTheWay
	// chosen by the route: neither named by the request nor the session's home.
	chosen bool
}

// onTheWay is what a creation has to know of the route that it is on.
type onTheWay struct {
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
	// faithful requests forsake nothing.
	faithful bool
}

// unfit is for a request that this provider cannot serve, whatever its state.
func (st *stop) unfit(err error) error {
	return &Fault{Provider: st.target.provider.Label(), Err: err, elsewhere: st.chosen}
}

func (st *stop) refusedByQuota(err error) error {
	if st.chosen && ofProvider(err) {
		return st.unfit(err)
	}
	return err
}

// arrived ends the search: the session has its instance.
func (st *stop) arrived() { st.route.leave() }

func (r *route) leave() {
	if r.unlock != nil {
		r.unlock()
		r.unlock = nil
	}
}

// route finds a provider for what a request wants and calls use with it; with another
// one when that could certainly do nothing. Of requests that look for a provider for
// the same session one does so at a time, so that they do not find two.
func (s *Service) route(ctx context.Context, w wish, wait time.Duration, use func(*stop) error) error {
	r := &route{service: s, wish: w, until: time.Now().Add(wait + 2*s.limits().CreateTimeout + settleTimeout())}
	defer r.leave()
	for {
		st, err := r.next(ctx)
		if err == nil {
			err = use(st)
		}
		if errors.Is(err, errMoved) {
			r.ordered = false
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
		if waits, err = r.comesBack(ctx, err); waits {
			continue
		}
		if fault, ok = errors.AsType[*Fault](err); ok {
			fault.Tried = slices.DeleteFunc(slices.Clone(r.tried), func(t Tried) bool { return t.Provider == fault.Provider })
		}
		return err
	}
}

// note takes down that a provider could not serve. What the caller is told if nobody
// can is rather that a provider does not work than that another one does not fit.
func (r *route) note(fault *Fault) {
	label, code := fault.Provider, sdk.CodeOf(fault.Err)
	if fault.doubtful != nil {
		r.forsaken = append(r.forsaken, fault.doubtful)
	}
	if len(r.tried) < maxTried && !r.wasTried(label) {
		r.tried = append(r.tried, Tried{Provider: label, Code: code})
	}
	if i := slices.IndexFunc(r.order, func(c routing.Choice) bool { return c.Label == label }); i >= 0 {
		if fault.spilled && r.full == nil {
			full := r.order[i]
			r.full = &full
		}
		r.order = slices.Delete(slices.Clone(r.order), i, i+1)
	}
	if code != sdk.CodeInvalidRequest && code != sdk.CodeNotSupported || r.fault == nil {
		r.fault = fault
	}
}

// failed is the error when nobody is left to ask.
func (r *route) failed() error {
	if r.fault == nil {
		return sdk.Errorf(sdk.CodeUnavailable, "there is no provider to ask at the moment")
	}
	final := *r.fault
	final.elsewhere = false
	return &final
}

func (r *route) wasTried(label string) bool {
	return slices.ContainsFunc(r.tried, func(t Tried) bool { return t.Provider == label })
}

// next returns the provider that is to be asked now: the one that the request names;
// else the one where its session lives; else the next in the order.
func (r *route) next(ctx context.Context) (*stop, error) {
	s, w := r.service, r.wish
	offer := s.catalog.Offer(w.tenant)
	r.offer = offer
	usable := offer.usable()
	if w.provider != "" {
		p, err := pickNamed(w, usable, offer.Providers)
		if err != nil {
			return nil, err
		}
		return r.at(ctx, s.keeperOf(w, p), routing.ReasonRequested, false, false)
	}
	if len(usable) == 0 {
		return nil, sdk.Errorf(sdk.CodeNotAllowed, "this tenant may use none of the providers")
	}
	candidates := offer.candidates(usable)
	several := len(candidates) > 1
	home, stay := s.homeOf(w, usable, offer.Active)
	if stay == doubtful && several {
		if e := s.doubtOf(w, home); e != nil {
			return nil, r.bear(ctx, e, onTheWay{others: !r.cameBack, faithful: r.cameBack, patience: offer.Patience})
		}
	}
	if home != nil && (stay != onTrial || !r.wasTried(home.Label())) {
		st, err := r.at(ctx, home, routing.ReasonSession, false, stay == onTrial && several)
		if err == nil {
			st.way.others, st.way.joins = stay != settled && several, true
		}
		return st, err
	}
	if several && w.session != "" && r.unlock == nil {
		unlock, err := s.enterWay(ctx, w.work())
		if err != nil {
			return nil, err
		}
		r.unlock = unlock
		return r.next(ctx) // somebody may have found one meanwhile
	}
	if !r.ordered {
		r.order = s.inOrder(offer, candidates)
		r.order = slices.DeleteFunc(r.order, func(c routing.Choice) bool { return r.wasTried(c.Label) })
		r.ordered, r.passed = true, nil
	}
	if len(r.order) == 0 && r.full == nil {
		return nil, r.failed()
	}
	if len(r.order) == 0 { // nobody else serves, so it is worth the wait
		full := *r.full
		r.order, r.full = []routing.Choice{full}, nil
		r.tried = slices.DeleteFunc(r.tried, func(t Tried) bool { return t.Provider == full.Label })
	}
	choice, trial := r.order[0], false
	if several {
		choice, trial = r.choose()
	}
	p := labelled(usable, choice.Label)
	if p == nil {
		return nil, errMoved // the order is of another configuration than there is now
	}
	if e, goesOn := s.elsewhere(w.work(), choice.Label); goesOn { // for who has named its provider
		return nil, r.bear(ctx, e, onTheWay{faithful: true})
	} else if e != nil {
		return nil, &Fault{Provider: e.provider.Label(), Err: stillUnsettled(e)}
	}
	st, err := r.at(ctx, p, choice.Reason, true, len(r.order) > 1 || r.full != nil)
	if err == nil {
		st.way.trial = trial && st.way.others && r.anotherIsReady(p)
	}
	return st, err
}

// choose returns the first in the order whose circuit is not open, or may be tried. Where
// all are open, the first of them is asked all the same: others cannot be worse.
func (r *route) choose() (choice routing.Choice, trial bool) {
	for {
		choice := r.order[0]
		if slices.Contains(r.passed, choice.Label) {
			r.passed = slices.DeleteFunc(r.passed, func(label string) bool { return label == choice.Label })
			return choice, false
		}
		p := labelled(r.offer.Providers, choice.Label)
		if may, trial := r.service.router.Enter(choice.Label, p != nil && p.Status().Ready); may {
			return choice, trial
		}
		r.passed = append(r.passed, choice.Label)
		r.order = append(r.order[1:], choice)
	}
}

// at waits until a provider is ready and checks that it offers what is wanted. It
// returns errMoved for one that was replaced or removed meanwhile: that one has no say
// any more.
func (r *route) at(ctx context.Context, p Provider, reason string, chosen, others bool) (*stop, error) {
	s, w := r.service, r.wish
	began, limit := time.Now(), s.limits().CreateTimeout
	if p.Description().Name != "" { // what does not fit is not waited for
		if _, err := fitting(p, nil, w); err != nil && !s.moved(w, p) {
			return nil, &Fault{Provider: p.Label(), Err: err, elsewhere: chosen}
		}
	}
	ready, err := r.awaitProvider(ctx, p, limit, others, chosen && len(r.tried)+len(r.passed) == 0)
	elsewhere := others && !errors.Is(err, errShuttingDown)
	var t target
	if err == nil {
		elsewhere = chosen
		t, err = fitting(p, ready, w)
	}
	if err != nil {
		if ctx.Err() == nil && s.moved(w, p) {
			return nil, errMoved
		}
		return nil, &Fault{Provider: p.Label(), Err: err, elsewhere: elsewhere}
	}
	st := &stop{route: r, wish: w, target: t, chosen: chosen}
	st.way = onTheWay{others: others, left: limit - time.Since(began), patience: r.offer.Patience, session: w.session, routing: Routing{Reason: reason, Tried: slices.Clone(r.tried)}}
	for _, label := range r.passed {
		st.way.routing.Tried = append(st.way.routing.Tried, Tried{Provider: label, Code: sdk.CodeUnavailable})
	}
	if chosen && len(st.way.routing.Tried) > 0 {
		st.way.routing.Reason = routing.ReasonFallback
	}
	return st, nil
}

// anotherIsReady reports whether one of the others in the order takes work now.
func (r *route) anotherIsReady(than Provider) bool {
	for _, p := range r.service.catalog.Providers() {
		listed := slices.ContainsFunc(r.order, func(c routing.Choice) bool { return c.Label == p.Label() })
		if listed = listed || r.full != nil && r.full.Label == p.Label(); listed && p.Label() != than.Label() && p.Status().Ready {
			return true
		}
	}
	return false
}

// inOrder puts those that may be asked in the order of the policy.
func (s *Service) inOrder(offer Offer, candidates []Provider) []routing.Choice {
	if len(candidates) == 1 {
		reason := routing.ReasonActive
		if candidates[0].Label() != offer.Active {
			reason = routing.ReasonAllowed
		}
		return []routing.Choice{{Label: candidates[0].Label(), Reason: reason}}
	}
	var list []routing.Candidate
	for _, p := range candidates {
		list = append(list, routing.Candidate{Label: p.Label(), Cost: offer.Costs[p.Label()]})
	}
	return s.router.Order(offer.Policy, list)
}

// candidates are the providers that may be asked when the request names none: the
// active one and its fallback, as far as the tenant may use them. A tenant that may
// not use the active one has the first that it may use in its place.
func (o Offer) candidates(usable []Provider) []Provider {
	first := labelled(usable, o.Active)
	if first == nil {
		first = usable[0]
	}
	list := []Provider{first}
	for _, label := range o.Fallback {
		if p := labelled(usable, label); p != nil && p != first {
			list = append(list, p)
		}
	}
	return list
}
