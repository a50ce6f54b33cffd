package provider

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/netpolicy"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// network are the settings of what code with the pod's network reaches.
type network struct {
	Egress     []egress `config:"egress"`
	DNS        string   `config:"dns"`
	Unenforced string   `config:"unenforced_policies"`
}

// egress is where code may connect to.
type egress struct {
	CIDR   string   `config:"cidr"`
	Except []string `config:"except"`
	Ports  []string `config:"ports"`
}

// Values of the settings.
const (
	dnsNone    = "none"
	dnsCluster = "cluster"

	unenforcedRefuse = "refuse"
	unenforcedAccept = "accept"
)

func networkFields() sdk.Schema {
	return sdk.Schema{
		{
			Name: "egress", Type: sdk.TypeBlock, Repeated: true, FileOnly: true, Max: sdk.Bound(100), Label: "Egress",
			Description: "Where the code in a sandbox may connect to with network = \"pod\"; nowhere unless it is given.",
			Fields: sdk.Schema{
				{Name: "cidr", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Label: "Network", Description: "The addresses, such as 203.0.113.0/24. Those that are link-local, where clouds tell machines their secrets, are never among them."},
				{Name: "except", Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(100), Label: "Except", Description: "Networks within it that are not meant."},
				{Name: "ports", Type: sdk.TypeList, Default: []string{}, Max: sdk.Bound(100), Label: "Ports", Description: "The ports, such as \"443\", \"53/udp\" or \"8000-8999/tcp\", of TCP unless they say otherwise; all unless given."},
			},
		},
		{
			Name: "dns", Type: sdk.TypeString, FileOnly: true, Default: dnsNone, Options: []string{dnsNone, dnsCluster}, Label: "DNS",
			Description: "Whether code with network = \"pod\" may ask for names, cluster for the pods of kube-system that are labelled k8s-app=kube-dns. Who may ask for names can send data anywhere by them, and learns what services the cluster has.",
		},
		{
			Name: "unenforced_policies", Type: sdk.TypeString, FileOnly: true, Default: unenforcedRefuse, Options: []string{unenforcedRefuse, unenforcedAccept}, Label: "Unenforced policies",
			Description: "What to do where code with network = \"pod\" reaches the API server in spite of the policy that this plugin makes, so that the cluster's network does not enforce policies, or egress allows it: refuse to hand out pods, or accept that the code reaches whatever the pod does.",
		},
	}
}

var portForm = regexp.MustCompile(`^([0-9]{1,5})(?:-([0-9]{1,5}))?(?:/(tcp|udp))?$`)

// parsePort reads an element of ports.
func parsePort(text string) (networkingv1.NetworkPolicyPort, error) {
	var port networkingv1.NetworkPolicyPort
	parts := portForm.FindStringSubmatch(text)
	if parts == nil {
		return port, fmt.Errorf("has %.40q, which is no port such as 443 or 53/udp", text)
	}
	first, _ := strconv.Atoi(parts[1]) // five digits at most
	if first < 1 || first > math.MaxUint16 {
		return port, fmt.Errorf("has the port %s, which is not between 1 and 65535", parts[1])
	}
	from := intstr.FromInt32(int32(first))
	port.Port = &from
	if parts[2] != "" {
		last, _ := strconv.Atoi(parts[2])
		if last < first || last > math.MaxUint16 {
			return port, fmt.Errorf("has the ports %s, which end before they begin or above 65535", text)
		}
		port.EndPort = new(int32(last))
	}
	protocol := corev1.ProtocolTCP
	if parts[3] == "udp" {
		protocol = corev1.ProtocolUDP
	}
	port.Protocol = &protocol
	return port, nil
}

// linkLocal are the networks that no sandbox ever reaches: clouds answer there for the machine,
// one of them at an address of its own, and a gateway translates the last into the first.
var linkLocal = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::254/128"), netip.MustParsePrefix("64:ff9b::a9fe:0/112"),
}

// rule makes of the settings a rule of the policy. field is the one at fault.
func (e egress) rule() (rule networkingv1.NetworkPolicyEgressRule, field string, err error) {
	cidr, err := netip.ParsePrefix(e.CIDR)
	if err != nil || cidr != cidr.Masked() || cidr.Addr().Is4In6() {
		return rule, "cidr", fmt.Errorf("is %.100q, which is no network such as 203.0.113.0/24", e.CIDR)
	}
	block := &networkingv1.IPBlock{CIDR: cidr.String()}
	for _, text := range e.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil || except != except.Masked() || !contains(cidr, except) || except == cidr {
			return rule, "except", fmt.Errorf("has %.100q, which is no network within %s", text, cidr)
		}
		block.Except = append(block.Except, except.String())
	}
	for _, never := range linkLocal {
		switch {
		case contains(never, cidr):
			return rule, "cidr", fmt.Errorf("is %s, where no sandbox may connect to: clouds tell machines their secrets there", cidr)
		case contains(cidr, never) && !slices.Contains(block.Except, never.String()):
			block.Except = append(block.Except, never.String())
		}
	}
	for _, text := range e.Ports {
		port, err := parsePort(text)
		if err != nil {
			return rule, "ports", err
		}
		rule.Ports = append(rule.Ports, port)
	}
	rule.To = []networkingv1.NetworkPolicyPeer{{IPBlock: block}}
	return rule, "", nil
}

// contains says whether all of a network is in another.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// validateNetwork says what is wrong with the settings.
func (s settings) validateNetwork(add func(field, format string, args ...any)) {
	if s.Network != networkPod {
		if len(s.Net.Egress) > 0 {
			add("egress", "belongs to network = %q", networkPod)
		}
		if s.Net.DNS != dnsNone {
			add("dns", "belongs to network = %q", networkPod)
		}
	}
	for n, e := range s.Net.Egress {
		if _, field, err := e.rule(); err != nil {
			add(fmt.Sprintf("egress[%d].%s", n, field), "%s", err)
		}
	}
}

// policy is what the pods of an owner may do in the cluster's network.
func (s settings) policy(owner string) (networkingv1.NetworkPolicySpec, error) {
	spec := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{pods.LabelOwner: owner}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	if s.Reach == reachPod {
		port := intstr.FromInt32(int32(s.Port))
		spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}}}}
	}
	for _, e := range s.Net.Egress {
		rule, _, err := e.rule()
		if err != nil {
			return spec, err
		}
		spec.Egress = append(spec.Egress, rule)
	}
	if s.Net.DNS == dnsCluster {
		port := intstr.FromInt32(53)
		spec.Egress = append(spec.Egress, networkingv1.NetworkPolicyEgressRule{
			To: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
				PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
			}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port}, {Protocol: &tcp, Port: &port}},
		})
	}
	return spec, nil
}

// confine makes the policy of the pods, if they have a network.
func (p *Provider) confine(ctx context.Context, o pods.Options) error {
	if p.settings.Network != networkPod {
		return nil
	}
	spec, err := p.settings.policy(o.Owner)
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "egress", "%w", err)
	}
	p.maker.policy, err = netpolicy.Take(ctx, netpolicy.Options{
		Client: o.Client, Namespace: o.Namespace, Name: "sandbox-broker-" + o.Owner, Labels: pods.LabelsOfOwner(o.Owner), Holder: o.Holder, Spec: spec,
	})
	if err != nil {
		return explainAPI(ctx, err, sdk.CodeConnectionFailed, "make the network policy of the sandboxes")
	}
	return nil
}

// unconfine removes the policy if there are no pods that need it.
func (p *Provider) unconfine(ctx context.Context) error {
	if p.maker.policy == nil {
		return nil
	}
	p.adopted.confining.Lock()
	defer p.adopted.confining.Unlock()
	return p.maker.policy.Release(ctx, p.anyPod)
}

const (
	// goneTime is how long the end of pods is waited for, and goneEvery how often they are
	// looked for.
	goneTime  = 5 * time.Second
	goneEvery = 100 * time.Millisecond
)

// anyPod says whether there are pods of this owner. It waits for those that are ending.
func (p *Provider) anyPod(ctx context.Context) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, goneTime)
	defer cancel()
	for {
		left, err := p.store.All(ctx)
		goesOn := func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }
		if err != nil || len(left) == 0 || slices.ContainsFunc(left, goesOn) {
			return len(left) > 0, err
		}
		select {
		case <-time.After(goneEvery):
		case <-waiting.Done():
			return true, nil
		}
	}
}

const (
	// reachTime is how long a connection may take until it counts as impossible: most networks
	// drop what a policy forbids, and say nothing.
	reachTime = 3 * time.Second
	// enforceTime is how long the cluster's network may take to enforce the policy for a new
	// pod, and enforceEvery how often it is tried until then.
	enforceTime  = 10 * time.Second
	enforceEvery = 200 * time.Millisecond
)

const unconfined = "code in the sandboxes reaches the API server at %s: the cluster's network does not enforce network policies, or egress allows it"

// tryPolicy waits until the network enforces the policy for a sandbox, which it is seen by
// that nothing in the pod reaches the API server any more.
func (m *maker) tryPolicy(ctx context.Context, s *sandbox) error {
	if m.policy == nil {
		return nil
	}
	began := time.Now()
	for {
		address, reached, err := s.guest.ReachAPIServer(ctx, reachTime)
		switch {
		case err != nil:
			return sdk.Errorf(sdk.CodeCreateFailed, "it is not known whether the network of the pod is confined: %w", err)
		case !reached:
			return nil
		case m.settings.Net.Unenforced == unenforcedAccept && (m.unenforced.Load() || time.Since(began) > enforceTime):
			if !m.unenforced.Swap(true) {
				m.logger.Warn("the sandboxes are not confined", "reason", fmt.Sprintf(unconfined, address), "unenforced_policies", unenforcedAccept)
			}
			return nil
		case time.Since(began) > enforceTime:
			return sdk.Errorf(sdk.CodeCreateFailed, unconfined+". Use a network that enforces policies, or network = %q, or leave that address out of egress by except; unenforced_policies = %q lets the code reach whatever the pod does",
				address, networkNone, unenforcedAccept)
		}
		select {
		case <-time.After(enforceEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
