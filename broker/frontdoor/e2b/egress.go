package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// The fields that say what a sandbox may reach.
const (
	fieldAllow    = "allowOut"
	fieldDeny     = "denyOut"
	fieldInternet = "allow_internet_access"
)

// everything is what clients deny to deny all.
const everything = "0.0.0.0/0"

// egress is what a client says of what a sandbox may reach. E2B allows what is not denied, and
// the broker what is allowed: what both can say is all that the tenant has, nothing, and a
// list of hosts.
type egress struct {
	// closed means that everything is denied but the hosts.
	closed bool
	hosts  []string
	// allow is the field that names the hosts.
	allow string
}

// readEgress reads the lists of an object whose fields have the given prefix.
func readEgress(fields map[string]json.RawMessage, prefix string) (egress, error) {
	e := egress{allow: prefix + fieldAllow}
	lists := map[string][]string{}
	for _, name := range []string{fieldAllow, fieldDeny} {
		var list []string
		if raw, given := fields[name]; given && json.Unmarshal(raw, &list) != nil {
			return egress{}, refused(prefix+name, "is not of the type that the API has for it")
		}
		lists[name] = list
	}
	for _, text := range lists[fieldDeny] {
		block, err := blockOf(text)
		if err != nil {
			return egress{}, refused(prefix+fieldDeny, "must have addresses and blocks of them; %.80q is neither", text)
		}
		if block.Bits() == 0 && block.Addr().Is4() {
			e.closed = true
		}
	}
	if len(lists[fieldDeny]) > 0 && !e.closed {
		return egress{}, refused(prefix+fieldDeny, "can deny everything here, by %q, and nothing less: what sandboxes reach is a list of hosts", everything)
	}
	for _, text := range lists[fieldAllow] {
		host, err := hostToAllow(text)
		if err != nil {
			return egress{}, refused(e.allow, "has %.80q, which %s", text, err.Error())
		}
		if !slices.Contains(e.hosts, host) {
			e.hosts = append(e.hosts, host)
		}
	}
	return e, nil
}

// blockOf reads an address or a block of them.
func blockOf(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return address.Prefix(address.BitLen())
	}
	return netip.ParsePrefix(text)
}

// hostToAllow is what the broker calls a host that is to be allowed.
func hostToAllow(text string) (string, error) {
	if block, err := blockOf(text); err == nil {
		if !block.IsSingleIP() {
			return "", errors.New("is a block of addresses, of which the broker allows none: name hosts, or addresses one by one")
		}
		return block.Addr().String(), nil
	}
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	if host == "*" || !networkpolicy.ValidPattern(host) {
		return "", errors.New("is no host, nor *. before one, nor an address")
	}
	return host, nil
}

// request is what the broker is asked for, within what the tenant has; nil for all of that.
// promised is what the operator says that sandboxes reach, whatever is asked for.
func (e egress) request(tenant *sdk.NetworkPolicy, promised string) (*network.Request, error) {
	switch {
	case !e.closed && len(e.hosts) > 0:
		return nil, refused(e.allow, "needs %q in %s: nothing else is denied, so that there is nothing that it could allow", everything, fieldDeny)
	case !e.closed:
		return nil, nil
	case promised == config.NetworkDeny && len(e.hosts) > 0:
		return nil, refused(e.allow, "must be empty here: the operator says that sandboxes reach nothing (network)")
	case promised == config.NetworkDeny:
		return nil, nil // whatever the provider can enforce
	case len(e.hosts) == 0:
		return &network.Request{None: true}, nil
	}
	asked := &network.Request{}
	for n, host := range e.hosts {
		rules := within(tenant, host)
		if len(rules) == 0 {
			return nil, sdk.FieldErrorf(sdk.CodeNotAllowed, fmt.Sprintf("%s.%d", e.allow, n), "%s has %.80q, which is more than the operator has allowed for this tenant", e.allow, host)
		}
		asked.Rules = append(asked.Rules, rules...)
	}
	if len(asked.Rules) > sdk.MaxNetworkRules {
		return nil, refused(e.allow, "has more than %d rules in all here; name fewer hosts", sdk.MaxNetworkRules)
	}
	return asked, nil
}

// within are the rules of a tenant for a host, for that alone. E2B lets a name be reached on
// the ports of HTTP and TLS, where it sees the name, and an address on all.
func within(tenant *sdk.NetworkPolicy, host string) (rules []sdk.NetworkRule) {
	if tenant == nil {
		return nil
	}
	_, err := netip.ParseAddr(host)
	isName := err != nil
	for _, rule := range tenant.Rules {
		if !networkpolicy.Covers(rule.Host, host) {
			continue
		}
		rule.Host, rule.Private = host, false // whether it may be private the tenant's rule says
		if isName {
			rule.TCP = false
			rule.Ports = slices.DeleteFunc(slices.Clone(networkpolicy.Ports(rule)), func(port int) bool { return port != 80 && port != 443 })
			if len(rule.Ports) == 0 {
				continue
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// setNetwork puts another network in the place of the one that a sandbox has: what a field
// that is left out says is gone.
func (d *Door) setNetwork(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	fields, err := objectOf(c.Body)
	if err != nil {
		return 0, rest.None{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{fieldAllow, fieldDeny, fieldInternet}, name) && !isNothing(fields[name]) {
			return 0, rest.None{}, refused(frontdoor.Clipped(name), "is not served here, and would change what you get; leave it out")
		}
	}
	out, err := readEgress(fields, "")
	if err != nil {
		return 0, rest.None{}, err
	}
	var internet *bool
	if raw, given := fields[fieldInternet]; given && json.Unmarshal(raw, &internet) != nil {
		return 0, rest.None{}, refused(fieldInternet, "is not of the type that the API has for it")
	}
	out.closed = out.closed || internet != nil && !*internet
	asked, err := out.request(c.Tenant.Network, d.settings.Load().Network)
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.controlled(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	if asked == nil {
		if out.closed {
			return http.StatusNoContent, rest.None{}, nil // as it is already
		}
		asked = &network.Request{}
	}
	_, err = d.instances.SetNetwork(ctx, c.Tenant, info.ID.String(), *asked)
	return http.StatusNoContent, rest.None{}, err
}

// networkOf is what the owner of a sandbox has said of its network, nil for nothing. internet
// is false where it reaches nothing, and else nil.
func (d *Door) networkOf(info instance.Info) (said *networking, internet *bool) {
	private, asked := noteOf(info).Private, info.Network
	narrowed := asked != nil && (asked.None || len(asked.Rules) > 0)
	if !private && !narrowed {
		return nil, nil
	}
	said = &networking{AllowPublicTraffic: !private && d.settings.Load().PublicPorts}
	if !narrowed {
		return said, nil
	}
	if asked.None {
		internet = new(bool)
	}
	said.DenyOut = []string{everything}
	for _, rule := range asked.Rules {
		if !slices.Contains(said.AllowOut, rule.Host) {
			said.AllowOut = append(said.AllowOut, rule.Host)
		}
	}
	return said, internet
}
