// Package network says what an instance may reach: what its tenant has, narrowed by what its
// creation asks for. How that is enforced is the provider's business (sdk.NetworkGovernor).
package network

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// Request is what a creation asks for. It never asks for more than its tenant has, and holds no
// secrets: these are the tenant's.
type Request struct {
	// None asks for no network.
	None bool `json:"none,omitempty"`
	// Rules ask for a part of what the tenant has; none for all of it. Whether a host may be on a
	// private network is the tenant's alone to say.
	Rules []sdk.NetworkRule `json:"rules,omitempty"`
	// MaxConnections and MaxBytes lower those of the tenant; 0 leaves them.
	MaxConnections int   `json:"max_connections,omitempty"`
	MaxBytes       int64 `json:"max_bytes,omitempty"`
}

// Check refuses a request that is none, or asks for more than the tenant has. The error is SB010
// or SB012, with a field below "network".
func Check(tenant *sdk.NetworkPolicy, r *Request) error {
	if r == nil || r.None {
		return nil
	}
	if err := networkpolicy.Validate(sdk.NetworkPolicy{Rules: r.Rules, MaxConnections: r.MaxConnections, MaxBytes: r.MaxBytes}); err != nil {
		return err
	}
	if tenant == nil {
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "network", "cannot be had: the operator has allowed no network for this tenant")
	}
	return within(tenant.Rules, r.Rules, "the operator has allowed for this tenant")
}

// within refuses rules of which one is not covered by one of those that are had.
func within(had, asked []sdk.NetworkRule, by string) error {
	for n, rule := range asked {
		if !slices.ContainsFunc(had, func(allowed sdk.NetworkRule) bool { return covers(allowed, rule) }) {
			return sdk.FieldErrorf(sdk.CodeNotAllowed, fmt.Sprintf("network.allow.%d", n), "asks for more of %.80q than %s", rule.Host, by)
		}
	}
	return nil
}

// Inherit is what an instance asks for that goes on from another one, whose request was from: all
// of that, or the part that asked takes of it. It never is more, since what the original was kept
// from would reach the copy otherwise. The error is SB012, with a field below "network"; Check
// says whether asked is a request at all.
func Inherit(from, asked *Request) (*Request, error) {
	switch {
	case from == nil || asked == nil || asked.None:
		return Both(from, asked), nil
	case from.None:
		return nil, sdk.FieldErrorf(sdk.CodeNotAllowed, "network", "cannot be had: what the instance goes on from has none")
	case len(from.Rules) > 0:
		if err := within(from.Rules, asked.Rules, "what the instance goes on from has"); err != nil {
			return nil, err
		}
	}
	return Both(from, asked), nil
}

// Both is the request for what two of them both ask for.
func Both(a, b *Request) *Request {
	switch {
	case a == nil:
		return b
	case b == nil || Same(a, b):
		return a
	case a.None || b.None:
		return &Request{None: true}
	}
	both := &Request{MaxConnections: least(a.MaxConnections, b.MaxConnections), MaxBytes: least(a.MaxBytes, b.MaxBytes)}
	switch {
	case len(a.Rules) == 0:
		both.Rules = slices.Clone(b.Rules)
	case len(b.Rules) == 0:
		both.Rules = slices.Clone(a.Rules)
	default:
		if both.Rules = meetAll(a.Rules, b.Rules); len(both.Rules) == 0 {
			return &Request{None: true} // without rules it would be all of the tenant's
		}
	}
	return both
}

// covers reports whether a rule allows all that another one asks for. Who asks for no methods or
// paths gets those of the rule.
func covers(allowed, asked sdk.NetworkRule) bool {
	both, ok := meet(allowed, asked)
	return ok && both.Host == asked.Host && len(networkpolicy.Ports(both)) == len(networkpolicy.Ports(asked)) &&
		(len(asked.Methods) == 0 || same(both.Methods, asked.Methods)) && (len(asked.Paths) == 0 || same(both.Paths, asked.Paths)) && both.WebSocket == asked.WebSocket && both.TCP == asked.TCP
}

func same(a, b []string) bool { return slices.Equal(sorted(a), sorted(b)) }

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// Effective is what an instance may reach; nil for nothing.
func Effective(tenant *sdk.NetworkPolicy, r *Request) *sdk.NetworkPolicy {
	if tenant == nil || len(tenant.Rules) == 0 || r != nil && r.None {
		return nil
	}
	if r == nil {
		return tenant
	}
	p := *tenant
	p.MaxConnections = lowered(p.MaxConnections, networkpolicy.UsualConnections, r.MaxConnections)
	p.MaxBytes = lowered(p.MaxBytes, networkpolicy.UsualBytes, r.MaxBytes)
	if len(r.Rules) == 0 {
		return &p
	}
	if p.Rules = meetAll(tenant.Rules, r.Rules); len(p.Rules) == 0 {
		return nil
	}
	return &p
}

// meetAll is what both of two lists of rules allow, as far as there is room for it.
func meetAll(had, wanted []sdk.NetworkRule) (rules []sdk.NetworkRule) {
	for _, asked := range wanted {
		for _, allowed := range had {
			if both, ok := meet(allowed, asked); ok && len(rules) < sdk.MaxNetworkRules {
				rules = append(rules, both)
			}
		}
	}
	return rules
}

// lowered is a bound that a tenant has, the usual one if that is 0, or the lower one that is asked
// for.
func lowered[T int | int64](had, usual, asked T) T {
	if asked == 0 {
		return had
	}
	return min(cmp.Or(had, usual), asked)
}

// least is the lower one of two bounds that are asked for, of which 0 is none.
func least[T int | int64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// meet is what both of two rules allow; false if that is nothing.
func meet(allowed, asked sdk.NetworkRule) (sdk.NetworkRule, bool) {
	both := sdk.NetworkRule{WebSocket: allowed.WebSocket && asked.WebSocket, TCP: allowed.TCP && asked.TCP, Private: allowed.Private}
	switch {
	case networkpolicy.Covers(allowed.Host, asked.Host):
		both.Host = asked.Host
	case networkpolicy.Covers(asked.Host, allowed.Host):
		both.Host = allowed.Host
	default:
		return both, false
	}
	for _, port := range networkpolicy.Ports(asked) {
		if slices.Contains(networkpolicy.Ports(allowed), port) && !slices.Contains(both.Ports, port) {
			both.Ports = append(both.Ports, port)
		}
	}
	var some bool
	if both.Methods, some = meetWords(allowed.Methods, asked.Methods, func(a, b string) bool { return a == b }); !some {
		return both, false
	}
	if both.Paths, some = meetWords(allowed.Paths, asked.Paths, networkpolicy.PathCovers); !some {
		return both, false
	}
	// Who looks into nothing cannot look at methods or paths.
	both.TCP = both.TCP && !networkpolicy.Limited(both)
	return both, len(both.Ports) > 0
}

// meetWords is what is in both of two lists, of which an empty one stands for all. some is
// false if that is nothing.
func meetWords(a, b []string, covers func(pattern, word string) bool) (both []string, some bool) {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b), true
	}
	for _, x := range a {
		for _, y := range b {
			switch {
			case covers(x, y):
				both = append(both, y)
			case covers(y, x):
				both = append(both, x)
			}
		}
	}
	both = sorted(both)
	return both, len(both) > 0
}

// Same reports whether two creations ask for the same.
func Same(a, b *Request) bool {
	return a == nil && b == nil || a != nil && b != nil && text(a) == text(b)
}

// Fingerprint tells policies apart without showing their secrets; "" for none. It is for this
// process alone.
func Fingerprint(p *sdk.NetworkPolicy) string {
	if p == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(text(p)))
	return hex.EncodeToString(sum[:])
}

func text(v any) string {
	var b strings.Builder
	_ = json.NewEncoder(&b).Encode(v) // of these types it cannot fail
	return b.String()
}
