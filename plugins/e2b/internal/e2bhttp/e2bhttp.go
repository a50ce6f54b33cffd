// Package e2bhttp is what the clients of E2B's servers have in common: how a request
// is sent, and how an answer that is an error reads, whoever gave it: the control API,
// the proxy in front of the sandboxes, a server in a sandbox, or a load balancer that
// knows nothing of JSON.
//
// What the calls are is for the packages control, envd and interpreter; what an error
// means to the broker is for the provider.
package e2bhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/fence"
)

// maxAnswer bounds an answer that is read into memory: lists are the largest.
const maxAnswer = 16 << 20

// Endpoint is a server, and what goes with every request to it.
type Endpoint struct {
	// Base URL, without a slash at its end.
	Base string
	// Header of every request.
	Header http.Header
	Client *http.Client
}

// Send sends a request and returns the answer if its status is below 300. Any other
// is an *Error, and the body is closed.
func (e Endpoint) Send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	for _, h := range []http.Header{e.Header, header} {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	resp, err := e.Client.Do(req)
	if err != nil {
		// The URL says nothing that the operation does not.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if fence.Refused(err) { // it was not sent
			return nil, err
		}
		return nil, &LostError{err}
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// Call sends a request with a JSON body, unless in is nil, and decodes the answer into
// out, unless that is nil. It returns the answer's header.
func (e Endpoint) Call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	header := http.Header{}
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode a request: %w", err)
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	resp, err := e.Send(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, &LostError{err}
	}
	if out == nil {
		return resp.Header, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return nil, &Error{Status: resp.StatusCode, Message: "the answer is not what was expected: " + err.Error(), NotJSON: true}
	}
	return resp.Header, nil
}

// LostError says that there was no answer, or that it was cut: what the request did is
// not known.
type LostError struct{ cause error }

// Lost makes a LostError.
func Lost(cause error) *LostError { return &LostError{cause} }

// Error says what became of the connection.
func (e *LostError) Error() string { return strings.TrimSpace(e.cause.Error()) }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.cause }
