package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// StreamHandler answers a request as net/http does, with bodies that stream both
// ways. An error that it returns before it has written anything becomes a
// problem; a later one cuts the connection, so that the client sees that the
// answer is not whole. The request's context ends with the client and with the
// server.
type StreamHandler func(w http.ResponseWriter, r *http.Request) error

// errAborted is what a handler means that panics with http.ErrAbortHandler.
var errAborted = errors.New("the answer was given up")

// Told is a failure that the client has heard of in its stream.
type Told struct{ Err error }

func (t Told) Error() string { return t.Err.Error() }

func (t Told) Unwrap() error { return t.Err }

// answerStream surrounds a stream as observe does every other request.
func (s *Server) answerStream(w *streamWriter, r *http.Request, x *exchange, method string, handle StreamHandler) {
	name := func() {
		w.Header().Set(HeaderRequestID, x.requestID)
		if x.span != nil {
			w.Header().Set(HeaderTraceParent, traceParent(x.span))
		}
	}
	name()
	ctx, giveBack := s.withRoom(x.asked(r.Context()), x.tenant)
	defer giveBack()
	r = r.WithContext(ctx)
	s.watchBody(r, x)
	err := callStream(w, r, handle)
	if to, ok := x.elsewhere(err); ok && x.passedTo == "" {
		if err = s.passStreamOn(w, r, x, to, err); err != nil && w.status == 0 && untouched(r) && x.isLeft(err) {
			name()
			err = callStream(w, r.WithContext(peer.WithPlacing(r.Context(), false)), handle)
		}
	}
	failure, wasTold := errors.AsType[Told](err)
	cut := err != nil && w.status != 0 && !wasTold
	switch {
	case wasTold:
		x.code = sdk.CodeOf(failure.Err)
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		w.status = statusClientGone
		cut = true // net/http would say 200 to a client that has only ended its own side
	case cut:
		x.code = sdk.CodeOf(err)
	case err != nil:
		x.code = writeProblem(w, x, err)
	}
	s.log(x, method, w.status, err)
	if cut {
		panic(http.ErrAbortHandler) // net/http closes the connection and says nothing
	}
}

// RequestIDOf is the ID of the request that w answers.
func RequestIDOf(w http.ResponseWriter) string { return w.Header().Get(HeaderRequestID) }

// callStream runs a handler and turns a panic into an error.
func callStream(w http.ResponseWriter, r *http.Request, handle StreamHandler) (err error) {
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

// streamWriter knows whether an answer has begun, and with which status. It has
// all abilities of the http.ResponseWriter behind it.
type streamWriter struct {
	http.ResponseWriter
	x      *exchange
	status int // 0 until the answer begins
}

var (
	_ http.Flusher  = (*streamWriter)(nil)
	_ http.Hijacker = (*streamWriter)(nil)
	_ io.ReaderFrom = (*streamWriter)(nil)
)

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *streamWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom.
func (w *streamWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *streamWriter) Flush() {
	w.begin(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a failure shows in the next write
}

// Hijack implements http.Hijacker.
func (w *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (w *streamWriter) begin(status int) {
	if w.status == 0 {
		w.status = status
		w.x.body = nil // nobody else is going to answer
	}
}
