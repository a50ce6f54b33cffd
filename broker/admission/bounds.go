package admission

import (
	"net"
	"net/netip"
)

// Bounds of the connections of one server. Zero means none may be open.
type Bounds struct {
	// Connections is how many may be open at a time.
	Connections int
	// Strangers is how many of these may be without a valid token, and
	// StrangersPerAddress how many from one address; all of an IPv6 /64 count as one.
	Strangers, StrangersPerAddress int
	// PerOwner is how many one owner of tokens may have.
	PerOwner int
	// Shared are addresses that many clients come from, such as a proxy's.
	// StrangersPerAddress does not hold for them, nor for loopback.
	Shared []netip.Prefix
}

const (
	// reserved is how many descriptors are left for everything but connections, at
	// the least. A broker with some plugins has about 50 of its own.
	reserved = 96
	// mostReserved bounds the quarter that is left if there are many.
	mostReserved = 1024
	// leastConnections is how many are taken however few descriptors there are.
	leastConnections = 16
)

// Within lowers the bounds to what a process may have that is allowed so many
// descriptors.
func (b Bounds) Within(descriptors uint64) Bounds {
	left := int(min(descriptors, 1<<30))
	left = max(leastConnections, left-max(reserved, min(left/4, mostReserved)))
	b.Connections = min(b.Connections, left)
	b.Strangers = min(b.Strangers, b.Connections/2)
	b.StrangersPerAddress = min(b.StrangersPerAddress, (b.Strangers+1)/2)
	b.PerOwner = min(b.PerOwner, b.Connections-b.Connections/4)
	return b
}

// source is what counts as one address.
func source(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is6() {
		if network, err := address.Prefix(64); err == nil && !address.IsLoopback() {
			return network.Addr()
		}
	}
	return address
}

// shared reports whether many may come from an address. An IPv6 network counts if
// any of it is shared.
func (b Bounds) shared(address netip.Addr) bool {
	if !address.IsValid() || address.IsLoopback() {
		return true
	}
	whole := netip.PrefixFrom(address, address.BitLen())
	if address.Is6() {
		whole = netip.PrefixFrom(address, 64)
	}
	for _, prefix := range b.Shared {
		if prefix.Overlaps(whole) {
			return true
		}
	}
	return false
}
