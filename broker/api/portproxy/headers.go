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

// originHeaders would, from the broker's origin, hold for all of it, or are the
// broker's own to say.
var originHeaders = []string{
	"Accept-Ch", "Alt-Svc", "Clear-Site-Data", "Critical-Ch", "Expect-Ct", "Nel", "Origin-Agent-Cluster",
	"Public-Key-Pins", "Public-Key-Pins-Report-Only", "Referrer-Policy", "Report-To", "Reporting-Endpoints",
	"Service-Worker-Allowed", "Set-Cookie2", "Strict-Transport-Security",
	"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin", "Access-Control-Allow-Private-Network", "Access-Control-Expose-Headers",
	"Access-Control-Max-Age",
}

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
	h.Del("X-Real-Ip")
	h.Set("X-Forwarded-Host", e.Host)
	h.Set("X-Forwarded-Proto", e.Scheme)
	h.Set("X-Forwarded-Prefix", e.Prefix)
	e.rewriteCookies(p)
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
	for _, name := range originHeaders {
		h.Del(name)
	}
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
