package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// Client speaks to one broker for one caller. It does not change, and may be used by
// many goroutines.
type Client struct {
	url    string
	token  string
	http   *http.Client
	header http.Header
}

// MaxAnswer bounds an answer that is read into memory: two outputs of 8 MiB, escaped,
// twice. An event may have a quarter of it.
const MaxAnswer = 256 << 20

// New returns a client of the broker at a URL such as http://127.0.0.1:9385, with a
// tenant's token, or an administrator's for Admin.
func New(url, token string) *Client {
	return &Client{url: strings.TrimSuffix(url, "/"), token: token, http: &http.Client{CheckRedirect: stay}}
}

// stay follows no redirection: the token goes to the broker alone. A program in an instance
// may answer with one, which is its answer.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Over returns a client that sends its requests with another http.Client. Its timeout
// would cut streams: give the calls contexts instead. It follows no redirection.
func (c *Client) Over(h *http.Client) *Client {
	other, over := *c, *h
	over.CheckRedirect = stay
	other.http = &over
	return &other
}

// With returns a client that sends a further header, such as Idempotency-Key or
// X-Request-Id.
func (c *Client) With(name, value string) *Client {
	other := *c
	if other.header = c.header.Clone(); other.header == nil {
		other.header = http.Header{}
	}
	other.header.Set(name, value)
	return &other
}

// Request is one request to the broker.
type Request struct {
	Method string
	// Path from the root, escaped.
	Path  string
	Query url.Values
	// Body becomes JSON; an io.Reader is sent as it is. Nil for none.
	Body any
	// Accept is the media type of the answer, JSON unless given.
	Accept string
	// ContentType of a body that is an io.Reader.
	ContentType string
}

// Do sends a request and returns the answer, whose body must be closed. A refusal is a
// *Problem.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	body, streams := r.Body.(io.Reader)
	contentType := r.ContentType
	if !streams && r.Body != nil {
		encoded, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w", err)
		}
		body, contentType = bytes.NewReader(encoded), "application/json"
	}
	target := c.url + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, body)
	if err != nil {
		return nil, fmt.Errorf("the broker's URL: %w", err)
	}
	if c.header != nil {
		req.Header = c.header.Clone()
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", cmp.Or(r.Accept, "application/json"))
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unanswered("no broker answers", err)
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	return nil, refusal(resp)
}

// refusal reads the problem that an answer is, and closes it.
func refusal(resp *http.Response) error {
	defer resp.Body.Close()
	problem := &Problem{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, MaxAnswer)).Decode(problem); err != nil || problem.Code == "" {
		return unanswered("the broker answered "+resp.Status, nil)
	}
	return problem
}

// ask sends a request whose answer is one object, or nothing.
func ask[Out any](ctx context.Context, c *Client, r Request) (out Out, err error) {
	resp, err := c.Do(ctx, r)
	if err != nil {
		return out, err
	}
	return out, c.read(resp, &out)
}

// tell sends a request whose answer says nothing more.
func (c *Client) tell(ctx context.Context, method, path string, body any) error {
	_, err := ask[struct{}](ctx, c, Request{Method: method, Path: path, Body: body})
	return err
}

func (c *Client) read(resp *http.Response, into any) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer))
	if err != nil {
		return unanswered("the broker's answer broke off", err)
	}
	if len(text) == 0 && resp.StatusCode != http.StatusOK {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return c.stranger()
	}
	return nil
}

// Event is one event of a stream.
type Event = sse.Event

// Events are the events of an answer. Range over All, or read with Next; Close leaves
// early, which cancels what runs for the stream.
type Events struct {
	body   io.Closer
	reader *sse.Reader
	resume *resumption // nil for a stream that cannot go on where it breaks off
}

// NewEvents reads the events in the body of an answer.
func NewEvents(body io.ReadCloser) *Events {
	return &Events{body: body, reader: sse.NewReader(body, MaxAnswer/4)}
}

// stream sends a request that is answered with events.
func (c *Client) stream(ctx context.Context, r Request) (*Events, error) {
	r.Accept = sse.MediaType
	resp, err := c.Do(ctx, r) //nolint:bodyclose // Events.Close does
	if err != nil {
		return nil, err
	}
	if mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); mediaType != sse.MediaType {
		var e Execution
		if err := c.read(resp, &e); err != nil {
			return nil, err
		}
		if e.Status == "" {
			return nil, c.stranger()
		}
		return wholeExecution(e), nil
	}
	return NewEvents(resp.Body), nil
}

// wholeExecution makes events of an execution that was answered at once: something on
// the way has dropped the wish for events.
func wholeExecution(e Execution) *Events {
	var b []byte
	add := func(name string, data any) {
		encoded, _ := json.Marshal(data) // it was JSON before
		b = Event{Name: name, Data: encoded}.Append(b)
	}
	add(EventStarted, ExecutionStarted{ExecutionID: e.ExecutionID, InstanceID: e.InstanceID, Provider: e.Provider})
	for name, part := range map[string]OutputPart{EventStdout: {Text: e.Stdout, Base64: e.StdoutBase64}, EventStderr: {Text: e.Stderr, Base64: e.StderrBase64}} {
		if part.Base64 != nil {
			part.Text = ""
		}
		add(name, part)
	}
	for _, artifact := range e.Artifacts {
		add(EventArtifact, artifact)
	}
	if e.Result != nil {
		add(EventResult, ExecutionResult{Result: e.Result})
	}
	add(EventDone, e)
	return NewEvents(io.NopCloser(bytes.NewReader(b)))
}

func (c *Client) stranger() error {
	return unanswered(fmt.Sprintf("what answers at %s is no sandbox broker", c.url), nil)
}

// Next returns the next event. EventError comes as the *Problem that it holds, and the
// end of the stream as io.EOF.
func (e *Events) Next() (Event, error) {
	event, err := e.next()
	if err != nil || event.Name != EventError {
		return event, err
	}
	problem := &Problem{}
	if err := Decode(event, problem); err != nil {
		return event, err
	}
	return event, problem
}

// All are the events up to the end of the stream, or to what ends it before.
func (e *Events) All() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, err := e.Next()
			if errors.Is(err, io.EOF) || !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// Close leaves the stream.
func (e *Events) Close() error { return e.body.Close() }

// Decode reads the data of an event into the value that into points to: the type that
// the constant of its name tells.
func Decode(e Event, into any) error {
	if err := json.Unmarshal(e.Data, into); err != nil {
		return fmt.Errorf("the broker's event %s cannot be read: %w", e.Name, err)
	}
	return nil
}

const (
	pathInstances = "/api/v1/instances"
	get           = http.MethodGet
	post          = http.MethodPost
)

// below is a path below an instance; its parts are names, and escaped.
func below(id string, parts ...string) string {
	path := pathInstances + "/" + url.PathEscape(id)
	if volume, ok := strings.CutPrefix(id, volumeFiles); ok && !strings.Contains(volume, ":") { // the ID of an instance has two colons
		path = pathVolumes + "/" + url.PathEscape(volume)
	}
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}
