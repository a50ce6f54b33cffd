// Package cloud is a small service of sandboxes over HTTP, which outlives the broker
// and the plugins that speak to it, as a cloud does. It runs no code: an execution
// is a wait, and so is a command; files are kept, in instances, in snapshots of them and in
// volumes. What it builds of an image is a name. It notes each of its own effects,
// whatever it answers, and it lies on request: it hangs, fails or breaks the connection
// before or after the effect, lists what was made only later, and what was destroyed
// still for a while. It can be down, too.
package cloud

import "time"

// Instance that there is.
type Instance struct {
	ID        string            `json:"id"`
	Labels    map[string]string `json:"labels"`
	CreatedAt time.Time         `json:"created_at"`
	// Template that it is made of, and what that was built to; empty for none that was built.
	Template string `json:"template"`
	Image    string `json:"image,omitempty"`
}

// CreateRequest is the body of POST /create.
type CreateRequest struct {
	Labels map[string]string `json:"labels"`
	// Key makes the creation idempotent, unless the cloud ignores keys.
	Key string `json:"key"`
	// Template and Image are as in Instance.
	Template string `json:"template"`
	Image    string `json:"image,omitempty"`
	// Snapshot that it goes on from; nil for none.
	Snapshot *Source `json:"snapshot,omitempty"`
	Volumes  []Mount `json:"volumes,omitempty"`
}

// ExecuteRequest is the body of POST /execute.
type ExecuteRequest struct {
	Instance  string `json:"instance"`
	Execution string `json:"execution"`
	// Code is a Program, as JSON.
	Code string `json:"code"`
	// Context that it runs in; none if empty.
	Context string `json:"context,omitempty"`
}

// Program is what the language of this cloud can say.
type Program struct {
	// Token by which the execution is found in the log.
	Token string `json:"token"`
	// MS is how long it takes, in milliseconds.
	MS int `json:"ms"`
}

// DestroyRequest is the body of POST /destroy.
type DestroyRequest struct {
	Instance string `json:"instance"`
}

// ProcessHeader is where a client says its process ID, and BrokerHeader where it says
// that of the broker that it is for.
const (
	ProcessHeader = "X-Process"
	BrokerHeader  = "X-Broker"
)
