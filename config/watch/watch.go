// Package watch tells when files may have changed: after an editor's save, an
// atomic replacement, the swap of a symbolic link as Kubernetes does it for a
// ConfigMap, or a change of several files at once.
//
// It watches directories, since a watch of a file goes deaf when the file is
// replaced, and says only that something happened. Whether the content is another
// one is for the reader to find out, which is why a look now and then, for events
// that were lost, costs nothing but reading.
package watch

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

const (
	// quiet is how long nothing may happen before a change counts as done: one
	// save is several events, and a directory of files is written one by one.
	quiet = 40 * time.Millisecond
	// longest is how long a change may be put off by more of them.
	longest = 400 * time.Millisecond
	// belt is how often a change is assumed. Events can be lost, and some network
	// and overlay file systems have none.
	belt = 30 * time.Second
)

// Watcher watches files.
type Watcher struct {
	logger  hclog.Logger
	notify  *fsnotify.Watcher // nil where there are no events
	changed chan struct{}

	mu    sync.Mutex
	paths map[string]bool // that matter, absolute
	dirs  map[string]bool // that are watched
}

// New returns a watcher that follows nothing yet. Run must be called.
func New(logger hclog.Logger) *Watcher {
	w := &Watcher{logger: logger, changed: make(chan struct{}, 1), paths: map[string]bool{}, dirs: map[string]bool{}}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		logger.Warn("changes of files are seen only every now and then: the system has no more watches", "every", belt, "error", err)
		return w
	}
	w.notify = notify
	return w
}

// Changed receives when something may have changed.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Follow watches these files and directories, which need not exist, and no others.
func (w *Watcher) Follow(paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths = map[string]bool{}
	dirs := map[string]bool{}
	for _, path := range paths {
		for path != "" {
			w.paths[path] = true
			dirs[filepath.Dir(path)] = true
			// What a link leads to is edited there.
			target, err := filepath.EvalSymlinks(path)
			if err != nil || w.paths[target] {
				break
			}
			path = target
		}
	}
	// A directory that is followed is one whose entries matter.
	for path := range w.paths {
		dirs[path] = true
	}
	if w.notify == nil {
		return
	}
	watched := map[string]bool{}
	for dir := range dirs {
		if w.dirs[dir] {
			watched[dir] = true
		} else if err := w.notify.Add(dir); err == nil { // it is no directory, or not there
			watched[dir] = true
		}
	}
	for dir := range w.dirs {
		if !watched[dir] {
			_ = w.notify.Remove(dir) // it may be gone
		}
	}
	w.dirs = watched
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if w.notify != nil {
		defer w.notify.Close()
		events, errs = w.notify.Events, w.notify.Errors
	}
	look := time.NewTicker(belt)
	defer look.Stop()
	settled := time.NewTimer(0)
	settled.Stop()
	defer settled.Stop()
	var first time.Time // of the events that have not settled
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			if !w.matters(event.Name) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			settled.Reset(min(quiet, time.Until(first.Add(longest))))
		case err := <-errs:
			// Most often: more events than the queue holds.
			w.logger.Warn("events about files were lost", "error", err)
			w.tell()
		case <-settled.C:
			first = time.Time{}
			w.tell()
		case <-look.C:
			w.tell()
		}
	}
}

// matters reports whether an event is about what is followed: the path itself, an
// entry of a directory that is, or the link that Kubernetes swaps beside them.
func (w *Watcher) matters(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paths[name] || w.paths[filepath.Dir(name)] || strings.HasPrefix(filepath.Base(name), "..")
}

func (w *Watcher) tell() {
	w.rewatch()
	select {
	case w.changed <- struct{}{}:
	default: // it is to be told already
	}
}

// rewatch follows the same paths again: links lead elsewhere, and a directory that
// was replaced is another one.
func (w *Watcher) rewatch() {
	w.mu.Lock()
	var paths []string
	for path := range maps.Keys(w.paths) {
		paths = append(paths, path)
	}
	w.mu.Unlock()
	w.Follow(paths)
}
