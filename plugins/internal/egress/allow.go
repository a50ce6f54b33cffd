package egress

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Names of hosts, and what may stand for several.
var (
	hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)
	pattern  = regexp.MustCompile(`^(\*\.)?[^*]+$`)
)

// ValidPattern reports whether text can stand in a list of hosts: a name, or *.
// before one.
func ValidPattern(text string) bool {
	name := strings.TrimPrefix(text, "*.")
	_, err := netip.ParseAddr(name)
	return pattern.MatchString(text) && err != nil && len(name) <= 253 && hostName.MatchString(name) && strings.Contains(name, ".")
}

// canonical is a host as lists have it; ok is false for what is no host.
func canonical(host string) (name string, ok bool) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.String(), address.Zone() == ""
	}
	name = strings.TrimSuffix(strings.ToLower(host), ".")
	return name, len(name) <= 253 && hostName.MatchString(name)
}

// endpoint is a host of the operator's choice and the port that it has there.
type endpoint struct {
	host string
	port uint16
}

// allowed says whether a connection may be made, and whether its host is one that
// the operator named as an index, which may be on a private network.
func (o Options) allowed(host string, port uint16) (ok, index bool) {
	for _, i := range o.indexes {
		if i.host == host && i.port == port {
			return true, true
		}
	}
	if port != 80 && port != 443 {
		return false, false
	}
	ok = slices.ContainsFunc(o.Hosts, func(allowed string) bool {
		parent, below := strings.CutPrefix(allowed, "*")
		return allowed == host || below && strings.HasSuffix(host, parent) && len(host) > len(parent)
	})
	return ok, false
}
