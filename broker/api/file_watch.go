package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The events of a watch. It has no end of its own: EventError is the last event
// where the provider ends it.
const (
	EventReady  = "ready"
	EventChange = "change"
)

// WatchReady says that changes are told from now on.
type WatchReady struct {
	_ struct{} `additionalProperties:"true"`
}

func (s *Server) watchRoutes() {
	stream(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/files/watch", id: "watchFiles", tag: tagFiles,
		summary: "Hear of changes of files",
		details: "Events until you close the connection or the instance's time is over. It is a use of the instance, which lives meanwhile, but not beyond its maximum lifetime.",
		query: []parameter{
			{name: "path", doc: "The directory; /workspace unless given."},
			{name: "recursive", kind: booleanParameter, doc: "Whatever is below it too."},
		},
		success: []int{http.StatusOK}, codes: append(fileCodes(), sdk.CodeQuotaExceeded),
		events: []event{
			{EventReady, "The first event: changes are told from now on.", reflect.TypeFor[WatchReady]()},
			{EventChange, "A change.", reflect.TypeFor[FileChange]()},
			{EventError, "The last event, if the watch cannot go on: the problem.", reflect.TypeFor[Problem]()},
		},
	}, s.watchFiles)
}

func (s *Server) watchFiles(w http.ResponseWriter, r *http.Request, c call[none]) error {
	events := newEventStream(w)
	defer events.close()
	req := sdk.WatchFilesRequest{Path: c.query.text("path"), Recursive: c.query.boolean("recursive")}
	if req.Path == "" {
		req.Path = workspace
	}
	err := leased(r.Context(), s, c.tenant, c.id, sdk.CapabilityFileWatch, func(ctx context.Context, files sdk.FileWatcher, instanceID string) error {
		req.InstanceID = instanceID
		return files.WatchFiles(ctx, req,
			func() error { return events.send(ctx, EventReady, WatchReady{}) },
			func(changes []sdk.FileChange) error {
				for _, change := range changes {
					if err := events.send(ctx, EventChange, FileChange{Kind: string(change.Kind), Path: change.Path}); err != nil {
						return err
					}
				}
				return nil
			})
	})
	if err == nil || !events.begun() || r.Context().Err() != nil {
		return err
	}
	p, _ := problemOf(err, w.Header().Get(headerRequestID))
	return errors.Join(events.send(r.Context(), EventError, p), errTold{err})
}
