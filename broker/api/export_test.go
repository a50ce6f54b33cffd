package api

import (
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// NewServerWithStream returns a server with one route more, PathStream, whose
// bodies stream.
func NewServerWithStream(opts Options, handle rest.StreamHandler) (*Server, error) {
	s, err := NewServer(opts)
	if err != nil {
		return nil, err
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		rest.Stream(s.v1, rest.Operation{
			Method: method, Path: PathStream, ID: method + "Test", Summary: "A test",
			Query:    []rest.Parameter{{Name: "how"}, {Name: "begun", Kind: rest.Boolean}, {Name: "unread", Kind: rest.Boolean}, {Name: "endless", Kind: rest.Boolean}},
			Consumes: "application/octet-stream", Produces: "application/octet-stream", Success: []int{http.StatusOK},
		}, func(w http.ResponseWriter, r *http.Request, _ rest.Call[rest.None]) error { return handle(w, r) })
	}
	return s, nil
}

// PathStream is the route of NewServerWithStream.
const PathStream = "/test/{id}/stream"
