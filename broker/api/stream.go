package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/api/handover"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// streamHandler answers a request as net/http does, with bodies that stream both
// ways. An error that it returns before it has written anything becomes a
// problem; a later one cuts the connection, so that the client sees that the
// answer is not whole. The request's context ends with the client and with the
// server.
type streamHandler func(w http.ResponseWriter, r *http.Request) error

// errAborted is what a handler means that panics with http.ErrAbortHandler.
var errAborted = errors.New("the answer was given up")

// stream binds a handler to a route whose bodies are not read into memory. The
// handler gets the request after authentication.
func stream(s *Server, op operation, handle func(w http.ResponseWriter, r *http.Request, c call[none]) error) {
	op.streams = true
	s.document.add(op, nil, nil, nil)
	s.holding = append(s.holding, newPathPattern(op))
	bind(s, op, func(c *fiber.Ctx, request call[none]) error {
		return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error { return handle(w, r, request) })
	})
}

// handOver lets handle answer the request when the caller has returned. Nothing
// of Fiber reaches it.
func (s *Server) handOver(c *fiber.Ctx, handle streamHandler) error {
	x, method := exchangeOf(c), method(c)
	err := s.streams.Take(c.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.answerStream(&streamWriter{ResponseWriter: w}, r, x, method, handle)
	}))
	switch {
	case errors.Is(err, handover.ErrShuttingDown):
		return sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	case err != nil:
		return &requestError{status: http.StatusBadRequest, detail: "The request is not valid HTTP: " + err.Error() + "."}
	}
	x.streams = true
	return nil
}

// answerStream surrounds a stream as observe does every other request.
func (s *Server) answerStream(w *streamWriter, r *http.Request, x *exchange, method string, handle streamHandler) {
	w.Header().Set(headerRequestID, x.requestID)
	err := callStream(w, r.WithContext(x.asked(r.Context())), handle)
	if w.tenant != "" {
		x.tenant = w.tenant
	}
	code, wasTold := told(err)
	cut := err != nil && w.status != 0 && !wasTold
	switch {
	case wasTold:
		x.code = code
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		w.status = statusClientGone
		cut = true // net/http would say 200 to a client that has only ended its own side
	case cut:
		x.code = sdk.CodeOf(err)
	case err != nil:
		x.code = writeProblem(w, err, x.requestID)
	}
	s.log(x, method, w.status, err)
	if cut {
		panic(http.ErrAbortHandler) // net/http closes the connection and says nothing
	}
}

// callStream runs a handler and turns a panic into an error.
func callStream(w http.ResponseWriter, r *http.Request, handle streamHandler) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case http.ErrAbortHandler:
			err = errAborted
		default:
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return handle(w, r)
}
