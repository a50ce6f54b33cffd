package rest

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/handover"
)

// screen stands before Fiber and refuses what Fiber would answer in its own way,
// and what a proxy in front of us may have understood in another way than we do.
func (s *Server) screen(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	known := map[string]bool{}
	for _, m := range fiber.DefaultMethods {
		known[m] = true
	}
	return func(fctx *fasthttp.RequestCtx) {
		header := &fctx.Request.Header
		s.arrivals.arrive(header, int64(len(fctx.Request.Body())))
		defer s.arrivals.release(header)
		door := doorOf(fctx)
		host, asked, led := s.hostOf(header, door)
		status := 0
		switch {
		case !known[string(fctx.Method())], ambiguousHead(header):
			status = http.StatusBadRequest
			fctx.SetConnectionClose()
			linger(fctx.Conn()) // a body may be on its way
		case door != nil && !door.own.open.Load():
			status = http.StatusNotFound
			fctx.SetConnectionClose()
		case led:
			s.answerHost(fctx, host, asked)
		case hidesSlash(s.routed(string(fctx.URI().PathOriginal()))):
			status = http.StatusNotFound
		default:
			next(fctx)
		}
		if status != 0 {
			s.refuse(fctx, status)
		}
		if s.streams.Held(header) && !fctx.Hijacked() {
			// Nobody has read the body, and it is no request.
			fctx.SetConnectionClose()
			linger(fctx.Conn())
		}
	}
}

func (s *Server) refuse(fctx *fasthttp.RequestCtx, status int) {
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	_ = s.protocolError(c, fiber.NewError(status)) // returns nil
}

// host answers requests that their host leads somewhere, whatever their path.
type host struct {
	api *API
	Host
}

// Host describes requests whose host, or another field of their header, leads to something,
// whatever their path. Their bodies stream, and no route of a path is reached there.
type Host struct {
	// Route stands for them in the log and in the metrics.
	Route string
	// Match returns the part of a host, in lower case and without a port, that says
	// where it leads.
	Match func(host string) (label string, ok bool)
	// MatchFields does so by other fields, of requests that lead to the routes of the API,
	// which is a front door. It may be nil.
	MatchFields func(Header) (label string, ok bool)
	// Open finds where it leads, and who owns that.
	Open func(context.Context, Asked) (owner string, handle StreamHandler, err error)
}

// Asked is a request that a Host matches.
type Asked struct {
	Label  string
	Header Header
	// Prefix is the path that stands before Path as the client has written it: empty
	// where the host alone has led there.
	Prefix string
	// Path is what is asked for there, with all that is escaped in it.
	Path string
	// Scheme is http or https: how the request came to the broker itself.
	Scheme string
}

// AddHost adds a host to the API. One of a front door is found by the door's own listeners
// too.
func (a *API) AddHost(h Host) { a.server.hosts = append(a.server.hosts, host{a, h}) }

// hostOf finds what a request leads to that is no route of a path: by the own listener of a
// door to what is that door's. lead has led it.
func (s *Server) hostOf(header *fasthttp.RequestHeader, door *API) (found host, asked Asked, ok bool) {
	if found, asked, ok = s.byHost(header, door); ok {
		return found, asked, true
	}
	return s.byFields(header, door)
}

// byHost finds where the host of a request leads.
func (s *Server) byHost(header *fasthttp.RequestHeader, door *API) (host, Asked, bool) {
	name := hostname(string(header.Host()))
	for _, h := range s.hosts {
		if door != nil && h.api != door {
			continue
		}
		if label, ok := h.Match(name); ok {
			return h, Asked{Label: label, Header: Header{header, h.api}, Path: pathAsSent(string(header.RequestURI()))}, true
		}
	}
	return host{}, Asked{}, false
}

// byFields finds where other fields lead a request that has been led to the routes of an API.
func (s *Server) byFields(header *fasthttp.RequestHeader, door *API) (host, Asked, bool) {
	api := s.apiOf(string(header.RequestURI()))
	for _, h := range s.hosts {
		if h.api != api || h.MatchFields == nil {
			continue
		}
		asked := Asked{Header: Header{header, api}}
		var ok bool
		if asked.Label, ok = h.MatchFields(asked.Header); !ok {
			continue
		}
		if door == nil && !standsAt(asked.Header.Host(), api) {
			asked.Prefix = api.MountedAt()
		}
		asked.Path = cmp.Or(pathAsSent(asked.Header.Target()), "/")
		return h, asked, true
	}
	return host{}, Asked{}, false
}

// standsAt reports whether the routes of a front door are at the root of a host.
func standsAt(host string, a *API) bool { return a.opts.Hosts != nil && a.opts.Hosts(host) }

// doorAt is the door whose routes are at the root of the host that a request is for; nil for
// none.
func (s *Server) doorAt(header *fasthttp.RequestHeader) *API {
	name := hostname(string(header.Host()))
	for _, a := range s.apis {
		if standsAt(name, a) {
			return a
		}
	}
	return nil
}

// answerHost answers a request that its host leads somewhere. It never reaches Fiber's
// routes.
func (s *Server) answerHost(fctx *fasthttp.RequestCtx, h host, asked Asked) {
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	x := s.exchangeOf(c)
	x.api, x.route = h.api, h.Route
	err := s.openHost(c, h, asked)
	if to, ok := x.elsewhere(err); ok {
		err = s.passOn(c, x, to)
	}
	if err != nil {
		x.code = answerError(c, x, err)
		s.log(x, method(c), c.Response().StatusCode(), err)
	}
}

func (s *Server) openHost(c *fiber.Ctx, h host, asked Asked) error {
	if m := c.Method(); m == http.MethodTrace || m == http.MethodConnect {
		return fiber.NewError(http.StatusMethodNotAllowed)
	}
	asked.Scheme = s.exchangeOf(c).scheme
	ctx, cancel := s.contextOf(c)
	owner, handle, err := h.Open(ctx, asked)
	cancel()
	if err != nil {
		return err
	}
	x := s.exchangeOf(c)
	x.tenant = owner
	if !x.ticket.Own(owner) {
		return errTooManyConnections
	}
	return s.handOver(c, handle)
}

func linger(conn net.Conn) {
	if c, ok := conn.(handover.Lingerer); ok {
		c.Linger()
	}
}

// hidesSlash finds an escaped slash: it would become a real one and lead to a
// route that a rule for the path as it was sent does not know. None of our
// parameters can hold one.
func hidesSlash(path string) bool {
	return strings.Contains(path, "%2F") || strings.Contains(path, "%2f")
}

// ambiguousHead finds a request whose end, or whose host, somebody else may see
// elsewhere than we do: a proxy in front, which would then take bytes of one client
// for the request of another. RFC 9112 forbids all of it; fasthttp lets it pass.
func ambiguousHead(header *fasthttp.RequestHeader) bool {
	lengths, encodings, hosts := 0, 0, 0
	for line := range bytes.Lines(header.RawHeaders()) { // fasthttp keeps but one of a name elsewhere
		line, whole := bytes.CutSuffix(line, []byte("\r\n"))
		if whole && len(line) == 0 {
			break
		}
		name, value, field := bytes.Cut(line, []byte(":"))
		if !whole || !field || !isFieldName(name) || bytes.ContainsAny(value, "\r\x00") {
			return true // section 2.2 for the ends of lines, 5.1 for space before the colon, 5.2 for folded lines
		}
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			lengths++
			if !isNumber(bytes.Trim(value, " \t")) {
				return true
			}
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			encodings++
			if !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
				return true
			}
		case bytes.EqualFold(name, []byte(fiber.HeaderHost)):
			hosts++
			if hasEmptyLabel(string(bytes.Trim(value, " \t"))) {
				return true
			}
		}
	}
	switch {
	case lengths+encodings > 1, hosts > 1, hosts == 1 && anotherHost(header):
		return true
	case header.IsHTTP11():
		return hosts == 0 // section 3.2
	default:
		return encodings > 0 // section 6.1: who wrote it cannot know what it means
	}
}

// anotherHost reports whether the first line names a host that the field Host does not.
func anotherHost(header *fasthttp.RequestHeader) bool {
	target := string(header.RequestURI())
	if strings.HasPrefix(target, "/") {
		return false
	}
	_, rest, absolute := strings.Cut(target, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return absolute && !strings.EqualFold(rest[:end], string(header.Host()))
}

// isFieldName reports whether a name is a token, as section 5.1 of RFC 9110 wants it.
func isFieldName(name []byte) bool {
	for _, c := range name {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) < 0 {
			return false
		}
	}
	return len(name) > 0
}

func isNumber(value []byte) bool {
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}

// pathPattern recognizes the requests of an operation before Fiber does: at that
// time the body has not been read. What it misses is read into memory within the
// usual limit, and works all the same.
type pathPattern struct {
	method   string
	segments []string // {name} stands for any segment, a * at the end for the rest
}

func newPathPattern(method, path string) pathPattern {
	return pathPattern{method: method, segments: strings.Split(path, "/")}
}

func (p pathPattern) match(method, path string) bool {
	return method == p.method && p.matchPath(path)
}

func (p pathPattern) matchPath(path string) bool {
	given := strings.Split(path, "/")
	for i, segment := range p.segments {
		switch {
		case segment == "*" && i == len(p.segments)-1:
			return true
		case i == len(given):
			return false
		case strings.HasPrefix(segment, "{"):
			continue
		}
		if literal, err := url.PathUnescape(given[i]); err != nil || literal != segment {
			return false
		}
	}
	return len(given) == len(p.segments)
}

// rest cuts a path that was sent to where the pattern's * begins: what stands
// before it has no slash at its end. It reports whether there is a rest at all.
func (p pathPattern) rest(path string) (before, rest string, ok bool) {
	last := len(p.segments) - 1
	if p.segments[last] != "*" || !p.matchPath(path) {
		return path, "", false
	}
	given := strings.SplitN(path, "/", last+1)
	if len(given) <= last {
		return path, "", false
	}
	return strings.Join(given[:last], "/"), "/" + given[last], true
}

// routed is the part of a path that the broker's routes look at. What is passed on
// is not ours to judge.
func (s *Server) routed(path string) string {
	for _, pattern := range s.holding {
		if before, _, ok := pattern.rest(path); ok {
			return before
		}
	}
	return path
}

// bodyStreams reports whether the body of the request is for a handler that
// streams.
func (s *Server) bodyStreams(header *fasthttp.RequestHeader) bool {
	if len(s.holding) == 0 || header.ContentLength() == 0 {
		return false
	}
	path := targetPath(header)
	matches := func(p pathPattern) bool { return p.match(string(header.Method()), path) }
	return slices.ContainsFunc(s.holding, matches) && !slices.ContainsFunc(s.reading, matches)
}

// SplitPath cuts a path that was sent to a pattern with * at its end where that begins:
// what stands before it has no slash at its end. It reports whether there is a rest at
// all.
func SplitPath(pattern, path string) (before, rest string, ok bool) {
	return newPathPattern("", pattern).rest(path)
}

// PathAsSent is the path with all that is escaped in it.
func PathAsSent(r *http.Request) string { return pathAsSent(r.RequestURI) }

func pathAsSent(target string) string {
	if !strings.HasPrefix(target, "/") { // http://host/path, as it is sent to proxies
		if _, after, ok := strings.Cut(target, "://"); ok {
			_, path, _ := strings.Cut(after, "/")
			target = "/" + path
		}
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}

// arrivals are the requests between their headers and their end: who sends each, so
// that a token is looked at once, and the bytes of bodies that are in memory or shall
// be. fasthttp makes room for a whole body when it has seen its headers, although the
// body may never come.
//
// fasthttp tells headerReceived nothing but the headers, so these are how a request is
// known again: each connection has one place for them at a time.
type arrivals struct {
	mu    sync.Mutex
	known map[*fasthttp.RequestHeader]arrival
	all   int64
	owner map[string]int64
	// swept is how many there were when those that come no more were looked for.
	swept int
}

type arrival struct {
	who     caller
	bytes   int64
	since   time.Time
	refused bool
	arrived bool
}

// abandoned is when a body that has not come can come no more: its connection has been
// given up, whatever fasthttp has told of it.
const abandoned = 2 * tokenTimeout

// enoughArrivals is how many requests there are before anybody looks for those that
// come no more.
const enoughArrivals = 1024

func newArrivals() *arrivals {
	return &arrivals{known: map[*fasthttp.RequestHeader]arrival{}, owner: map[string]int64{}}
}

// take notes a request, and reports whether its body may come. What was noted for the
// same headers before, by another request, is given back. Strangers' bodies, which are
// small, do not count.
func (a *arrivals) take(header *fasthttp.RequestHeader, who caller, bytes int64, bounds Bounds) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveBack(header)
	if !who.known && !who.admin {
		bytes = 0
	}
	owner, now := who.tenant.Name, time.Now()
	if bytes > 0 && a.full(owner, bytes, bounds, true) || len(a.known) >= max(enoughArrivals, 2*a.swept) {
		for other, held := range a.known {
			if !held.arrived && now.Sub(held.since) > abandoned {
				a.giveBack(other)
			}
		}
		a.swept = len(a.known)
	}
	// One body may be as large as it likes, up to the limit of a request.
	refused := bytes > 0 && a.full(owner, bytes, bounds, false)
	if refused {
		bytes = 0
	}
	a.known[header] = arrival{who: who, bytes: bytes, since: now, refused: refused}
	a.count(owner, bytes)
	return !refused
}

// full reports whether there is no room for so many bytes more, with mu held. One body may be as
// large as it likes, up to the limit of a request, unless alone is set.
func (a *arrivals) full(owner string, bytes int64, bounds Bounds, alone bool) bool {
	return (alone || a.all > 0) && a.all+bytes > bounds.Bodies || (alone || a.owner[owner] > 0) && a.owner[owner]+bytes > bounds.BodiesPerTenant
}

// hold has a request hold so many bytes in the place of others, and reports whether there is room.
func (a *arrivals) hold(owner string, before, bytes int64, bounds Bounds) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(owner, -before)
	if bounds.Bodies > 0 && bytes > before && a.full(owner, bytes, bounds, false) {
		a.count(owner, before)
		return false
	}
	a.count(owner, bytes)
	return true
}

// caller is who sends the request.
func (a *arrivals) caller(header *fasthttp.RequestHeader) (who caller, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, ok := a.known[header]
	return held.who, ok
}

// arrive says that the body is there, as long as it is.
func (a *arrivals) arrive(header *fasthttp.RequestHeader, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held, ok := a.known[header]
	if !ok {
		return
	}
	if held.bytes > 0 {
		a.count(held.who.tenant.Name, bytes-held.bytes)
		held.bytes = bytes
	}
	held.arrived = true
	a.known[header] = held
}

// release ends the request, and reports whether its body was refused.
func (a *arrivals) release(header *fasthttp.RequestHeader) (refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused = a.known[header].refused
	a.giveBack(header)
	return refused
}

// giveBack is called with mu held.
func (a *arrivals) giveBack(header *fasthttp.RequestHeader) {
	if held, ok := a.known[header]; ok {
		delete(a.known, header)
		a.count(held.who.tenant.Name, -held.bytes)
	}
}

// count is called with mu held.
func (a *arrivals) count(owner string, bytes int64) {
	a.all += bytes
	if a.owner[owner] += bytes; a.owner[owner] == 0 {
		delete(a.owner, owner)
	}
}
