package envd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

// Change of a file below a directory that is watched.
type Change struct {
	// Name is relative to the directory.
	Name string     `json:"name"`
	Kind ChangeKind `json:"type"`
}

// ChangeKind says what happened. There may be others.
type ChangeKind string

// The kinds. What is renamed within the directory is created there as well.
const (
	ChangeCreate ChangeKind = "EVENT_TYPE_CREATE"
	ChangeWrite  ChangeKind = "EVENT_TYPE_WRITE"
	ChangeRemove ChangeKind = "EVENT_TYPE_REMOVE"
	ChangeRename ChangeKind = "EVENT_TYPE_RENAME"
	ChangeChmod  ChangeKind = "EVENT_TYPE_CHMOD"
)

// Watcher is the stream of what changes.
type Watcher struct{ body io.ReadCloser }

// Watch watches a directory and returns once it does. The stream ends with ctx.
func (c *Client) Watch(ctx context.Context, path string, recursive bool) (*Watcher, error) {
	body, err := envelope(map[string]any{"path": path, "recursive": recursive})
	if err != nil {
		return nil, err
	}
	//nolint:bodyclose // Watcher.Close does
	resp, err := c.endpoint.Send(ctx, http.MethodPost, "/filesystem.Filesystem/WatchDir", http.Header{
		"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"}, "Keepalive-Ping-Interval": {keepalive},
	}, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	w := &Watcher{resp.Body}
	for {
		m, err := w.message()
		if err != nil {
			w.Close()
			return nil, err
		}
		if m.Start != nil {
			return w, nil
		}
	}
}

type watchMessage struct {
	Start      *struct{}
	Filesystem *Change
}

// message reads one. There is no end of a stream but an error.
func (w *Watcher) message() (m watchMessage, err error) {
	err = readMessage(w.body, &m)
	if errors.Is(err, io.EOF) {
		err = e2bhttp.Lost(errors.New("the directory is not watched any more"))
	}
	return m, err
}

// Next waits for the next change.
func (w *Watcher) Next() (Change, error) {
	for {
		m, err := w.message()
		if err != nil {
			return Change{}, err
		}
		if m.Filesystem != nil {
			return *m.Filesystem, nil
		}
	}
}

// Close ends the stream.
func (w *Watcher) Close() { w.body.Close() }
