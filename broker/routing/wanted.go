package routing

import (
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Wanted is what a request says about its provider; empty fields mean that it says
// nothing.
type Wanted struct {
	// Provider by label.
	Provider string
	// Template and Language as the caller has written them.
	Template, Language string
	// Languages and Capabilities are what the provider must have beside these.
	Languages    []string
	Capabilities []sdk.Capability
	// Templates finds those of the operator; nil for none.
	Templates Templates
}

// Templates finds what a template of the operator is on a provider. known is false where
// there is none of that name; the error says why it cannot be used now.
type Templates func(provider, name string) (of Template, known bool, err error)

// Template is one of the operator, as it was built on a provider.
type Template struct {
	sdk.BuiltTemplate
	// MemoryMB and CPUs of an instance of it; 0 for those of the provider.
	MemoryMB int64
	CPUs     float64
}

// Fit is a request in the words of a provider that can serve it.
type Fit struct {
	// Template is the provider's name of it; empty where the provider has none.
	Template string
	// Built is the template of the operator that it is; nil for one of the provider.
	Built *Template
	// Language is empty where the request names none.
	Language sdk.Language
}

// FitOf checks that a provider offers what is wanted, by its description. Errors carry
// SB010 or SB015.
func (w Wanted) FitOf(p Provider) (fit Fit, err error) {
	d := p.Description()
	fit.Template = w.Template
	if w.Language != "" {
		if fit.Language, err = LanguageOf(d, w.Language); err != nil {
			return Fit{}, err
		}
	}
	for _, name := range w.Languages {
		if !slices.Contains(d.Languages, sdk.ParseLanguage(name)) {
			return Fit{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "languages", "the provider %q does not run %q", p.Label(), name)
		}
	}
	for _, c := range w.Capabilities {
		if !slices.Contains(d.Capabilities, c) {
			return Fit{}, sdk.NotSupported(p.Label(), c)
		}
	}
	if own, err := w.built(p, &fit); own || err != nil {
		return fit, err
	}
	switch {
	case w.Template != "":
		if !slices.ContainsFunc(d.Templates, func(t sdk.Template) bool { return t.Name == w.Template }) {
			return Fit{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "the provider %q has no such template; it has: %s",
				p.Label(), listed(d.Templates, func(t sdk.Template) string { return t.Name }))
		}
	case fit.Language != "" && d.TemplateFor(fit.Language) != "":
		fit.Template = d.TemplateFor(fit.Language)
	case len(d.Templates) > 0:
		fit.Template = d.Templates[0].Name
	}
	return fit, nil
}

// built makes the fit one of a template of the operator, if one is wanted that is.
func (w Wanted) built(p Provider, fit *Fit) (own bool, err error) {
	if w.Template == "" || w.Templates == nil {
		return false, nil
	}
	built, known, err := w.Templates(p.Label(), w.Template)
	if err != nil || !known {
		return false, err
	}
	for _, wanted := range append(slices.Clone(w.Languages), string(fit.Language)) {
		if wanted != "" && !slices.Contains(built.Languages, sdk.ParseLanguage(wanted)) {
			return false, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "the template %q does not run %s; it runs: %s",
				w.Template, sdk.ParseLanguage(wanted), listed(built.Languages, func(l sdk.Language) string { return string(l) }))
		}
	}
	fit.Built = &built
	return true, nil
}

// Image is what the provider makes the instance of; empty for a template of its own.
func (f Fit) Image() string {
	if f.Built == nil {
		return ""
	}
	return f.Built.Image
}

// KnownCapabilities checks that each wanted capability is one that there can be: that this
// broker knows, or that some provider has. Whoever misspells one hears so, however the
// providers are.
func (w Wanted) KnownCapabilities(providers []Provider) error {
	all := sdk.Capabilities()
	for _, p := range providers {
		all = append(all, p.Description().Capabilities...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, c := range w.Capabilities {
		if !slices.Contains(all, c) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "capabilities", "there is no capability %q; there are: %s",
				c, listed(all, func(c sdk.Capability) string { return string(c) }))
		}
	}
	return nil
}

// Named returns the provider that a request names, if the tenant may use it: usable are
// those of all that it may. Errors carry SB010 or SB012.
func (w Wanted) Named(usable, all []Provider) (Provider, error) {
	if p := Labelled(usable, w.Provider); p != nil {
		return p, nil
	}
	if Labelled(all, w.Provider) != nil {
		return nil, sdk.FieldErrorf(sdk.CodeNotAllowed, "provider", "this tenant may not use the provider %q", w.Provider)
	}
	return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "there is no such provider; there are: %s", listed(usable, Provider.Label))
}

// LanguageOf turns what a caller has written into a language of the provider.
func LanguageOf(d sdk.Description, name string) (sdk.Language, error) {
	language := sdk.ParseLanguage(name)
	if slices.Contains(d.Languages, language) {
		return language, nil
	}
	return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "this provider does not run that language; it runs: %s",
		listed(d.Languages, func(l sdk.Language) string { return string(l) }))
}

func listed[T any](all []T, name func(T) string) string {
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	return strings.Join(names, ", ")
}
