package e2bhttp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is an answer that says no.
type Error struct {
	// Status of HTTP; 0 for the error at the end of a stream.
	Status int
	// Code is a text that tells errors apart: error_code of the control API, or the
	// code of the Connect protocol. Empty where there is none.
	Code    string
	Message string
	// RetryAfter is what the server asks for; 0 if it does not.
	RetryAfter time.Duration
	// TraceID is for whoever asks E2B.
	TraceID string
	// Proxy says that it is the proxy's: the request did not reach the sandbox.
	Proxy bool
	// Port is the one of the sandbox at which nothing listens; 0 if it is not that.
	Port int
	// Own says that it is of the service itself: its body has the status too. A balancer
	// in front of it knows nothing of that.
	Own bool
	// NotJSON says that it comes from nobody who knows the protocol.
	NotJSON bool
}

// Error is what the server said.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Status > 0 {
		fmt.Fprintf(&b, "status %d", e.Status)
	}
	for _, part := range []string{e.Code, e.Message} {
		if part != "" {
			if b.Len() > 0 {
				b.WriteString(": ")
			}
			b.WriteString(part)
		}
	}
	if e.TraceID != "" {
		fmt.Fprintf(&b, " (trace %s)", e.TraceID)
	}
	return b.String()
}

const (
	maxErrorBody    = 64 << 10
	maxErrorMessage = 500
)

// readError reads what is wrong from an answer.
func readError(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode, TraceID: resp.Header.Get("X-E2b-Trace-Id"), RetryAfter: retryAfter(resp.Header)}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what there is of it has to do
	var body struct {
		Code      any    `json:"code"`
		Message   string `json:"message"`
		ErrorCode string `json:"error_code"`
		SandboxID string `json:"sandboxId"`
		Port      int    `json:"port"`
		Detail    any    `json:"detail"`
	}
	if err := json.Unmarshal(text, &body); err != nil {
		e.NotJSON = true
		if !strings.HasPrefix(strings.TrimSpace(string(text)), "<") { // a page is for browsers
			e.Message = cut(string(text))
		}
		return e
	}
	e.Message, e.Code = cut(body.Message), body.ErrorCode
	if code, ok := body.Code.(string); ok {
		e.Code = code
	}
	if body.Detail != nil && e.Message == "" {
		detail, _ := json.Marshal(body.Detail)
		e.Message = cut(string(detail))
	}
	e.Proxy, e.Port = body.SandboxID != "", body.Port
	if code, ok := body.Code.(float64); ok {
		e.Own = int(code) == resp.StatusCode && !e.Proxy
	}
	return e
}

func cut(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxErrorMessage {
		text = strings.ToValidUTF8(text[:maxErrorMessage], "") + "…"
	}
	return text
}

func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(strings.TrimSpace(header.Get("Retry-After")), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
