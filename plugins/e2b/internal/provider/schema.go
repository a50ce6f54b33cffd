package provider

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// settings are the values of schema.
type settings struct {
	APIKey        string            `config:"api_key"`
	Region        string            `config:"region"`
	Domain        string            `config:"domain"`
	APIURL        string            `config:"api_url"`
	SandboxURL    string            `config:"sandbox_url"`
	Template      string            `config:"template"`
	Templates     map[string]string `config:"templates"`
	User          string            `config:"user"`
	Timeout       time.Duration     `config:"timeout"`
	MaxRetries    int64             `config:"max_retries"`
	AllowInternet bool              `config:"allow_internet"`
	AllowedHosts  []string          `config:"allowed_hosts"`
	PublicTraffic bool              `config:"public_traffic"`
	CostPerSecond float64           `config:"cost_per_second"`
}

const (
	defaultDomain   = "e2b.app"
	regionUS        = "us"
	regionEU        = "eu"
	defaultTemplate = "code-interpreter-v1"
	templateForm    = `[A-Za-z0-9_.:/-]+`
	urlForm         = `https?://[^/?#@\s]+(/[^?#\s]*)?`
)

func schema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "api_key", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(1),
			Label: "API key", Description: "A key of your team.", Placeholder: `env("E2B_API_KEY")`,
		},
		{
			Name: "region", Type: sdk.TypeString, Options: []string{regionUS, regionEU},
			Label: "Region", Description: "Where E2B's own sandboxes are to be, if that matters. Nothing is sent to a place that is not sure to be there: `us` is at e2b.app, and for `eu` give as `domain` the one that E2B has told you, for its cluster in the EU is opened on request.",
		},
		{
			Name: "domain", Type: sdk.TypeString, FileOnly: true, Default: defaultDomain, Pattern: `[A-Za-z0-9][A-Za-z0-9.-]*`,
			Label: "Domain", Description: "The API is at api.DOMAIN and sandboxes below DOMAIN. Another one for clouds that speak the protocol of E2B, and for E2B on machines of your own.",
		},
		{
			Name: "api_url", Type: sdk.TypeString, FileOnly: true, Pattern: urlForm,
			Label: "API URL", Description: "Where the API is, if not at https://api.DOMAIN.", Placeholder: "https://api.example.com",
		},
		{
			Name: "sandbox_url", Type: sdk.TypeString, FileOnly: true, Pattern: urlForm,
			Label: "Sandbox URL", Description: "One URL behind which all sandboxes are, told apart by headers, for clouds without a name for each.", Placeholder: "https://sandbox.example.com",
		},
		{
			Name: "template", Type: sdk.TypeString, Default: defaultTemplate, Pattern: templateForm,
			Label: "Template", Description: "The template of E2B that instances are made of. It must have python3, and for contexts and languages other than Python, JavaScript and Bash the code interpreter.",
		},
		{
			Name: "templates", Type: sdk.TypeMap, Default: map[string]string{},
			Label: "Templates", Description: "Other templates of E2B for some of the broker's: `python`, `nodejs`, `bash`, `code_interpreter`.",
		},
		{
			Name: "user", Type: sdk.TypeString, Pattern: `[a-z_][a-z0-9_-]*`,
			Label: "User", Description: "The user of the sandbox that executions, commands and files belong to. Without it, the template's default one, which is `user`. Contexts always belong to the user of the code interpreter, which is root.",
		},
		{
			Name: "timeout", Type: sdk.TypeDuration, Default: "10m", Min: sdk.Bound(60), Max: sdk.Bound(24 * 3600),
			Label: "Timeout", Description: "How long a sandbox lives on when this broker is gone: so long it is paid for. As long as the broker runs, it is extended in time.",
		},
		{
			Name: "max_retries", Type: sdk.TypeInteger, Default: 3, Min: sdk.Bound(0), Max: sdk.Bound(10),
			Label: "Retries", Description: "How often a call of the API is repeated that may succeed later.",
		},
		{
			Name: "allow_internet", Type: sdk.TypeBoolean, Default: true,
			Label: "Internet", Description: "Whether sandboxes reach the Internet.",
		},
		{
			Name: "allowed_hosts", Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(100),
			Label: "Allowed hosts", Description: "If given, sandboxes reach these and nothing else: addresses, networks (10.0.0.0/8), names, `*.` before a name for all below it. Names count on the ports 80 and 443 only.",
		},
		{
			Name: "public_traffic", Type: sdk.TypeBoolean, Default: false,
			Label: "Public traffic", Description: "Whether anybody who knows the ID of a sandbox may reach the servers in it, the code interpreter among them. Some clouds need it.",
		},
		{
			Name: "cost_per_second", Type: sdk.TypeNumber, Default: 0, Min: sdk.Bound(0),
			Label: "Cost per second", Description: "What a second of a running sandbox costs you, in a currency of your choice, for the metric `cost_total`. For 2 vCPU and 2 GiB at E2B's list price it is 0.000037 USD.",
			Placeholder: "0.000037",
		},
	}
}

// The broker's templates. The names of the first three are those of the self-managed
// provider, so that one can stand in for the other.
func templates() []sdk.Template {
	return []sdk.Template{
		{Name: "python", Description: "For Python.", Languages: []sdk.Language{sdk.Python}},
		{Name: "nodejs", Description: "For JavaScript and TypeScript.", Languages: []sdk.Language{sdk.JavaScript, sdk.TypeScript}},
		{Name: "bash", Description: "For Bash.", Languages: []sdk.Language{sdk.Bash}},
		{Name: "code_interpreter", Description: "For all languages.", Languages: languages()},
	}
}

func languages() []sdk.Language {
	return []sdk.Language{sdk.Python, sdk.JavaScript, sdk.Bash, sdk.TypeScript, sdk.R, sdk.Java}
}

// templateOf is E2B's template for one of the broker's.
func (s settings) templateOf(name string) (string, bool) {
	if !slices.ContainsFunc(templates(), func(t sdk.Template) bool { return t.Name == name }) {
		return "", false
	}
	if own, ok := s.Templates[name]; ok {
		return own, true
	}
	return s.Template, true
}

// network is what a new sandbox may reach, and who may reach it.
func (s settings) network() (*bool, *control.Network) {
	var network control.Network
	if !s.PublicTraffic {
		network.AllowPublicTraffic = new(bool)
	}
	if len(s.AllowedHosts) > 0 {
		network.AllowOut, network.DenyOut = s.AllowedHosts, []string{netip.PrefixFrom(netip.IPv4Unspecified(), 0).String()}
	}
	if s.AllowInternet {
		return nil, &network
	}
	return new(bool), &network
}

// apiURL is where the control API is.
func (s settings) apiURL() string {
	if s.APIURL != "" {
		return s.APIURL
	}
	return "https://api." + s.Domain
}

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
