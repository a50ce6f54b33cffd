package agent

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

type watchRequest struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
}

type filesystemEvent struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// watchDir tells what changes in a directory until the client leaves.
func (e *envd) watchDir(r *http.Request, req watchRequest, s *stream) error {
	root, err := e.pathOf(r, pathRequest{req.Path})
	if err != nil {
		return err
	}
	info, err := os.Stat(root)
	if err != nil {
		return rpcErrorf("not_found", err.Error())
	}
	if !info.IsDir() {
		return rpcErrorf("invalid_argument", "path "+root+" is not a directory")
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer watcher.Close()
	if err := watch(watcher, root, req.Recursive); err != nil {
		return err
	}
	s.send(0, map[string]any{"start": struct{}{}})
	for {
		select {
		case <-r.Context().Done():
			return nil
		case err := <-watcher.Errors:
			return err
		case event := <-watcher.Events:
			if req.Recursive && event.Has(fsnotify.Create) {
				if info, err := os.Lstat(event.Name); err == nil && info.IsDir() {
					_ = watch(watcher, event.Name, true) // it may be gone again
				}
			}
			name, err := filepath.Rel(root, event.Name)
			if err != nil {
				return err
			}
			for _, kind := range eventTypes {
				if event.Has(kind.op) {
					s.send(0, map[string]any{"filesystem": filesystemEvent{name, kind.name}})
				}
			}
		}
	}
}

// eventTypes are in the order in which they are told.
var eventTypes = []struct {
	op   fsnotify.Op
	name string
}{
	{fsnotify.Create, "EVENT_TYPE_CREATE"},
	{fsnotify.Rename, "EVENT_TYPE_RENAME"},
	{fsnotify.Chmod, "EVENT_TYPE_CHMOD"},
	{fsnotify.Write, "EVENT_TYPE_WRITE"},
	{fsnotify.Remove, "EVENT_TYPE_REMOVE"},
}

func watch(w *fsnotify.Watcher, root string, recursive bool) error {
	if !recursive {
		return w.Add(root)
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return w.Add(path)
	})
}
