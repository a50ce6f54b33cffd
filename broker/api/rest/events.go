package rest

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// heartbeat is how long a stream of events is silent at most. Proxies take a
// silent connection for a dead one, after a minute typically.
const heartbeat = 15 * time.Second

// EventError is the last event of a stream that cannot go on: the problem, in the form
// of the API.
const EventError = "error"

// Event describes one of an operation's events in the document.
type Event struct {
	name string
	doc  string
	data reflect.Type
}

// EventOf describes an event with data of a type.
func EventOf[Data any](name, doc string) Event { return Event{name, doc, reflect.TypeFor[Data]()} }

// sendEvents answers with the events of a handler. A failure after the first is told in
// an event too.
func sendEvents[In any](w http.ResponseWriter, r *http.Request, c Call[In], handle EventHandler[In]) error {
	to := NewEventStream(w)
	defer to.Close()
	err := handle(r.Context(), c, to)
	if err == nil || !to.begun() || r.Context().Err() != nil {
		return err
	}
	p := c.x.api.opts.Problem(err, c.RequestID)
	return errors.Join(to.Send(r.Context(), EventError, p.Body), Told{err})
}

// EventStream is an answer that consists of events. The status and the headers go
// out with the first of them. It keeps no more than one event.
type EventStream struct {
	w          http.ResponseWriter
	controller *http.ResponseController

	mu     sync.Mutex
	buffer []byte
	pulse  *time.Timer // nil until the first event
	closed bool
}

// NewEventStream begins nothing yet. The caller closes it at the end of the answer.
func NewEventStream(w http.ResponseWriter) *EventStream {
	return &EventStream{w: w, controller: http.NewResponseController(w)}
}

// lastWords is how long a client may take for an event after the end of what it is
// an event of. One that listens takes it at once.
const lastWords = time.Second

// Send writes an event and returns when the connection has taken it. When ctx ends
// while the client takes nothing, the connection is given up.
func (s *EventStream) Send(ctx context.Context, name string, data any) error {
	encoded, err := encode(data)
	if err != nil {
		return err
	}
	return s.SendEncoded(ctx, sse.Event{Name: name, Data: encoded})
}

// SendEncoded is Send for an event that is JSON already. It may have an ID.
func (s *EventStream) SendEncoded(ctx context.Context, e sse.Event) error {
	return s.write(ctx, func(b []byte) []byte { return e.Append(b) })
}

// Begin begins the answer before there is an event.
func (s *EventStream) Begin(ctx context.Context) error {
	return s.write(ctx, func(b []byte) []byte { return sse.AppendComment(b, "begin") })
}

func (s *EventStream) write(ctx context.Context, what func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulse == nil {
		header := s.w.Header()
		header.Set("Content-Type", sse.MediaType)
		header.Set("Cache-Control", "no-cache, no-transform")
		header.Set("X-Accel-Buffering", "no") // nginx would collect events
		s.w.WriteHeader(http.StatusOK)
		s.pulse = time.AfterFunc(heartbeat, s.beat)
	}
	s.buffer = what(s.buffer[:0])
	// Both may fail where there are no deadlines; the wait is longer then.
	_ = s.controller.SetWriteDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = s.controller.SetWriteDeadline(time.Now().Add(lastWords)) })()
	return s.flush()
}

// flush writes the buffer. The caller holds mu.
func (s *EventStream) flush() error {
	s.pulse.Reset(heartbeat)
	if _, err := s.w.Write(s.buffer); err != nil {
		return err
	}
	return s.controller.Flush()
}

// beat writes a comment, when nothing else was written for a while.
func (s *EventStream) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.buffer = sse.AppendComment(s.buffer[:0], "ping")
	_ = s.flush() // the end of the request's context tells the same
}

func (s *EventStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pulse != nil
}

// Close ends the heartbeats. Nothing is written afterwards.
func (s *EventStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.pulse != nil {
		s.pulse.Stop()
	}
}
