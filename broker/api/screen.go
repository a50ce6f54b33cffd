package api

import (
	"bytes"
	"net/http"
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
		status := 0
		switch {
		case !known[string(fctx.Method())], ambiguousLength(&fctx.Request.Header):
			status = http.StatusBadRequest
			fctx.SetConnectionClose()
		case hidesSlash(s.routed(string(fctx.URI().PathOriginal()))):
			status = http.StatusNotFound
		default:
			next(fctx)
		}
		if status != 0 {
			s.refuse(fctx, status)
		}
		if s.streams.Held(&fctx.Request.Header) && !fctx.Hijacked() {
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

// ambiguousLength finds a chunked body that has a length as well, or is encoded
// twice: who believes the other header sees another request behind it. fasthttp
// itself refuses two lengths.
func ambiguousLength(header *fasthttp.RequestHeader) bool {
	lengths, encodings := 0, 0
	for line := range bytes.Lines(header.RawHeaders()) { // fasthttp keeps but one of them elsewhere
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			lengths++
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			encodings++
		}
	}
	return encodings > 0 && lengths+encodings > 1
}
