package sdk

import (
	"context"
	"time"
)

// NetworkGovernor is implemented by providers whose instances have no network but what a
// policy gives them, and that obey CreateRequest.Network. Both methods are about what there is
// of a way out; an instance without one has none. Package sdk/gateway enforces policies for
// providers that can lead the connections of an instance through it.
type NetworkGovernor interface {
	// SetNetwork puts another policy in the place of the one that an instance has, none if
	// it has no rules. When it returns, what the new one does not allow is cut off: nothing
	// is sent or received by it any more. A policy that needs more than can be done for this
	// instance is refused with CodeInvalidRequest and the field "network", and the old one
	// stays. Return CodeNotFound for an unknown instance. It is idempotent.
	SetNetwork(ctx context.Context, instanceID string, policy NetworkPolicy) error

	// FollowNetwork hands over what the instances did with their networks, as it becomes
	// known, until ctx ends, whose error it returns then. The broker follows each process
	// once, and writes what it hears into its audit log. A provider keeps what nobody has
	// heard yet, up to MaxNetworkBacklog, and counts what it had to drop: no connection ever
	// waits for a follower.
	FollowNetwork(ctx context.Context, report func(NetworkReport) error) error
}

// Bounds on networks.
const (
	// MaxNetworkRules, MaxNetworkSecrets and MaxNetworkWords bound a policy: its rules, its
	// secrets, and the ports, methods, paths or hosts of one of them.
	MaxNetworkRules, MaxNetworkSecrets, MaxNetworkWords = 200, 50, 50
	// MaxNetworkText bounds a host, a method or a path, in bytes, and MaxNetworkSecret the
	// value of a secret.
	MaxNetworkText, MaxNetworkSecret = 253, 8 << 10
	// MinNetworkSecret is the least length of the value of a secret, in bytes: of a shorter
	// one answers could not be cleared without making them useless.
	MinNetworkSecret = 8
	// MaxNetworkBacklog is how many connections wait for a follower, MaxNetworkReport how
	// many there are in one report.
	MaxNetworkBacklog, MaxNetworkReport = 4096, 256
)

// NetworkPolicy says what an instance may reach. Without rules it reaches nothing.
type NetworkPolicy struct {
	Rules []NetworkRule
	// MaxConnections is how many connections the instance may have outside at once, and
	// MaxBytes how many bytes it may send, and receive, in its life. 0 means the bounds of the
	// provider.
	MaxConnections int
	MaxBytes       int64
	// TenantConnections and TenantBytes are the same for all instances of a tenant
	// (LabelTenant) together; the bytes in a day of UTC.
	TenantConnections int
	TenantBytes       int64
	// Secrets that requests get on the way out.
	Secrets []NetworkSecret
}

// NetworkRule is a host and what may be asked of it. What one rule allows is allowed.
type NetworkRule struct {
	// Host is a name in small letters, "*." before a name for all below it, "*" for every
	// name, or an address. No pattern stands for addresses.
	Host string
	// Ports of TCP; none stands for 80 and 443.
	Ports []int
	// Methods of HTTP in capitals, and Paths that begin with a slash: "/a" is that path, and
	// "/a/*" all below it. None stands for all. A provider must look into the encryption of
	// requests to a host with either.
	Methods, Paths []string
	// WebSocket allows requests that ask for one.
	WebSocket bool
	// TCP allows any protocol, which nobody looks into.
	TCP bool
	// Private allows that the host is on a private network, or on the provider's machine.
	// Addresses that are bound to one link, where clouds keep their metadata, are none.
	Private bool
}

// NetworkSecret is a value that requests may carry and that no instance ever holds.
type NetworkSecret struct {
	Name string
	// Header in which its Placeholder is replaced by the Value, in requests over TLS to one of
	// the Hosts, which are as in NetworkRule.
	Header, Value string
	Hosts         []string
}

// Placeholder is what code writes in the place of the secret.
func (s NetworkSecret) Placeholder() string { return "sandbox-secret-" + s.Name }

// NetworkReport is news of the networks of instances.
type NetworkReport struct {
	// Connections, at most MaxNetworkReport.
	Connections []NetworkConnection
	// Lost is how many are not among the reports, since there were too many of them at once.
	Lost int64
}

// NetworkConnection is a connection, or of HTTP that the provider has read a request, that has
// ended or was refused.
type NetworkConnection struct {
	InstanceID string
	// Host and Port as the instance asked for them: hostile text, at most MaxNetworkText.
	Host string
	Port int
	// Protocol is what the provider has seen: "http", "https", "websocket", "tls" or "tcp".
	Protocol string
	// Method of a request, "" where none was read.
	Method  string
	Verdict NetworkVerdict
	// Reason why it was refused or cut, in one sentence.
	Reason string
	// Sent and Received are bytes, of requests those of the bodies.
	Sent, Received int64
	// Began and Duration are its time.
	Began    time.Time
	Duration time.Duration
}

// NetworkVerdict says what became of a connection.
type NetworkVerdict string

// The verdicts.
const (
	NetworkAllowed NetworkVerdict = "allowed"
	NetworkRefused NetworkVerdict = "refused" // nothing went out
	NetworkCut     NetworkVerdict = "cut"     // allowed at first, and ended by a quota or a new policy
)
