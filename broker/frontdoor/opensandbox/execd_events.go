package opensandbox

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// event is one thing that a stream tells. Each is a JSON object of its own with a blank
// line behind it, without the field names of server-sent events. Clients drop events that
// have no timestamp, and none may be 0.
type event struct {
	Type      string            `json:"type"`
	Text      string            `json:"text,omitempty"`
	Results   map[string]string `json:"results,omitempty"`
	Error     *eventError       `json:"error,omitempty"`
	Count     int               `json:"execution_count,omitempty"`
	TookMS    int64             `json:"execution_time,omitempty"`
	Timestamp int64             `json:"timestamp"`
}

type eventError struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// The types of events.
const (
	eventInit     = "init"
	eventStdout   = "stdout"
	eventStderr   = "stderr"
	eventResult   = "result"
	eventCount    = "execution_count"
	eventComplete = "execution_complete"
	eventFailure  = "error"
	eventPing     = "ping"
)

// pulse is how long a stream is silent at most, as with OpenSandbox's own daemon.
const pulse = 3 * time.Second

// lastWords is how long a client may take for an event after the end of its request.
const lastWords = time.Second

// eventStream is an answer that consists of events. Its head goes out with the first of
// them. It keeps no more than one.
type eventStream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	began      time.Time

	mu     sync.Mutex
	beat   *time.Timer // nil until the first event
	closed bool
}

// newEventStream begins nothing yet. The caller closes it.
func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, controller: http.NewResponseController(w), began: time.Now()}
}

// send writes an event and returns when the connection has taken it.
func (s *eventStream) send(ctx context.Context, e event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beat == nil {
		header := s.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // nginx would collect events
		s.w.WriteHeader(http.StatusOK)
		s.beat = time.AfterFunc(pulse, s.ping)
	}
	// Both may fail where there are no deadlines; the wait is longer then.
	_ = s.controller.SetWriteDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = s.controller.SetWriteDeadline(time.Now().Add(lastWords)) })()
	return s.write(e)
}

// write is called with mu held.
func (s *eventStream) write(e event) error {
	e.Timestamp = time.Now().UnixMilli()
	text, err := rest.EncodeJSON(e)
	if err != nil {
		return err
	}
	s.beat.Reset(pulse)
	if _, err := s.w.Write(append(text, "\n\n"...)); err != nil {
		return err
	}
	return s.controller.Flush()
}

func (s *eventStream) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		_ = s.write(event{Type: eventPing, Text: "pong"}) // the end of the request tells the same
	}
}

// complete is the last event of what has ended well.
func (s *eventStream) complete(ctx context.Context) error {
	return s.send(ctx, event{Type: eventComplete, TookMS: max(1, time.Since(s.began).Milliseconds())})
}

// fail is the last event of everything else.
func (s *eventStream) fail(ctx context.Context, name, value string, traceback ...string) error {
	return s.send(ctx, event{Type: eventFailure, Error: &eventError{Name: name, Value: value, Traceback: traceback}})
}

// failCommand is fail for a command that has ended with an exit code, which the SDKs read
// from the error's value.
func (s *eventStream) failCommand(ctx context.Context, exitCode int, more ...string) error {
	return s.fail(ctx, "CommandExecError", strconv.Itoa(exitCode), append([]string{exitStatus(exitCode)}, more...)...)
}

func exitStatus(code int) string { return "exit status " + strconv.Itoa(code) }

// begun reports whether anything was told.
func (s *eventStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beat != nil
}

// finish tells of an error that came after the first event in the stream, and returns one
// from before it, which becomes an answer of its own.
func (s *eventStream) finish(ctx context.Context, err error, requestID string) error {
	if err == nil || !s.begun() || ctx.Err() != nil {
		return err
	}
	r := rest.RefusalOf(err, requestID)
	if told := s.fail(ctx, string(r.Code), r.Detail, string(r.Code)+": "+r.Detail); told != nil {
		return told
	}
	return rest.Told{Err: err}
}

// close ends the pings. Nothing is written afterwards.
func (s *eventStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.beat != nil {
		s.beat.Stop()
	}
}

// maxLine bounds the text of an event, in bytes: clients read lines of 4 MiB at most, and
// each byte may take six in JSON.
const maxLine = 512 << 10

// lines makes one event of each line of a command's output. An event has the line without
// its end, and a line feed for an empty one.
type lines struct {
	kind string
	send func(event) error
	held []byte
	// returned is set if the last byte was a carriage return, whose line feed may follow.
	returned bool
}

// write takes output, cut anywhere.
func (l *lines) write(p []byte) error {
	for len(p) > 0 {
		if l.returned {
			l.returned = false
			if p[0] == '\n' {
				p = p[1:]
				continue
			}
		}
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			l.held = append(l.held, p...)
			return l.spill()
		}
		l.held = append(l.held, p[:end]...)
		l.returned = p[end] == '\r'
		p = p[end+1:]
		if err := l.spill(); err != nil {
			return err
		}
		if err := l.line(); err != nil {
			return err
		}
	}
	return nil
}

// spill sends the beginning of a line that is too long for one event.
func (l *lines) spill() error {
	for len(l.held) > maxLine {
		cut := maxLine
		for cut > maxLine-utf8.UTFMax && !utf8.RuneStart(l.held[cut]) {
			cut--
		}
		if err := l.send(event{Type: l.kind, Text: validText(l.held[:cut])}); err != nil {
			return err
		}
		l.held = append(l.held[:0], l.held[cut:]...)
	}
	return nil
}

func (l *lines) line() error {
	text := validText(l.held)
	l.held = l.held[:0]
	if text == "" {
		text = "\n"
	}
	return l.send(event{Type: l.kind, Text: text})
}

// end sends a last line that has no end. What is written afterwards begins another.
func (l *lines) end() error {
	l.returned = false
	if len(l.held) == 0 {
		return nil
	}
	return l.line()
}

func validText(p []byte) string { return string(bytes.ToValidUTF8(p, []byte("\uFFFD"))) }
