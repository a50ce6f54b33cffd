package config

import (
	"net/netip"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Connections says how many connections the REST API keeps open. The broker lowers
// what the process has too few file descriptors for.
type Connections struct {
	// Total is how many in all.
	Total int64 `config:"total"`
	// WithoutToken is how many of them may have shown no valid token, and
	// WithoutTokenPerAddress how many of these may come from one address.
	WithoutToken           int64 `config:"without_token"`
	WithoutTokenPerAddress int64 `config:"without_token_per_address"`
	// PerTenant is how many one tenant may have.
	PerTenant int64 `config:"per_tenant"`
	// BodyBytes is how many bytes the bodies of requests may have in memory, and
	// BodyBytesPerTenant those of one tenant.
	BodyBytes          int64 `config:"body_bytes"`
	BodyBytesPerTenant int64 `config:"body_bytes_per_tenant"`
	// SharedAddresses are those, and networks of those, that many clients come
	// from: WithoutTokenPerAddress does not hold there.
	SharedAddresses []netip.Prefix `config:"-"`
}

func connectionsSchema() sdk.Schema {
	count := func(name string, value int64, description string) sdk.Field {
		return sdk.Field{
			Name: name, Type: sdk.TypeInteger, Default: value, Description: description,
			Min: sdk.Bound(1), Max: sdk.Bound(1_000_000),
		}
	}
	return sdk.Schema{
		count("total", 10_000, "Connections to the REST API that are open at a time."),
		count("without_token", 1000, "How many of these may be without a valid token. Above it the oldest is closed for each that comes; half of all at most."),
		count("without_token_per_address", 100, "The same for one address. All of an IPv6 /64 count as one address; loopback has no such bound."),
		count("per_tenant", 5000, "How many of them one tenant may have. Requests by further ones are refused (SB008). Three quarters of all at most."),
		size("body_bytes", 256<<20, 64<<30, "Bytes of the bodies of all requests that are under way, but of those that stream, such as files. One alone may have `limits.request_body` in any case."),
		size("body_bytes_per_tenant", 64<<20, 64<<30, "The same for one tenant. Requests above it are refused (SB008)."),
		{
			Name: "shared_addresses", Type: sdk.TypeList, Placeholder: `["10.0.0.7", "10.1.0.0/16"]`,
			Description: "Addresses and networks that many clients come from, such as those of a proxy: without_token_per_address does not hold there.",
		},
	}
}

func (p *parser) readConnections(block *hclsyntax.Block) Connections {
	const shared = "shared_addresses"
	var connections Connections
	s := p.readLeaf(block, connectionsSchema())
	if a, given := s.setting(shared); given {
		for i, text := range s.Settings[shared].([]string) {
			prefix, ok := parseNetwork(text)
			if !ok {
				p.fail(a.itemRange(i), "Invalid value", "This is neither an IP address, such as 10.1.2.3, nor a network, such as 10.0.0.0/8.")
				continue
			}
			connections.SharedAddresses = append(connections.SharedAddresses, prefix)
		}
	}
	delete(s.Settings, shared)
	p.decode(s, &connections, block.DefRange())
	return connections
}

// parseNetwork reads a network, or an address as the network that holds it alone.
func parseNetwork(text string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix.Masked(), true
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Prefix{}, false
	}
	address = address.Unmap()
	return netip.PrefixFrom(address, address.BitLen()), true
}
