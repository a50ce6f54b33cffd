package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// store keeps the instances, in a file if it has one.
type store struct {
	mu   sync.Mutex
	path string
	all  map[string]stored
}

type stored struct {
	Instance sdk.Instance
	Env      map[string]string
	Key      string
}

func newStore(path string) *store {
	s := &store{path: path, all: map[string]stored{}}
	if path == "" {
		return s
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	if err == nil {
		err = json.Unmarshal(text, &s.all)
	}
	if err != nil {
		panic(err)
	}
	return s
}

func (s *store) create(req sdk.CreateRequest) (sdk.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.all {
		if req.IdempotencyKey != "" && i.Key == req.IdempotencyKey {
			return i.Instance, nil
		}
	}
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
	s.all[instance.ID] = stored{Instance: instance, Env: req.Env, Key: req.IdempotencyKey}
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
	text, err := json.Marshal(s.all)
	if err != nil {
		return err
	}
	// Renamed into place, since a crash may come at any time.
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}
