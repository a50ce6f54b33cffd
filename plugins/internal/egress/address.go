package egress

import "net/netip"

// special are networks that are no part of the open Internet, or lead into one
// that is not, beside those that package netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by providers, and some clouds' metadata
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"),        // IPv4 in disguise
	netip.MustParsePrefix("64:ff9b::/96"), // the same
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4: IPv4 in disguise
	netip.MustParsePrefix("fec0::/10"),
}

// open reports whether an address is one of the open Internet.
func open(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, network := range special {
		if network.Contains(a) {
			return false
		}
	}
	return true
}

// mayBeIndex reports whether an address is one at which an index can be: on a
// private network or this machine, too. Link-local ones, where clouds keep their
// metadata, are not, nor is what the name of an index has no reason to lead to.
func mayBeIndex(a netip.Addr) bool {
	a = a.Unmap()
	return open(a) || a.IsPrivate() || a.IsLoopback()
}
