package provider

import (
	"slices"
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
	// KeepUntil is when nobody keeps the service from ending it any more; zero for
	// never.
	KeepUntil time.Time `json:"keep_until,omitzero"`
	// Paused says that the sandbox is frozen, or about to be.
	Paused bool `json:"paused,omitempty"`
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

// changeContexts changes the contexts of a record, if it is still there.
func (p *Provider) changeContexts(id string, change func([]savedContext) []savedContext) error {
	return p.records.Change(id, func(one record) record {
		one.Contexts = change(slices.Clone(one.Contexts))
		return one
	})
}
