package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Validate implements sdk.SettingsValidator.
func (p *Provider) Validate(_ context.Context, given sdk.Settings) []sdk.FieldError {
	var s settings
	if err := given.Decode(&s); err != nil {
		return []sdk.FieldError{{Message: err.Error()}}
	}
	var problems []sdk.FieldError
	add := func(field, format string, args ...any) {
		problems = append(problems, sdk.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	s.checkRegion(add)
	for _, name := range slices.Sorted(maps.Keys(s.Templates)) {
		if _, known := s.templateOf(name); !known {
			add("templates", "has %.100q, which is no template of the broker's", name)
		} else if s.Templates[name] == "" {
			add("templates", "has nothing for %s", name)
		}
	}
	for _, host := range s.AllowedHosts {
		if strings.TrimSpace(host) != host || host == "" || strings.ContainsAny(host, " ,;") {
			add("allowed_hosts", "has %.100q, which is neither a name nor an address", host)
		}
	}
	if !s.AllowInternet && len(s.AllowedHosts) > 0 {
		add("allowed_hosts", "allows what is not reached: allow_internet is false")
	}
	return problems
}

// checkRegion keeps data from a region where it is not to be: the addresses decide, and
// the default ones are in the US.
func (s settings) checkRegion(add func(field, format string, args ...any)) {
	elsewhere := s.Domain != defaultDomain
	switch {
	case s.Region == regionEU && !elsewhere && (s.APIURL == "" || s.SandboxURL == ""):
		add("region", "cannot be eu, since %s is in the US; set domain to the one that E2B has told you for the EU", defaultDomain)
	case s.Region == regionUS && (elsewhere || s.APIURL != "" || s.SandboxURL != ""):
		add("region", "us is at %s; leave region out for another domain or URL", defaultDomain)
	}
}
