package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
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

// selector is what a request says about its target; empty fields mean that it says
// nothing.
type selector struct {
	tenant   tenant.Tenant
	session  string
	provider string
	template string
	language string
	needs    needs
}

// providers choose where a request goes.
type providers struct {
	*lifecycle
	catalog  Catalog
	registry *registry.Registry
	router   Router

	// searches are held by the requests that look for a provider for a session.
	searches keyLock[registry.WorkKey]
}

func offers(catalog Catalog, p Provider) bool { return slices.Contains(catalog.Providers(), p) }

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
func (p *providers) moved(w selector, from Provider) bool {
	to := routing.Labelled(p.catalog.Offer(w.tenant).Usable(), from.Label())
	return to == nil || p.holderOf(w, to) != from
}

// offered waits until a provider is ready and checks that it offers what a request
// wants.
func (p *providers) offered(ctx context.Context, provider Provider, w selector) (target, error) {
	ready, err := p.waitReady(ctx, provider, p.limits().CreateTimeout, false)
	if err != nil {
		return target{}, err
	}
	return fitting(provider, ready, w)
}

// fitting is the target for what a request wants of a provider.
func fitting(provider Provider, ready sdk.Provider, w selector) (t target, err error) {
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
	case errors.Is(err, context.DeadlineExceeded):
		late := sdk.Errorf(sdk.CodeUnavailable, "provider %q was not ready within %s", provider.Label(), d)
		return nil, fmt.Errorf("%w (%w)", late, errNotInTime)
	default:
		return nil, err
	}
}

func pickNamed(w selector, usable, all []Provider) (Provider, error) {
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
