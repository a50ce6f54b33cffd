package portproxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
)

const (
	// OwnCookie begins the names of the broker's own cookies, which programs
	// neither see nor set.
	OwnCookie = "sandbox_broker_"
	// browserCookie begins the names of the cookies that programs set in
	// browsers. A browser sends all cookies of a host to all its ports: those of
	// other programs at that host are none of the sandbox's business.
	browserCookie = "sandbox_preview_"
)

// contentPolicy gives a page an origin of its own, so that it is a stranger to the
// broker's and to all other pages, although it comes from the same address.
const contentPolicy = "sandbox allow-scripts allow-forms allow-popups"

// rewriteRequest takes out of a request what the program must not see and adds
// where it came from. ReverseProxy has removed what a client says about that.
func (e *Exchange) rewriteRequest(p *httputil.ProxyRequest) {
	h := p.Out.Header
	h.Del("X-Api-Key")
	if kept := notBearer(h.Values("Authorization")); len(kept) == 0 {
		h.Del("Authorization")
	} else {
		h["Authorization"] = kept
	}
	h.Del("Proxy-Authorization")
	for _, name := range e.Credentials {
		h.Del(name)
	}
	h.Del("X-Real-Ip")
	h.Set("X-Forwarded-Proto", e.Scheme)
	if e.OwnHost {
		e.rewriteOrigin(h)
	} else {
		h.Set("X-Forwarded-Host", e.Host)
		h.Set("X-Forwarded-Prefix", e.Prefix)
	}
	e.rewriteCookies(p)
	e.rewriteProtocols(h)
}

// rewriteOrigin has a page of the program's own ask it as if it stood where the program
// believes to be: programs compare Origin and Referer with Host, and refuse hosts that
// they do not know. Those of other pages stay as they are, for the program to refuse.
func (e *Exchange) rewriteOrigin(h http.Header) {
	for _, name := range []string{"Origin", "Referer"} {
		u, err := url.Parse(h.Get(name))
		if err == nil && u.Host != "" && strings.EqualFold(u.Host, e.Host) && strings.EqualFold(u.Scheme, e.Scheme) {
			u.Scheme, u.Host = "http", e.address()
			h.Set(name, u.String())
		}
	}
}

const subprotocols = "Sec-Websocket-Protocol"

// rewriteProtocols takes the broker's own out of the subprotocols that a client of a
// WebSocket offers. A browser has no other place for its token.
func (e *Exchange) rewriteProtocols(h http.Header) {
	offered := h.Values(subprotocols)
	h.Del(subprotocols)
	var kept []string
	for _, line := range offered {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !isOwnProtocol(protocol) {
				kept = append(kept, protocol)
			}
		}
	}
	if len(kept) > 0 {
		h.Set(subprotocols, strings.Join(kept, ", "))
	}
}

// isOwnProtocol reports whether a subprotocol is one that the broker itself speaks, or
// a token.
func isOwnProtocol(protocol string) bool {
	protocol = strings.ToLower(protocol)
	return strings.HasPrefix(protocol, "bearer.") || strings.HasPrefix(protocol, "sandbox-broker")
}

// notBearer returns the credentials that are meant for the program: the broker's
// own are bearer tokens.
func notBearer(credentials []string) []string {
	var kept []string
	for _, value := range credentials {
		if scheme, _, _ := strings.Cut(strings.TrimSpace(value), " "); !strings.EqualFold(scheme, "Bearer") {
			kept = append(kept, value)
		}
	}
	return kept
}

func (e *Exchange) rewriteCookies(p *httputil.ProxyRequest) {
	p.Out.Header.Del("Cookie")
	for _, c := range p.In.Cookies() {
		if e.Browser {
			name, own := strings.CutPrefix(c.Name, browserCookie)
			if !own || name == "" {
				continue
			}
			c.Name = name
		} else if isBrokers(c.Name) {
			continue
		}
		p.Out.AddCookie(c)
	}
}

// isBrokers reports whether a cookie of that name is the broker's. Browsers add
// nothing to names, but __Host- and __Secure- before one are names too.
func isBrokers(name string) bool { return strings.Contains(strings.ToLower(name), OwnCookie) }

// rewriteResponse makes an answer of the program fit to be one of the broker's.
func (e *Exchange) rewriteResponse(resp *http.Response) {
	h := resp.Header
	e.screenResponse(h, resp.StatusCode == http.StatusSwitchingProtocols)
	for _, name := range []string{"Location", "Content-Location"} {
		if location := h.Get(name); location != "" {
			h.Set(name, e.rewriteLocation(location))
		}
	}
	e.rewriteSetCookie(h)
	h.Set("X-Request-Id", e.RequestID)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	keepFromSharedCaches(h)
	if e.OwnHost {
		h.Set("Referrer-Policy", "same-origin") // the host is the secret
		h.Set("Origin-Agent-Cluster", "?1")     // no page joins those of other hosts of the domain
		return
	}
	h.Add("Content-Security-Policy", contentPolicy) // beside the program's own: both hold
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if e.Browser {
		allowOpaqueOrigin(h)
	}
}

// allowOpaqueOrigin lets the page read what it fetches: its own address is foreign
// to it. So may any other page, if it knows the link, which is all that counts.
func allowOpaqueOrigin(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "*")
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// answerPreflight answers in place of the program, which believes that its pages
// have its own origin.
func (e *Exchange) answerPreflight(w http.ResponseWriter) {
	h := w.Header()
	allowOpaqueOrigin(h)
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "*")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// rewriteSetCookie keeps cookies to the program: to its paths, and in browsers by
// their names too.
func (e *Exchange) rewriteSetCookie(h http.Header) {
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		c, err := http.ParseSetCookie(line)
		if err != nil || isBrokers(c.Name) {
			continue
		}
		c.Domain = ""
		c.Path = e.below(c.Path)
		if e.Browser {
			c.Name = browserCookie + c.Name
		}
		if text := c.String(); text != "" {
			h.Add("Set-Cookie", text)
		}
	}
}

// rewriteLocation turns what points at the program's own root into what does so
// from outside.
func (e *Exchange) rewriteLocation(location string) string {
	u, err := url.Parse(location)
	switch {
	case err != nil, u.Opaque != "":
		return location
	case u.Host != "" && !e.isProgram(u):
		return location
	case u.Host == "" && !strings.HasPrefix(location, "/"): // as seen from the page
		return location
	}
	target := e.below(u.EscapedPath())
	if u.RawQuery != "" || u.ForceQuery {
		target += "?" + u.RawQuery
	}
	if fragment := u.EscapedFragment(); fragment != "" {
		target += "#" + fragment
	}
	return target
}

// isProgram reports whether an absolute URL means the program: by the address it
// was asked as, or the one it was told that the client used.
func (e *Exchange) isProgram(u *url.URL) bool {
	if u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if strings.EqualFold(u.Host, e.Host) {
		return true
	}
	port := u.Port()
	if port == "" && u.Scheme != "https" {
		port = "80"
	}
	if port != strconv.Itoa(int(e.Port)) {
		return false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// below puts a path of the program's below the prefix, unless the program has done
// so itself.
func (e *Exchange) below(path string) string {
	if path == e.Prefix || strings.HasPrefix(path, e.Prefix+"/") {
		return path
	}
	if !strings.HasPrefix(path, "/") {
		return e.Prefix + "/"
	}
	return e.Prefix + path
}
