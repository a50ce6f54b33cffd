package gateway

import "net/netip"

// special are networks that are no part of the open Internet, or lead into one that is not,
// beside those that package netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by providers, and some clouds' metadata
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's service for its machines
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4: IPv4 in disguise
	netip.MustParsePrefix("3fff::/20"),
}

// assigned is what IPv6 has of the open Internet (IANA, "IPv6 Global Unicast Address
// Assignments"). What is beside it is nobody's, bound to a place, or IPv4 in disguise.
var assigned = netip.MustParsePrefix("2000::/3")

// metadata are services for machines of clouds at addresses that would be private ones.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:42::/32"), // Scaleway
	netip.MustParsePrefix("fd00:c1::/32"), // Oracle
	netip.MustParsePrefix("fd00:ec2::/32"),
	netip.MustParsePrefix("fd20:ce::/32"),
}

// Open reports whether an address is one of the open Internet.
func Open(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && a.Zone() == "" && (a.Is4() || assigned.Contains(a)) && !within(special, a)
}

// Private reports whether an address is on a private network or on this machine. Those bound to
// a link, where clouds keep their metadata, are not.
func Private(a netip.Addr) bool {
	a = a.Unmap()
	return (a.IsPrivate() || a.IsLoopback()) && a.Zone() == "" && !within(metadata, a)
}

func within(networks []netip.Prefix, a netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(a) {
			return true
		}
	}
	return false
}
