package gateway

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// refusal is why something does not go out. Its text is for the instance, whose own words in it
// are quoted.
type refusal string

// Error returns the reason.
func (r refusal) Error() string { return string(r) }

func refusef(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// unreachable is why a host that is allowed gives no connection.
type unreachable string

// Error returns the reason.
func (u unreachable) Error() string { return string(u) }

// policy answers questions about a sdk.NetworkPolicy. It does not change.
type policy struct{ sdk.NetworkPolicy }

// rules are those that speak of a host and port.
func (p *policy) rules(host string, port uint16) []sdk.NetworkRule {
	var found []sdk.NetworkRule
	for _, r := range p.Rules {
		if networkpolicy.Covers(r.Host, host) && slices.Contains(networkpolicy.Ports(r), int(port)) {
			found = append(found, r)
		}
	}
	return found
}

// route is how a connection to a host and port is treated.
type route struct {
	// read means that TLS is ended here, since requests must be read.
	read bool
	// raw means that any protocol may be spoken.
	raw bool
	// private means that the host may be on a private network.
	private bool
}

// route finds out whether a connection may be made.
func (p *policy) route(host string, port uint16) (route, error) {
	rules := p.rules(host, port)
	if len(rules) == 0 {
		return route{}, refusef("the network of this sandbox does not lead to %s port %d", host, port)
	}
	w := route{read: true}
	for _, r := range rules {
		w.read = w.read && networkpolicy.Limited(r)
		w.raw = w.raw || r.TCP
		w.private = w.private || r.Private
	}
	w.read = w.read || len(p.secrets(host)) > 0
	if w.read {
		w.raw = false
	}
	return w, nil
}

// request finds out whether a request may be made.
func (p *policy) request(host string, port uint16, method, path string, webSocket bool) error {
	rules := p.rules(host, port)
	if len(rules) == 0 {
		return refusef("the network of this sandbox does not lead to %s port %d", host, port)
	}
	for _, r := range rules {
		switch {
		case len(r.Methods) > 0 && !slices.Contains(r.Methods, method):
		case len(r.Paths) > 0 && !slices.ContainsFunc(r.Paths, func(pattern string) bool { return networkpolicy.PathCovers(pattern, path) }):
		case webSocket && !r.WebSocket:
		default:
			return nil
		}
	}
	if webSocket {
		return refusef("the network of this sandbox allows no WebSocket there at %s", host)
	}
	return refusef("the network of this sandbox does not allow %.32q of that path at %s", method, host)
}

// limited reports whether rules for the host say anything of methods or paths.
func (p *policy) limited(host string, port uint16) bool {
	return slices.ContainsFunc(p.rules(host, port), networkpolicy.Limited)
}

// secrets are those that requests to a host may carry.
func (p *policy) secrets(host string) []sdk.NetworkSecret {
	var found []sdk.NetworkSecret
	for _, s := range p.Secrets {
		if slices.ContainsFunc(s.Hosts, func(pattern string) bool { return networkpolicy.Covers(pattern, host) }) {
			found = append(found, s)
		}
	}
	return found
}

// plainPath reports whether all who read a path understand it the same way.
func plainPath(escaped string) bool {
	lower := strings.ToLower(escaped)
	for _, odd := range []string{"%2f", "%5c", "%2e", "%25", "%3b", "\\", "//", ";"} {
		if strings.Contains(lower, odd) {
			return false
		}
	}
	// Some leave out control characters, and some take more bytes for a dot than it has.
	plain, err := url.PathUnescape(escaped)
	if err != nil || !utf8.ValidString(plain) || strings.ContainsFunc(plain, unicode.IsControl) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(escaped, "/"), func(s string) bool { return s == "." || s == ".." })
}
