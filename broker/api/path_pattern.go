package api

import (
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// pathPattern recognizes the requests of an operation before Fiber does: at that
// time the body has not been read. What it misses is read into memory within the
// usual limit, and works all the same.
type pathPattern struct {
	method   string
	segments []string // {name} stands for any segment, a * at the end for the rest
}

func newPathPattern(op operation) pathPattern {
	return pathPattern{method: op.method, segments: strings.Split(op.path, "/")}
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
	path, _, _ := strings.Cut(string(header.RequestURI()), "?")
	matches := func(p pathPattern) bool { return p.match(string(header.Method()), path) }
	return slices.ContainsFunc(s.holding, matches) && !slices.ContainsFunc(s.reading, matches)
}
