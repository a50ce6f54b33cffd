package api

import (
	"net/url"
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
	if method != p.method {
		return false
	}
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

// bodyStreams reports whether the body of the request is for a handler that
// streams.
func (s *Server) bodyStreams(header *fasthttp.RequestHeader) bool {
	if len(s.holding) == 0 || header.ContentLength() == 0 {
		return false
	}
	path, _, _ := strings.Cut(string(header.RequestURI()), "?")
	for _, pattern := range s.holding {
		if pattern.match(string(header.Method()), path) {
			return true
		}
	}
	return false
}
