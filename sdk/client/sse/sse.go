// Package sse is the wire format of server-sent events, both ways: the API writes
// it, clients read it. What the events mean is the business of both.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MediaType of a stream of events.
const MediaType = "text/event-stream"

// Event is one event: a name and what belongs to it, JSON in our API.
type Event struct {
	// ID is what a client says with the header Last-Event-ID that it has got; empty for
	// none.
	ID   string
	Name string
	Data []byte
}

// Append appends the event as it crosses the wire. A line end in the data, of
// whatever kind, arrives as \n. The name and the ID must have none.
func (e Event) Append(b []byte) []byte {
	if e.ID != "" {
		b = append(b, "id: "+e.ID+"\n"...)
	}
	b = append(b, "event: "+e.Name+"\n"...)
	rest := e.Data
	for more := true; more; {
		line := rest
		i := bytes.IndexAny(rest, "\r\n")
		if more = i >= 0; more {
			line = rest[:i]
			if bytes.HasPrefix(rest[i:], []byte("\r\n")) {
				i++
			}
			rest = rest[i+1:]
		}
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n')
}

// AppendComment appends a line that readers ignore.
func AppendComment(b []byte, text string) []byte {
	return append(b, ": "+text+"\n\n"...)
}

// ErrTooLong is returned for an event above the reader's limit.
var ErrTooLong = errors.New("an event is too long")

// Reader reads events.
type Reader struct {
	lines *bufio.Scanner
	limit int
}

// NewReader reads events of at most limit bytes, names included.
func NewReader(r io.Reader, limit int) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, limit)
	lines.Split(scanLine)
	return &Reader{lines: lines, limit: limit}
}

// Next returns the next event, or io.EOF at the end. An event that the end has cut
// off is none, as the standard says: a stream that ends properly does so with an
// event that says so.
func (r *Reader) Next() (Event, error) {
	var e Event
	var data [][]byte
	for size := 0; r.lines.Scan(); {
		line := r.lines.Text()
		if size += len(line); size > r.limit {
			return Event{}, ErrTooLong
		}
		if line == "" {
			if data == nil {
				e = Event{} // an event without data is none
				continue
			}
			e.Data = bytes.Join(data, []byte("\n"))
			return e, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			e.Name = value
		case "id":
			e.ID = value
		case "data":
			data = append(data, []byte(value))
		}
	}
	switch err := r.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return Event{}, ErrTooLong
	case err != nil:
		return Event{}, fmt.Errorf("read events: %w", err)
	default:
		return Event{}, io.EOF
	}
}

// scanLine splits at \n, \r\n and \r.
func scanLine(data []byte, atEOF bool) (advance int, token []byte, err error) {
	i := bytes.IndexAny(data, "\r\n")
	switch {
	case i < 0 && atEOF && len(data) > 0:
		return len(data), data, nil
	case i < 0:
		return 0, nil, nil
	case data[i] == '\n':
		return i + 1, data[:i], nil
	case i+1 < len(data) && data[i+1] == '\n':
		return i + 2, data[:i], nil
	case i+1 == len(data) && !atEOF:
		return 0, nil, nil // the \n may be on its way
	default:
		return i + 1, data[:i], nil
	}
}
