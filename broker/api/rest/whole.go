package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A StreamHandler has the body as it comes. One that needs it whole reads it with ReadWhole: the bytes
// count among the bodies under way, as if the server had read them.

// wholeTime bounds how long a body takes that is read whole. The connection bounds each pause in
// it.
const wholeTime = time.Minute

type wholeKey struct{}

// wholeRoom is what a request holds of the room for bodies.
type wholeRoom struct {
	server *Server
	owner  string
	bytes  int64
}

// withRoom returns a context for ReadWhole, and what gives the room back.
func (s *Server) withRoom(ctx context.Context, owner string) (context.Context, func()) {
	room := &wholeRoom{server: s, owner: owner}
	return context.WithValue(ctx, wholeKey{}, room), func() { room.set(0) }
}

// set changes how many bytes the request holds, and reports whether there is room.
func (w *wholeRoom) set(bytes int64) bool {
	if w == nil {
		return true
	}
	if !w.server.arrivals.hold(w.owner, w.bytes, bytes, *w.server.bounds.Load()) {
		return false
	}
	w.bytes = bytes
	return true
}

// ReadWhole reads the body of a request that a StreamHandler answers. The error is an answer: 413
// for more than most bytes, SB008 where there is no room for a body of that length, 408 where it
// does not come within a minute. The bytes count until the handler returns.
func ReadWhole(r *http.Request, most int64) ([]byte, error) {
	tooLarge := BadRequest(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is too large: it may have %d bytes.", most))
	room, _ := r.Context().Value(wholeKey{}).(*wholeRoom)
	length := r.ContentLength
	switch {
	case length > most:
		return nil, tooLarge
	case length < 0:
		length = most // it may be so long
	}
	if !room.set(length) {
		return nil, errTooManyBodies
	}
	began := time.Now()
	body := make([]byte, 0, 512)
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := r.Body.Read(body[len(body):min(cap(body), int(most)+1)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > most:
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			room.set(int64(len(body)))
			return body, nil
		case err != nil:
			return nil, BadRequest(http.StatusBadRequest, "The body is not whole.")
		case time.Since(began) > wholeTime:
			return nil, BadRequest(http.StatusRequestTimeout, fmt.Sprintf("The body did not come within %v.", wholeTime))
		}
	}
}
