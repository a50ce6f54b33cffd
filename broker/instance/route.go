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
	// Enter reports whether a provider may be asked where others could be.
	Enter(label string) bool
	Succeeded(label string, took time.Duration)
	Failed(label string)
}

// Routing says why a provider serves.
type Routing struct {
	// Reason is one of those of package routing.
	Reason string `json:"reason,omitempty"`
	// Tried are the providers that could not serve, in order.
	Tried []Tried `json:"tried,omitempty"`
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
	// order is of those that may still be asked, if ordered. Those in passed, whose
	// circuits are open, come last.
	ordered bool
	order   []routing.Choice
	passed  []string
	// tried are those that could not serve.
	tried []Tried
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
		fault, ok := errors.AsType[*Fault](err)
		if err == nil || !ok {
			return err
		}
		if fault.elsewhere && ctx.Err() == nil {
			r.note(fault)
			if time.Now().Before(r.until) {
				continue
			}
			err = r.failed()
			fault, _ = errors.AsType[*Fault](err)
		}
		fault.Tried = slices.DeleteFunc(slices.Clone(r.tried), func(t Tried) bool { return t.Provider == fault.Provider })
		return err
	}
}

// note takes down that a provider could not serve. What the caller is told if nobody
// can is rather that a provider does not work than that another one does not fit.
func (r *route) note(fault *Fault) {
	label, code := fault.Provider, sdk.CodeOf(fault.Err)
	if len(r.tried) < maxTried {
		r.tried = append(r.tried, Tried{Provider: label, Code: code})
	}
	r.order = slices.DeleteFunc(r.order, func(c routing.Choice) bool { return c.Label == label })
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
	if len(r.order) == 0 {
		return nil, r.failed()
	}
	choice := r.order[0]
	if several {
		choice = r.choose()
	}
	p := labelled(usable, choice.Label)
	if p == nil {
		return nil, errMoved // the order is of another configuration than there is now
	}
	if err := s.settledElsewhere(w.work(), choice.Label); err != nil {
		return nil, err
	}
	return r.at(ctx, p, choice.Reason, true, len(r.order) > 1)
}

// choose returns the first in the order whose circuit is not open. Where all are, the
// first of them is asked all the same: others cannot be worse.
func (r *route) choose() routing.Choice {
	for {
		choice := r.order[0]
		if slices.Contains(r.passed, choice.Label) || r.service.router.Enter(choice.Label) {
			r.passed = slices.DeleteFunc(r.passed, func(label string) bool { return label == choice.Label })
			return choice
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
	patience := time.Duration(float64(limit) * readyShare)
	if others && r.anotherIsReady(p) {
		patience = min(patience, readyPatience)
	}
	ready, err := s.waitReady(ctx, p, patience)
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
	st.way = onTheWay{others: others, left: limit - time.Since(began), routing: Routing{Reason: reason, Tried: slices.Clone(r.tried)}}
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
		if listed && p.Label() != than.Label() && p.Status().Ready {
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
