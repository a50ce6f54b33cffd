// Package networkpolicy knows the forms of a sdk.NetworkPolicy: which hosts, paths and secrets
// there can be, and what a pattern of them stands for. Package sdk/gateway enforces policies.
package networkpolicy

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of an instance whose policy says nothing of them: connections at once, and bytes of each
// way in its life.
const (
	UsualConnections = 64
	UsualBytes       = 10 << 30
)

// They are made when the first one is needed: a guest starts without.
var (
	networkName   = expression(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)
	networkMethod = expression(`^[A-Z][A-Z-]{0,31}$`)
	networkHeader = expression(`^[A-Za-z][A-Za-z0-9-]{0,62}$`)
	secretName    = expression(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
)

func expression(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Host puts a host as an instance has it into the form of sdk.NetworkRule.Host; ok is false
// for what is none. A name that ends in a number is an address to some programs and none to
// others, so it is no host.
func Host(text string) (host string, ok bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.String(), address.Zone() == ""
	}
	host = strings.TrimSuffix(strings.ToLower(text), ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if len(host) > sdk.MaxNetworkText || !networkName().MatchString(host) || strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return host, false
	}
	return host, true
}

// ValidPattern reports whether text can be the host of a rule.
func ValidPattern(text string) bool {
	if text == "*" {
		return true
	}
	name, below := strings.CutPrefix(text, "*.")
	host, ok := Host(name)
	_, err := netip.ParseAddr(name)
	return ok && host == name && (err == nil && !below || err != nil && strings.Contains(name, "."))
}

// Covers reports whether a pattern stands for a host, or for all that another
// pattern stands for.
func Covers(pattern, host string) bool {
	if pattern == host {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	parent, below := strings.CutPrefix(pattern, "*")
	return below && strings.HasSuffix(strings.TrimPrefix(host, "*"), parent) && (len(strings.TrimPrefix(host, "*")) > len(parent) || strings.HasPrefix(host, "*"))
}

// PathCovers is Covers for paths.
func PathCovers(pattern, path string) bool {
	parent, below := strings.CutSuffix(pattern, "*")
	return pattern == path || below && strings.HasPrefix(path, parent)
}

// Ports are those of a rule, the usual ones if it names none.
func Ports(r sdk.NetworkRule) []int {
	if len(r.Ports) == 0 {
		return []int{80, 443}
	}
	return r.Ports
}

// Limited reports whether requests must be read to obey the rule.
func Limited(r sdk.NetworkRule) bool { return len(r.Methods) > 0 || len(r.Paths) > 0 }

// Validate returns what is wrong with a policy, nil if nothing is: CodeInvalidRequest with a
// field below "network". It never says the value of a secret.
func Validate(p sdk.NetworkPolicy) error {
	refuse := func(format string, args ...any) error {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "network", format, args...)
	}
	switch {
	case len(p.Rules) > sdk.MaxNetworkRules:
		return refuse("has %d rules; at most %d are allowed", len(p.Rules), sdk.MaxNetworkRules)
	case len(p.Secrets) > sdk.MaxNetworkSecrets:
		return refuse("has %d secrets; at most %d are allowed", len(p.Secrets), sdk.MaxNetworkSecrets)
	case p.MaxConnections < 0 || p.MaxBytes < 0 || p.TenantConnections < 0 || p.TenantBytes < 0:
		return refuse("has a bound below 0")
	}
	for _, r := range p.Rules {
		if why := ruleProblem(r); why != "" {
			return refuse("has a rule for %.80q that %s", r.Host, why)
		}
	}
	for n, s := range p.Secrets {
		if why := secretProblem(s); why != "" {
			return refuse("has a secret %.80q that %s", s.Name, why)
		}
		if slices.ContainsFunc(p.Secrets[:n], func(o sdk.NetworkSecret) bool { return o.Name == s.Name }) {
			return refuse("has two secrets %q", s.Name)
		}
	}
	return nil
}

func ruleProblem(r sdk.NetworkRule) string {
	switch {
	case !ValidPattern(r.Host):
		return "is neither the name of a host in small letters, nor *. before one, nor *, nor an address"
	case len(r.Ports) > sdk.MaxNetworkWords || len(r.Methods) > sdk.MaxNetworkWords || len(r.Paths) > sdk.MaxNetworkWords:
		return "has too many ports, methods or paths"
	case slices.ContainsFunc(r.Ports, func(p int) bool { return p < 1 || p > 65535 }):
		return "has a port that is none: 1 to 65535"
	case slices.ContainsFunc(r.Methods, func(m string) bool { return !networkMethod().MatchString(m) || m == "CONNECT" || m == "TRACE" }):
		return "has a method that is none in capitals, or is CONNECT or TRACE"
	case slices.ContainsFunc(r.Paths, func(p string) bool { return !validNetworkPath(p) }):
		return "has a path that does not begin with a slash, or has * elsewhere than at its end, or what is not plain"
	case r.TCP && Limited(r):
		return "allows any protocol and also has methods or paths, which nobody could look at"
	default:
		return ""
	}
}

// validNetworkPath is for paths as they arrive: nothing in them is encoded or leads upwards.
func validNetworkPath(p string) bool {
	if len(p) > sdk.MaxNetworkText || !strings.HasPrefix(p, "/") || strings.Contains(strings.TrimSuffix(p, "*"), "*") ||
		strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`%\?#;"<>`, c) }) || strings.Contains(p, "//") {
		return false
	}
	return !slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool { return s == "." || s == ".." })
}

func secretProblem(s sdk.NetworkSecret) string {
	switch {
	case !secretName().MatchString(s.Name):
		return "is not named by 1 to 63 of a-z 0-9 _ -, a letter or digit first and last"
	case !networkHeader().MatchString(s.Header):
		return "names no header"
	case slices.ContainsFunc([]string{"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}, func(h string) bool { return strings.EqualFold(h, s.Header) }):
		return "names a header that says how a message is read"
	case len(s.Value) < sdk.MinNetworkSecret || len(s.Value) > sdk.MaxNetworkSecret:
		return "has a value of less than 8 bytes or more than 8 KiB"
	case strings.ContainsFunc(s.Value, func(c rune) bool { return c < ' ' || c > '~' }):
		return "has a value that cannot stand in a header"
	case strings.Contains(s.Value, s.Placeholder()):
		return "has a value with its own placeholder"
	case len(s.Hosts) == 0 || len(s.Hosts) > sdk.MaxNetworkWords || slices.ContainsFunc(s.Hosts, func(h string) bool { return h == "*" || !ValidPattern(h) }):
		return "needs hosts, each a name in small letters, *. before one, or an address"
	default:
		return ""
	}
}
