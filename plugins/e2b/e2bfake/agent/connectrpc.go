package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// rpcError is an error of the Connect protocol.
type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Code + ": " + e.Message }

func rpcErrorf(code, message string) error { return &rpcError{code, message} }

var httpStatuses = map[string]int{
	"invalid_argument": 400, "failed_precondition": 400, "unauthenticated": 401, "permission_denied": 403,
	"not_found": 404, "already_exists": 409, "resource_exhausted": 429, "unimplemented": 501, "internal": 500,
	"unavailable": 503, "deadline_exceeded": 504,
}

func asRPCError(err error) *rpcError {
	if e, ok := errors.AsType[*rpcError](err); ok {
		return e
	}
	return &rpcError{"internal", err.Error()}
}

// unary serves a method with one request, which is such a message, and one answer.
func unary[Req, Resp any](message string, method func(*http.Request, Req) (Resp, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		var req Req
		var resp Resp
		text, err := io.ReadAll(r.Body)
		if err == nil {
			err = decode(message, text, &req)
		}
		if err == nil {
			resp, err = method(r, req)
		}
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			e := asRPCError(err)
			w.WriteHeader(httpStatuses[e.Code])
			_ = json.NewEncoder(w).Encode(e)
			return
		}
		_ = json.NewEncoder(w).Encode(resp)
	}
}

// decode reads a request that is such a message, and nothing else.
func decode(message string, text []byte, into any) error {
	if err := checkMessage(message, text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil { // a form that the plugin has no need of
		return rpcErrorf("invalid_argument", err.Error())
	}
	return nil
}

// stream is the answer of a method with several.
type stream struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	flusher http.Flusher
}

// serverStream serves a method with one request, which is such a message, and a stream of
// answers. What goes wrong stands in the last envelope; the HTTP status is 200 all the same.
func serverStream[Req any](message string, method func(*http.Request, Req, *stream) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != "application/connect+json" {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		w.Header().Set("Content-Type", "application/connect+json")
		s := &stream{w: w, flusher: w.(http.Flusher)}
		var req Req
		payload, err := readEnvelope(r.Body)
		if err == nil {
			err = decode(message, payload, &req)
		}
		if err == nil {
			err = method(r, req, s)
		}
		end := struct {
			Error *rpcError `json:"error,omitempty"`
		}{}
		if err != nil {
			end.Error = asRPCError(err)
		}
		s.send(2, end)
	}
}

// readEnvelope reads the one message of a request.
func readEnvelope(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(r)
	switch {
	case err != nil:
		return nil, err
	case len(body) < 5 || uint64(len(body)-5) != uint64(binary.BigEndian.Uint32(body[1:])):
		return nil, rpcErrorf("invalid_argument", "validation error: there must be one envelope, whole and alone")
	case body[0] != 0:
		return nil, rpcErrorf("invalid_argument", "validation error: the envelope has flags that were not agreed on")
	}
	return body[5:], nil
}

func (s *stream) send(flags byte, message any) {
	payload, err := json.Marshal(message)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...))
	s.flusher.Flush()
}
