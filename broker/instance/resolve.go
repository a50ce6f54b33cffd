package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// target is where a request goes: a ready provider, with the template and the
// language that it understands.
type target struct {
	provider Provider
	ready    sdk.Provider
	template string
	language sdk.Language
}

// wish is what a request says about its target; empty fields mean that it says
// nothing.
type wish struct {
	tenant   tenant.Tenant
	session  string
	provider string
	template string
	language string
	needs    needs
}

// needs are what a provider must have beside the language and the template.
type needs struct {
	languages    []string
	capabilities []sdk.Capability
}

func (n needs) met(p Provider) error {
	d := p.Description()
	for _, name := range n.languages {
		if !slices.Contains(d.Languages, sdk.ParseLanguage(name)) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "languages", "the provider %q does not run %q", p.Label(), name)
		}
	}
	for _, c := range n.capabilities {
		if !slices.Contains(d.Capabilities, c) {
			return sdk.NotSupported(p.Label(), c)
		}
	}
	return nil
}

// known checks that each capability is one that there can be: that this broker knows, or
// that some provider has. Whoever misspells one hears so, however the providers are.
func (n needs) known(providers []Provider) error {
	all := sdk.Capabilities()
	for _, p := range providers {
		all = append(all, p.Description().Capabilities...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, c := range n.capabilities {
		if !slices.Contains(all, c) {
			var names []string
			for _, known := range all {
				names = append(names, string(known))
			}
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "capabilities", "there is no capability %q; there are: %s", c, listed(names))
		}
	}
	return nil
}

// moved reports whether a request that was on its way to a provider belongs on
// another one by now, because that one was replaced or removed.
func (s *Service) moved(w wish, from Provider) bool {
	to := labelled(s.catalog.Offer(w.tenant).usable(), from.Label())
	return to == nil || s.keeperOf(w, to) != from
}

// offered waits until a provider is ready and checks that it offers what a request
// wants.
func (s *Service) offered(ctx context.Context, provider Provider, w wish) (target, error) {
	ready, err := s.waitReady(ctx, provider, s.limits().CreateTimeout, false)
	if err != nil {
		return target{}, err
	}
	return fitting(provider, ready, w)
}

// fitting is the target for what a request wants of a provider.
func fitting(provider Provider, ready sdk.Provider, w wish) (t target, err error) {
	t = target{provider: provider, ready: ready, template: w.template}
	description := provider.Description()
	if w.language != "" {
		if t.language, err = supported(description, w.language); err != nil {
			return target{}, err
		}
	}
	if err := w.needs.met(provider); err != nil {
		return target{}, err
	}
	switch {
	case w.template != "":
		var names []string
		for _, offered := range description.Templates {
			names = append(names, offered.Name)
		}
		if !slices.Contains(names, w.template) {
			return target{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template",
				"the provider %q has no such template; it has: %s", provider.Label(), listed(names))
		}
	case t.language != "" && description.TemplateFor(t.language) != "":
		t.template = description.TemplateFor(t.language)
	case len(description.Templates) > 0:
		t.template = description.Templates[0].Name
	}
	return t, nil
}

// templateLanguage is the first language of the target's template; empty if it has
// none.
func (t target) templateLanguage() sdk.Language {
	for _, offered := range t.provider.Description().Templates {
		if offered.Name == t.template && len(offered.Languages) > 0 {
			return offered.Languages[0]
		}
	}
	return ""
}

// errNotInTime is why a wait for a provider is over that we have bounded.
var errNotInTime = errors.New("the time to become ready is over")

// waitReady waits for the provider, at most for d: until it can be asked, or until it is
// well.
func (s *Service) waitReady(ctx context.Context, provider Provider, d time.Duration, well bool) (ready sdk.Provider, err error) {
	wait, cancel := s.bounded(ctx, d)
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
	case errors.Is(err, context.DeadlineExceeded):
		late := sdk.Errorf(sdk.CodeUnavailable, "provider %q was not ready within %s", provider.Label(), d)
		return nil, fmt.Errorf("%w (%w)", late, errNotInTime)
	default:
		return nil, err
	}
}

func pickNamed(w wish, usable, all []Provider) (Provider, error) {
	named := func(p Provider) bool { return p.Label() == w.provider }
	if i := slices.IndexFunc(usable, named); i >= 0 {
		return usable[i], nil
	}
	if slices.ContainsFunc(all, named) {
		return nil, sdk.FieldErrorf(sdk.CodeNotAllowed, "provider", "this tenant may not use the provider %q", w.provider)
	}
	var labels []string
	for _, p := range usable {
		labels = append(labels, p.Label())
	}
	return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "there is no such provider; there are: %s", listed(labels))
}

// keeperOf returns where the session's instance on that provider lives: on the one
// before it, if it was upgraded meanwhile.
func (s *Service) keeperOf(w wish, p Provider) Provider {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sessions[sessionKey{w.tenant.Name, w.session, p.Label()}]
	if w.session == "" || e == nil || s.retire(e, time.Now()) {
		return p
	}
	return e.provider
}

// homeOf returns the usable provider on which the session already has an instance:
// the active one if there are several, else the one made last, and how sure that is.
func (s *Service) homeOf(w wish, usable []Provider, active string) (home Provider, stay stay) {
	if w.session == "" {
		return nil, onTrial
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var last *entry
	for _, p := range usable {
		e := s.sessions[sessionKey{w.tenant.Name, w.session, p.Label()}]
		if e == nil || s.retire(e, now) {
			continue
		}
		if p.Label() == active {
			return e.provider, stayOf(e)
		}
		if last == nil || e.created.After(last.created) {
			last = e
		}
	}
	if last != nil {
		return last.provider, stayOf(last)
	}
	var left *Record // by an earlier process
	for _, p := range usable {
		r, found := s.awaited(sessionKey{w.tenant.Name, w.session, p.Label()})
		if !found || left != nil && (left.Made != "" || r.Made == "" && !r.Intended.After(left.Intended)) {
			continue
		}
		left, home = &r, p
	}
	switch {
	case left == nil, home.Description().Ephemeral && left.Made == "":
		return home, onTrial
	case left.Made != "":
		return home, settled
	default:
		return home, doubtful
	}
}

// stay says how sure it is that a session's instance is at a provider.
type stay int

const (
	// onTrial: it is being made there.
	onTrial stay = iota
	// doubtful: it may be there. No other provider is asked before that is known.
	doubtful
	// settled: it is there, so that no other provider can have it.
	settled
)

func stayOf(e *entry) stay {
	switch e.state {
	case live:
		return settled
	case unsettled:
		return doubtful
	default:
		return onTrial
	}
}

// labelled returns the provider with that label, nil if there is none.
func labelled(providers []Provider, label string) Provider {
	for _, p := range providers {
		if p.Label() == label {
			return p
		}
	}
	return nil
}

// supported turns what the caller wrote into a language of the provider.
func supported(d sdk.Description, name string) (sdk.Language, error) {
	language := sdk.ParseLanguage(name)
	if slices.Contains(d.Languages, language) {
		return language, nil
	}
	var names []string
	for _, l := range d.Languages {
		names = append(names, string(l))
	}
	return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "this provider does not run that language; it runs: %s", listed(names))
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
