package rest

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
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
		host, label, led := s.hostOf(header, door)
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
			s.answerHost(fctx, host, label)
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
func PathAsSent(r *http.Request) string {
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // http://host/path, as it is sent to proxies
		if _, after, ok := strings.Cut(target, "://"); ok {
			_, path, _ := strings.Cut(after, "/")
			target = "/" + path
		}
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}
