package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// store keeps the instances and the snapshots, in a file each if it has a path.
type store struct {
	mu        sync.Mutex
	path      string
	all       map[string]stored
	snapshots map[string]snapshotted
}

type stored struct {
	Instance sdk.Instance
	Env      map[string]string
	Key      string
	// Memory is what the instance remembers.
	Memory string
}

func newStore(path string) *store {
	s := &store{path: path, all: map[string]stored{}, snapshots: map[string]snapshotted{}}
	if path != "" {
		load(path, &s.all)
		load(snapshotsPath(path), &s.snapshots)
	}
	return s
}

// snapshotsPath is where the snapshots are that belong to the instances in path.
func snapshotsPath(path string) string { return filepath.Join(filepath.Dir(path), "snapshots.json") }

func load(path string, into any) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		panic(err)
	}
}

func (s *store) create(req sdk.CreateRequest) (sdk.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.all {
		if req.IdempotencyKey != "" && i.Key == req.IdempotencyKey {
			return i.Instance, nil
		}
	}
	var from snapshotted
	if req.Snapshot != nil {
		var err error
		if from, err = s.opened(req.Snapshot); err != nil {
			return sdk.Instance{}, err
		}
	}
	env := maps.Clone(from.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	instance := sdk.Instance{
		ID:        "mock-" + hex.EncodeToString(random),
		Template:  req.Template,
		Labels:    req.Labels,
		Metadata:  map[string]string{"made_by": "mock"},
		CreatedAt: time.Now(),
	}
	if req.TTL > 0 {
		instance.ExpiresAt = instance.CreatedAt.Add(req.TTL)
	}
	s.all[instance.ID] = stored{Instance: instance, Env: env, Key: req.IdempotencyKey, Memory: from.Memory}
	return instance, s.save()
}

func (s *store) get(id string) (stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.all[id]
	if !ok {
		return i, &sdk.Error{Code: sdk.CodeNotFound, Message: "no such instance", NoEffect: true}
	}
	return i, nil
}

func (s *store) destroy(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
	return s.save()
}

// list is in the order of creation.
func (s *store) list() []sdk.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]sdk.Instance, 0, len(s.all))
	for _, i := range s.all {
		list = append(list, i.Instance)
	}
	slices.SortFunc(list, func(a, b sdk.Instance) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

func (s *store) save() error {
	if s.path == "" {
		return nil
	}
	return errors.Join(write(s.path, s.all), write(snapshotsPath(s.path), s.snapshots))
}

func write(path string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	// Renamed into place, since a crash may come at any time.
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
