package opensandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
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

// OpenSandbox allows or denies what no rule is for, and the broker allows what it lists. What
// both can say is nothing, and a list of hosts: defaultAction "deny", and rules that allow.

// readNetworkPolicy reads what a sandbox may reach. A policy that says what holds anyhow asks
// for nothing.
func readNetworkPolicy(body createBody, settings frontdoor.Settings, req *creation) error {
	p := body.NetworkPolicy
	if p == nil {
		return nil
	}
	holds := map[string]string{config.NetworkDeny: actionDeny, config.NetworkAllow: actionAllow}[settings.Network]
	switch asked := cmp.Or(p.DefaultAction, actionDeny); {
	case holds == "" && p.DefaultAction == "" && len(p.Egress) == 0:
		return nil
	case asked == holds && len(p.Egress) == 0:
		return nil
	case asked != actionDeny:
		return refused("networkPolicy", "cannot be had here: what a sandbox reaches is nothing, or a list of hosts; ask for defaultAction %q and rules that allow", actionDeny)
	}
	hosts, err := changedBy(nil, p.Egress, "networkPolicy.egress")
	if err != nil {
		return err
	}
	req.instance.Network, err = requestOf(hosts, nil, req.tenant, settings.Network, "networkPolicy.egress")
	return err
}

// changedBy is a list of hosts after the rules of a client: of those for one target the first
// counts.
func changedBy(hosts []string, rules []egressRule, field string) ([]string, error) {
	hosts = slices.Clone(hosts)
	seen := map[string]bool{}
	for n, rule := range rules {
		at := fmt.Sprintf("%s.%d", field, n)
		target := targetOf(rule.Target)
		if target == "*" || !networkpolicy.ValidPattern(target) {
			return nil, refused(at+".target", "must be a host, or *. before one; %.80q is neither", rule.Target)
		}
		if seen[target] {
			continue
		}
		seen[target] = true
		switch rule.Action {
		case actionAllow:
			if !slices.Contains(hosts, target) {
				hosts = append(hosts, target)
			}
		case actionDeny:
			hosts = slices.DeleteFunc(hosts, func(host string) bool { return host == target })
			if by := slices.IndexFunc(hosts, func(host string) bool {
				return networkpolicy.Covers(host, target) || networkpolicy.Covers(target, host)
			}); by >= 0 {
				return nil, refused(at, "cannot be had here: %.80q is allowed, and what is reached is a list of hosts from which no part of one is taken", hosts[by])
			}
		default:
			return nil, refused(at+".action", "must be %s or %s", actionAllow, actionDeny)
		}
	}
	return hosts, nil
}

// targetOf is a target as the broker writes hosts.
func targetOf(text string) string { return strings.TrimSuffix(strings.ToLower(text), ".") }

// requestOf is what the broker is asked for, so that a sandbox reaches these hosts alone within
// what the tenant has; nil for what holds anyhow. Hosts that the sandbox has keep their rules.
func requestOf(hosts []string, has *network.Request, tenant *sdk.NetworkPolicy, promised, field string) (*network.Request, error) {
	switch {
	case promised == config.NetworkDeny && len(hosts) > 0:
		return nil, refused(field, "must allow nothing here: the operator says that sandboxes reach nothing (network)")
	case promised == config.NetworkDeny:
		return nil, nil // whatever the provider can enforce
	case len(hosts) == 0:
		return &network.Request{None: true}, nil
	}
	asked := &network.Request{}
	if has != nil {
		asked.MaxConnections, asked.MaxBytes = has.MaxConnections, has.MaxBytes
	}
	for n, host := range hosts {
		rules := rulesFor(host, has, tenant)
		if len(rules) == 0 {
			return nil, sdk.FieldErrorf(sdk.CodeNotAllowed, fmt.Sprintf("%s.%d", field, n), "%.80q is more than the operator has allowed for this tenant", host)
		}
		asked.Rules = append(asked.Rules, rules...)
	}
	if len(asked.Rules) > sdk.MaxNetworkRules {
		return nil, refused(field, "has more than %d rules in all here; name fewer hosts", sdk.MaxNetworkRules)
	}
	return asked, nil
}

// rulesFor are the rules of a sandbox for a host, or those of its tenant for that alone.
func rulesFor(host string, has *network.Request, tenant *sdk.NetworkPolicy) (rules []sdk.NetworkRule) {
	if has != nil {
		for _, rule := range has.Rules {
			if rule.Host == host {
				rules = append(rules, rule)
			}
		}
	}
	if tenant == nil || len(rules) > 0 {
		return rules
	}
	for _, rule := range tenant.Rules {
		if networkpolicy.Covers(rule.Host, host) {
			rule.Host, rule.Private = host, false // whether it may be private the tenant's rule says
			rules = append(rules, rule)
		}
	}
	return rules
}

// hostsOf are the hosts that a sandbox reaches, where it was narrowed to some or to none.
func hostsOf(info instance.Info) (hosts []string, narrowed bool) {
	asked := info.Network
	if asked == nil || !asked.None && len(asked.Rules) == 0 {
		return nil, false
	}
	for _, rule := range asked.Rules {
		if !slices.Contains(hosts, rule.Host) {
			hosts = append(hosts, rule.Host)
		}
	}
	return hosts, true
}

// enforced is how what a sandbox was narrowed to is kept: by the gateway of its provider.
const enforced = "gateway"

// policyOf is what a client may know of the policy of a sandbox.
func (d *Door) policyOf(info instance.Info) policyStatus {
	status := policyStatus{Status: "ok", EnforcementMode: "none", Policy: networkPolicy{DefaultAction: d.defaultAction(), Egress: []egressRule{}}}
	if hosts, narrowed := hostsOf(info); narrowed {
		status.EnforcementMode, status.Policy.DefaultAction = enforced, actionDeny
		for _, host := range hosts {
			status.Policy.Egress = append(status.Policy.Egress, egressRule{actionAllow, host})
		}
	}
	status.Mode = status.Policy.DefaultAction + "_all"
	return status
}

func (d *Door) policy(ctx context.Context, c rest.Call[rest.None]) (int, policyStatus, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	return http.StatusOK, d.policyOf(info), err
}

// patchPolicy lets a sandbox reach more hosts, or fewer.
func (d *Door) patchPolicy(ctx context.Context, c rest.Call[rest.Raw]) (int, policyStatus, error) {
	var rules []egressRule
	if err := json.Unmarshal(c.Body, &rules); err != nil || len(rules) == 0 {
		return 0, policyStatus{}, refused("egress", "must be an array of rules, one at least")
	}
	if name := unknownField(json.RawMessage(c.Body), reflect.TypeFor[[]egressRule]()); name != "" {
		return 0, policyStatus{}, notServed(name)
	}
	return d.changePolicy(ctx, c, func(hosts []string, narrowed bool) ([]string, error) {
		if !narrowed {
			return nil, unavailable("this sandbox reaches all that its tenant has, and has no rules: make it with a networkPolicy whose defaultAction is deny.")
		}
		return changedBy(hosts, rules, "egress")
	})
}

// deleteRules takes hosts off the list. One that is not in it is none.
func (d *Door) deleteRules(ctx context.Context, c rest.Call[rest.Raw]) (int, policyStatus, error) {
	var targets []string
	if err := json.Unmarshal(c.Body, &targets); err != nil || len(targets) == 0 {
		return 0, policyStatus{}, refused("egress", "must be an array of targets, one at least")
	}
	return d.changePolicy(ctx, c, func(hosts []string, _ bool) ([]string, error) {
		return slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
			return slices.ContainsFunc(targets, func(target string) bool { return targetOf(target) == host })
		}), nil
	})
}

// changePolicy has a sandbox reach what change makes of the hosts that it reaches. Two that
// change it at once do so one after the other.
func (d *Door) changePolicy(ctx context.Context, c rest.Call[rest.Raw], change func(hosts []string, narrowed bool) ([]string, error)) (int, policyStatus, error) {
	release, err := d.policies.Take(ctx, c.Path["id"])
	if err != nil {
		return 0, policyStatus{}, err
	}
	defer release()
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, policyStatus{}, err
	}
	promised := d.settings.Load().Network
	hosts, narrowed := hostsOf(info)
	changed, err := change(hosts, narrowed || promised == config.NetworkDeny)
	if err != nil {
		return 0, policyStatus{}, err
	}
	if !slices.Equal(changed, hosts) {
		asked, err := requestOf(changed, info.Network, c.Tenant.Network, promised, "egress")
		if err != nil {
			return 0, policyStatus{}, err
		}
		if asked != nil {
			if info, err = d.instances.SetNetwork(ctx, c.Tenant, info.ID.String(), *asked); err != nil {
				return 0, policyStatus{}, err
			}
		}
	}
	return http.StatusOK, d.policyOf(info), nil
}
