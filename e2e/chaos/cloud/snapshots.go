package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Snapshot is what there was in an instance at a moment.
type Snapshot struct {
	ID        string            `json:"id"`
	Labels    map[string]string `json:"labels"`
	Template  string            `json:"template"`
	CreatedAt time.Time         `json:"created_at"`
	Bytes     int64             `json:"bytes"`
}

// SnapshotRequest is the body of POST /snapshot.
type SnapshotRequest struct {
	Instance string            `json:"instance"`
	Labels   map[string]string `json:"labels"`
	// Key makes it idempotent, unless the cloud ignores keys.
	Key string `json:"key"`
	// Sum is that of the key that opens it; without it nothing is made of it.
	Sum string `json:"sum"`
	// MaxBytes is the most that it may take; 0 for no bound.
	MaxBytes int64 `json:"max_bytes"`
}

// Source names a snapshot, and the sum of the key that opens it.
type Source struct {
	ID  string `json:"id"`
	Sum string `json:"sum"`
}

// NamedRequest is the body of calls about a snapshot, a volume or a template that is there.
type NamedRequest struct {
	ID string `json:"id"`
}

// snapshot is one with what the cloud knows of it.
type snapshot struct {
	Snapshot
	key, sum string
	in       *inside
}

func (c *Cloud) handleSnapshots() {
	c.mux.HandleFunc("POST /snapshot", handle(c, "snapshot", c.snapshot))
	c.mux.HandleFunc("POST /drop", handle(c, "drop", c.drop))
	c.mux.HandleFunc("POST /snapshots", handle(c, "snapshots", c.listSnapshots))
}

// copied is what goes on from there in another instance: files, contexts, and commands in
// the middle of what they do. Volumes are not in it.
func (in *inside) copied() *inside {
	return &inside{files: maps.Clone(in.files), commands: slices.Clone(in.commands), contexts: slices.Clone(in.contexts), named: in.named}
}

func (c *Cloud) snapshot(r *http.Request, req SnapshotRequest) (Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.snapshots {
		if s.key == req.Key && req.Key != "" && !c.lies.NoKeys {
			return s.Snapshot, nil
		}
	}
	of, found := c.alive[req.Instance]
	if !found {
		return Snapshot{}, refusal{http.StatusNotFound, "no such instance"}
	}
	in := c.insides[of.ID]
	if in.paused {
		return Snapshot{}, errPaused
	}
	bytes := int64(1)
	for _, file := range in.files {
		bytes += int64(len(file.Content))
	}
	if req.MaxBytes > 0 && bytes > req.MaxBytes {
		return Snapshot{}, refusal{http.StatusTooManyRequests, "it is larger than it may be"}
	}
	c.made++
	s := Snapshot{ID: fmt.Sprintf("cloudsnap-%06d", c.made), Labels: req.Labels, Template: of.Template, CreatedAt: time.Now(), Bytes: bytes}
	c.snapshots[s.ID] = &snapshot{s, req.Key, req.Sum, in.copied()}
	c.shown[s.ID] = s.CreatedAt.Add(upTo(c.random, c.lies.ListLate))
	c.note(Effect{Kind: Kept, Instance: of, Snapshot: s, Process: r.Header.Get(ProcessHeader)})
	return s, nil
}

func (c *Cloud) drop(r *http.Request, req NamedRequest) (struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.snapshots[req.ID]; s != nil {
		delete(c.snapshots, req.ID)
		delete(c.shown, req.ID)
		c.note(Effect{Kind: Dropped, Snapshot: s.Snapshot, Process: r.Header.Get(ProcessHeader)})
	}
	return struct{}{}, nil
}

func (c *Cloud) listSnapshots(_ *http.Request, labels map[string]string) ([]Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, list := time.Now(), []Snapshot{}
	for _, id := range slices.Sorted(maps.Keys(c.snapshots)) {
		if s := c.snapshots[id].Snapshot; s.Labels[sdk.LabelBroker] == labels[sdk.LabelBroker] && !now.Before(c.shown[id]) {
			list = append(list, s)
		}
	}
	return list, nil
}

// opened is what a new instance begins with. The caller holds mu.
func (c *Cloud) opened(from *Source) (*inside, error) {
	if from == nil {
		return newInside(), nil
	}
	s := c.snapshots[from.ID]
	switch {
	case s == nil:
		return nil, refusal{http.StatusNotFound, "snapshot: no such snapshot"}
	case s.sum != from.Sum:
		return nil, refusal{http.StatusUnprocessableEntity, "snapshot: the key does not open it"}
	}
	return s.in.copied(), nil
}

// Snapshots returns what there is, listed or not.
func (c *Cloud) Snapshots() (all []Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.snapshots {
		all = append(all, s.Snapshot)
	}
	return all
}
