package api

import "net/http"

// NewServerWithStream returns a server with one route more, PathStream, whose
// bodies stream.
func NewServerWithStream(opts Options, handle func(w http.ResponseWriter, r *http.Request) error) (*Server, error) {
	return newServer(opts, (*Server).routes, func(s *Server) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			stream(s, operation{
				method: method, path: PathStream, id: method + "Test", summary: "A test",
				query:    []parameter{{name: "how"}, {name: "begun", kind: booleanParameter}, {name: "unread", kind: booleanParameter}, {name: "endless", kind: booleanParameter}},
				consumes: "application/octet-stream", produces: "application/octet-stream", success: []int{http.StatusOK},
			}, func(w http.ResponseWriter, r *http.Request, _ call[none]) error { return handle(w, r) })
		}
	})
}

// PathStream is the route of NewServerWithStream.
const PathStream = "/test/{id}/stream"
