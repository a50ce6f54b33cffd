package chaos_test

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"
)

// operation is what a client asks for.
type operation string

const (
	opCreate  operation = "create"
	opExecute operation = "execute"
	opRun     operation = "run" // an execution in a fresh instance
	opDestroy operation = "destroy"
	opList    operation = "list"
	opUsage   operation = "usage"
	opLook    operation = "look"
	opSteal   operation = "steal" // reach for another tenant's instance
)

// event is one request and what became of it.
type event struct {
	Client    int
	Operation operation
	Tenant    string
	Session   string `json:",omitempty"`
	Key       string `json:",omitempty"`
	Named     string `json:",omitempty"` // the provider
	Instance  string `json:",omitempty"` // that was asked for
	Token     string `json:",omitempty"` // of the code
	// Patience is after how long the client goes away; 0 for as long as it takes.
	Patience time.Duration `json:",omitempty"`
	Began    time.Time
	Ended    time.Time
	Status   int    `json:",omitempty"`
	Code     string `json:",omitempty"` // of a problem
	Detail   string `json:",omitempty"`
	// Told is the instance that the answer names.
	Told string `json:",omitempty"`
	// Provider that served, why it did, and the codes of those that could not.
	Provider string   `json:",omitempty"`
	Reason   string   `json:",omitempty"`
	PlacedBy string   `json:",omitempty"` // where the session was there already
	Tried    []string `json:",omitempty"`

	List  []string `json:",omitempty"`
	Error string   `json:",omitempty"`
}

// acknowledged says that the answer says that it was done.
func (e event) acknowledged() bool { return e.Error == "" && e.Status >= 200 && e.Status < 300 }

// history is what all clients have seen.
type history struct {
	mu     sync.Mutex
	events []event
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *history) all() []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// save writes it to a file, one event a line.
func (h *history) save(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	for _, e := range h.all() {
		if err := encoder.Encode(e); err != nil {
			return err
		}
	}
	return file.Close()
}
