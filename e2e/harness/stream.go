package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// Stream is an execution, or something else, whose events are read one by one. Its methods may be
// called from any goroutine, one at a time.
type Stream struct {
	events *client.Events
	// Stdout and Stderr are what came so far.
	Stdout, Stderr []byte
	// ExecutionID and InstanceID are known from the first event on.
	ExecutionID, InstanceID string
	// Result is what main returned.
	Result json.RawMessage
	// Names of the events so far.
	Names []string
}

// Stream begins an execution as acme and returns when it is answered with events.
// Close it.
func (b *Broker) Stream(ctx context.Context, path string, request map[string]any) (*Stream, error) {
	return b.events(ctx, http.MethodPost, path, request)
}

// Watch begins a stream of events that have nothing to do with an execution, as
// Stream does.
func (b *Broker) Watch(ctx context.Context, path string) (*Stream, error) {
	return b.events(ctx, http.MethodGet, path, nil)
}

func (b *Broker) events(ctx context.Context, method, path string, body any) (*Stream, error) {
	resp, err := b.API().Do(ctx, client.Request{Method: method, Path: path, Body: body, Accept: sse.MediaType})
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("Content-Type") != sse.MediaType {
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("answered %s: %s", resp.Status, text)
	}
	return NewStream(resp.Body), nil
}

// NewStream reads the events in the body of an answer.
func NewStream(body io.ReadCloser) *Stream { return &Stream{events: client.NewEvents(body)} }

// Close leaves the stream.
func (s *Stream) Close() { _ = s.events.Close() }

// Next reads one event and returns its name.
func (s *Stream) Next() (string, []byte, error) {
	e, err := s.events.Next()
	if _, told := errors.AsType[*client.Problem](err); err != nil && !told {
		return "", nil, err
	}
	s.Names = append(s.Names, e.Name)
	var data struct {
		Text        string          `json:"text"`
		Base64      []byte          `json:"base64"`
		ExecutionID string          `json:"execution_id"`
		InstanceID  string          `json:"instance_id"`
		Result      json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return "", nil, fmt.Errorf("event %s: %w", e.Name, err)
	}
	piece := append([]byte(data.Text), data.Base64...)
	switch e.Name {
	case "started":
		s.ExecutionID, s.InstanceID = data.ExecutionID, data.InstanceID
	case "stdout":
		s.Stdout = append(s.Stdout, piece...)
	case "stderr":
		s.Stderr = append(s.Stderr, piece...)
	case "result":
		s.Result = data.Result
	}
	return e.Name, e.Data, nil
}

// Until reads until stdout holds text.
func (s *Stream) Until(text string) error {
	for !bytes.Contains(s.Stdout, []byte(text)) {
		if name, data, err := s.Next(); err != nil || name == "done" || name == "error" {
			return fmt.Errorf("no %q in %q before the end (%s %s): %w", text, s.Stdout, name, data, err)
		}
	}
	return nil
}

// End reads to the end, which must be an event done and then nothing.
func (s *Stream) End(t testing.TB) Execution {
	t.Helper()
	for {
		name, data, err := s.Next()
		assert.NilError(t, err)
		assert.Assert(t, name != "error", "%s", data)
		if name != "done" {
			continue
		}
		var e Execution
		assert.NilError(t, json.Unmarshal(data, &e))
		_, _, err = s.Next()
		assert.ErrorIs(t, err, io.EOF)
		return e
	}
}
