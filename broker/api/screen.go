package api

import (
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
		header := &fctx.Request.Header
		s.bodies.arrive(header, int64(len(fctx.Request.Body())))
		defer s.bodies.release(header)
		label, toPreview := s.previewLabel(header)
		status := 0
		switch {
		case !known[string(fctx.Method())], ambiguousHead(&fctx.Request.Header):
			status = http.StatusBadRequest
			fctx.SetConnectionClose()
			linger(fctx.Conn()) // a body may be on its way
		case toPreview:
			s.answerPreviewHost(fctx, label)
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
