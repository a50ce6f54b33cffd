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
	// Those of front doors alone.
	opHealth   operation = "health"   // of the broker, which is no refusal if it is bad
	opCommand  operation = "command"  // waits for its end
	opStart    operation = "start"    // a command that nobody waits for
	opFollow   operation = "follow"   // look at such a command
	opStop     operation = "stop"     // such a command
	opConnect  operation = "connect"  // where a connection is more than a request
	opWrite    operation = "write"    // a file, once
	opRead     operation = "read"     // it
	opRenew    operation = "renew"    // to a later time
	opEndpoint operation = "endpoint" // where a port is, and what opens it
	opPause    operation = "pause"
	opResume   operation = "resume"
	// Those of keepers, and of the administrator.
	opSnapshot       operation = "snapshot"
	opSnapshots      operation = "snapshots" // a list
	opDrop           operation = "drop"      // a snapshot
	opTell           operation = "tell"      // what a copy holds
	opFork           operation = "fork"
	opLeft           operation = "left"  // what there is of a fork that has no answer
	opAllot          operation = "allot" // a volume
	opVolumes        operation = "volumes"
	opPut            operation = "put" // a file into a volume
	opGet            operation = "get" // it
	opFree           operation = "free"
	opPutTemplate    operation = "put template"
	opBuild          operation = "build"
	opRemoveTemplate operation = "remove template"
)

// ofKeepers are those that change what is kept, and what shows it.
var ofKeepers = []operation{opSnapshot, opDrop, opTell, opFork, opLeft, opAllot, opPut, opGet, opFree, opPutTemplate, opBuild, opRemoveTemplate}

// event is one request and what became of it.
type event struct {
	Client    int
	Operation operation
	// Door is the front door that was used; empty for the broker's own API. As long as
	// the history is written, instances have the door's names for them (named).
	Door     string `json:",omitempty"`
	Tenant   string
	Session  string `json:",omitempty"`
	Key      string `json:",omitempty"`
	Named    string `json:",omitempty"` // the provider
	Instance string `json:",omitempty"` // that was asked for
	Token    string `json:",omitempty"` // of the code
	// Patience is after how long the client goes away; 0 for as long as it takes.
	Patience time.Duration `json:",omitempty"`
	Began    time.Time
	Ended    time.Time
	Status   int    `json:",omitempty"`
	Code     string `json:",omitempty"` // of a problem
	Detail   string `json:",omitempty"`
	// Told is the instance that the answer names.
	Told string `json:",omitempty"`
	// Kept is the snapshot, the volume or the template that was asked for, or that the answer
	// names, or the fork.
	Kept string `json:",omitempty"`
	// Provider that served, why it did, and the codes of those that could not.
	Provider string   `json:",omitempty"`
	Reason   string   `json:",omitempty"`
	PlacedBy string   `json:",omitempty"` // where the session was there already
	Tried    []string `json:",omitempty"`

	// Command and Path are what was asked for, or the command that the answer names. Path
	// of a creation is what there is in the instance from the beginning.
	Command string `json:",omitempty"`
	Path    string `json:",omitempty"`
	// Printed is what code has printed, or the content of a file.
	Printed string `json:",omitempty"`
	// Expires is the end that was asked for, or the one that the answer names if Told.
	Expires time.Time `json:",omitzero"`
	// Naps says of a creation that the instance is to be paused at its end, again and again.
	Naps bool `json:",omitempty"`
	// Paused says that the answer says so.
	Paused bool `json:",omitempty"`
	// Way is the address of a port with what opens it.
	Way string `json:",omitempty"`
	// Outcome is what an answer whose status is a success says went wrong.
	Outcome string `json:",omitempty"`

	List  []string `json:",omitempty"`
	Error string   `json:",omitempty"`
}

// answered says that there was an answer whose status is a success.
func (e event) answered() bool { return e.Error == "" && e.Status >= 200 && e.Status < 300 }

// acknowledged says that the answer says that it was done.
func (e event) acknowledged() bool { return e.answered() && e.Outcome == "" }

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
