package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// Rules are what the operator allows one tenant.
type Rules struct {
	// Allow are hosts of public addresses, which take https: host, host:port, or
	// *.domain for all below that. AllowPrivate are hosts that may have any address,
	// and may take http.
	Allow, AllowPrivate []string
	// Secret signs reports: SecretPrefix and 24 to 64 bytes in base64.
	Secret string
}

// SecretPrefix is what secrets begin with.
const SecretPrefix = "whsec_"

// errSecret does not repeat the secret.
var errSecret = errors.New("it is not " + SecretPrefix + " and 24 to 64 bytes in base64")

// ParseSecret returns the bytes of a secret.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, SecretPrefix)
	if !ok {
		return nil, errSecret
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) < 24 || len(secret) > 64 {
		return nil, errSecret
	}
	return secret, nil
}

// target is where a report goes.
type target struct {
	url     *url.URL
	private bool // any address will do
}

// target finds out whether the rules allow an address. The error says why not.
func (r Rules) target(address string) (target, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return target{}, errors.New("it is not an address such as https://agent.example.com/hooks")
	case u.Scheme != "https" && u.Scheme != "http":
		return target{}, errors.New("it must begin with https://")
	case u.User != nil:
		return target{}, errors.New("it must hold no user and password")
	case u.Fragment != "":
		return target{}, errors.New("it must hold no fragment")
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	for _, entry := range r.AllowPrivate {
		if matches(entry, host, port, u.Scheme) {
			return target{u, true}, nil
		}
	}
	for _, entry := range r.Allow {
		if !matches(entry, host, port, u.Scheme) {
			continue
		}
		if u.Scheme != "https" {
			return target{}, errors.New("it must begin with https://")
		}
		return target{u, false}, nil
	}
	return target{}, fmt.Errorf("the operator does not allow this tenant the host %s", net.JoinHostPort(host, port))
}

// matches reports whether an entry of the rules is for a host. Without a port it is for the
// usual one alone.
func matches(entry, host, port, scheme string) bool {
	name, wanted := SplitEntry(entry)
	if wanted == "" {
		wanted = map[string]string{"https": "443", "http": "80"}[scheme]
	}
	if wanted != port {
		return false
	}
	if domain, ok := strings.CutPrefix(name, "*."); ok {
		below, found := strings.CutSuffix(host, "."+domain)
		return found && below != ""
	}
	return name == host
}

// SplitEntry splits an entry of the rules into a host, in lower case, and a port, empty if
// it has none.
func SplitEntry(entry string) (host, port string) {
	host, port, err := net.SplitHostPort(entry)
	if err != nil {
		host, port = entry, ""
	}
	return strings.ToLower(strings.Trim(host, "[]")), port
}

// special are addresses that lead to nobody in the public internet, or by a detour to
// addresses that are not looked at here, beside those that package netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"), netip.MustParsePrefix("5f00::/16"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("::/96"),
}

// metadata is where clouds tell their machines their secrets, beside the addresses of one
// link.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16")}

// mayConnect reports whether a report may go to an address: a public one or, with private,
// any that is one machine's and does not hold the secrets of a cloud.
func mayConnect(a netip.Addr, private bool) bool {
	a = a.WithZone("").Unmap()
	for _, m := range metadata {
		if a == m {
			return false
		}
	}
	if a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return false
	}
	if private {
		return a.IsGlobalUnicast() || a.IsLoopback()
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
