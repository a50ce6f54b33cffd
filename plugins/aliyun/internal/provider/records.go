package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// record is what the service cannot keep for us: it takes no labels. One file for each
// sandbox lies in the state directory, made before the sandbox is.
type record struct {
	ID        string            `json:"id"`
	Template  string            `json:"template"`
	Labels    map[string]string `json:"labels"`
	Env       map[string]string `json:"env"`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at"`
	// Workspace is where code works; empty until the sandbox has been set up.
	Workspace string `json:"workspace"`
	// Contexts are kernels in it.
	Contexts []savedContext `json:"contexts,omitempty"`
}

// savedContext is a context as it outlives this process.
type savedContext struct {
	ID string `json:"id"`
	// Kernel is the service's name for the kernel that serves it now.
	Kernel    string            `json:"kernel"`
	Language  string            `json:"language"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	// Kills is how many processes were killed for memory before.
	Kills int64 `json:"kills,omitempty"`
}

type records struct {
	dir string
	mu  sync.Mutex
	all map[string]record
}

// openRecords reads the records of this directory, and takes over those of processes
// that are no more.
func openRecords(dir string, abandoned []string) (*records, error) {
	r := &records{dir: filepath.Join(dir, "instances"), all: map[string]record{}}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of records: %w", err)
	}
	for _, from := range append([]string{dir}, abandoned...) {
		from = filepath.Join(from, "instances")
		entries, err := os.ReadDir(from)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the records: %w", err)
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), ".json") {
				continue
			}
			var one record
			text, err := os.ReadFile(filepath.Join(from, entry.Name()))
			if err != nil {
				return nil, fmt.Errorf("read a record: %w", err)
			}
			if json.Unmarshal(text, &one) != nil || one.ID+".json" != entry.Name() {
				continue // it was being written when the process ended
			}
			if from == r.dir {
				r.all[one.ID] = one
			} else if err := r.put(one); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

func (r *records) get(id string) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.all[id]
	return one, ok
}

func (r *records) list() []record {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]record, 0, len(r.all))
	for _, one := range r.all {
		list = append(list, one)
	}
	return list
}

// put writes a record whole or not at all.
func (r *records) put(one record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(one)
}

// change changes the contexts of a record, if it is still there.
func (r *records) change(id string, change func([]savedContext) []savedContext) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.all[id]
	if !ok {
		return nil
	}
	one.Contexts = change(slices.Clone(one.Contexts))
	return r.write(one)
}

// write writes a record; r.mu is held.
func (r *records) write(one record) error {
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	name := filepath.Join(r.dir, one.ID+".json")
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	r.all[one.ID] = one
	return nil
}

func (r *records) remove(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.all[id]; !ok {
		return nil
	}
	delete(r.all, id)
	if err := os.Remove(filepath.Join(r.dir, id+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a record: %w", err)
	}
	return nil
}
