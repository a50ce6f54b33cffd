// Package contexts keeps the books of the contexts in the sandboxes of a provider: which
// there are, whose turn it is in each, and what of them outlives this process. Starting,
// restarting and ending their kernels is the provider's; running code in one is that of
// package kernel.
package contexts

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Saved is what of a context outlives this process.
type Saved struct {
	ID string `json:"id"`
	// Kernel is the service's name for the kernel that serves it now, where that is another.
	Kernel    string            `json:"kernel,omitempty"`
	Language  sdk.Language      `json:"language"`
	Cwd       string            `json:"cwd"`
	Env       map[string]string `json:"env,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	// Fresh says that the kernel lacks its environment and its directory yet.
	Fresh bool `json:"fresh,omitempty"`
	// Kills is how many processes were killed for memory before.
	Kills int64 `json:"kills,omitempty"`
}

// Context is one that this process knows; a provider embeds it in a type of its own.
type Context struct {
	// ID and Language never change.
	ID       string
	Language sdk.Language

	instance string
	turn     chan struct{} // holds a token while code runs
	// gone ends with the context, and the kernel that serves it with that or before.
	gone context.Context //nolint:containedctx // the lifetime of the context
	end  context.CancelFunc

	mu     sync.Mutex
	saved  Saved
	kernel context.Context //nolint:containedctx // the lifetime of the kernel
	renew  context.CancelFunc
}

// New makes the context of an instance that was saved so, for a life at the most. It is in
// no book yet.
func New(life context.Context, instanceID string, saved Saved) *Context {
	c := &Context{ID: saved.ID, Language: saved.Language, instance: instanceID, turn: make(chan struct{}, 1), saved: saved}
	c.gone, c.end = context.WithCancel(life)
	c.kernel, c.renew = context.WithCancel(c.gone)
	return c
}

// Base is the part that a Book knows.
func (c *Context) Base() *Context { return c }

// Saved is what is to outlive this process.
func (c *Context) Saved() Saved {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saved
}

// Cwd is the directory, as the contract has it.
func (c *Context) Cwd() string { return c.Saved().Cwd }

// Gone ends with the context, whoever has ended it.
func (c *Context) Gone() context.Context { return c.gone }

// End tells code that runs that the context is gone.
func (c *Context) End() { c.end() }

// Kernel ends with the kernel that serves the context now.
func (c *Context) Kernel() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kernel
}

// Renew tells code that runs that its kernel is gone.
func (c *Context) Renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew()
	c.kernel, c.renew = context.WithCancel(c.gone)
}

// State is a context in the broker's words.
func State(c Kernel) sdk.CodeContext {
	base := c.Base()
	return sdk.CodeContext{ID: base.ID, Language: base.Language, Cwd: c.Cwd(), CreatedAt: base.Saved().CreatedAt, Busy: len(base.turn) > 0}
}

// Kernel is a context with what a provider does with its kernel.
type Kernel interface {
	Base() *Context
	Cwd() string
	// Restart ends what runs in the kernel, and forgets its state.
	Restart(ctx context.Context) error
	// Delete ends the kernel, and drops the context.
	Delete(ctx context.Context) error
}

// Service is what a provider does with the contexts of its sandboxes. B is a sandbox, C a
// context of the provider's own type.
type Service[B any, C Kernel] interface {
	// Box finds the sandbox of an instance.
	Box(ctx context.Context, instanceID string) (B, error)
	// Lost says why nothing can be done in a sandbox that was found any more; nil if it can.
	Lost(box B) error
	// Load returns those that an earlier process has made, and that are there still.
	Load(ctx context.Context, box B) ([]Saved, error)
	// Save writes down the contexts of an instance.
	Save(instanceID string, all []Saved) error
	// Context is one that was saved so.
	Context(box B, saved Saved) C
}

// Book knows the contexts of all instances. It has the methods of sdk.Contexts but for
// CreateContext; a provider embeds it.
type Book[B any, C Kernel] struct {
	service Service[B, C]
	loading keylock.Locks[string]

	mu  sync.Mutex
	all map[string][]C // by instance, once they were loaded

	saving sync.Mutex
}

// NewBook makes a Book.
func NewBook[B any, C Kernel](service Service[B, C]) *Book[B, C] {
	return &Book[B, C]{service: service, all: map[string][]C{}}
}

// Contexts are those of a sandbox.
func (b *Book[B, C]) Contexts(ctx context.Context, instanceID string, box B) ([]C, error) {
	release, err := b.loading.Take(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	defer release()
	b.mu.Lock()
	all, known := b.all[instanceID]
	all = slices.Clone(all)
	b.mu.Unlock()
	if known {
		return all, nil
	}
	saved, err := b.service.Load(ctx, box)
	if err != nil {
		return nil, err
	}
	for _, s := range saved {
		all = append(all, b.service.Context(box, s))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if lost := b.service.Lost(box); lost != nil { // else nobody would forget them
		return nil, lost
	}
	b.all[instanceID] = all
	return slices.Clone(all), nil
}

// Add enters a context that is new, if those of its instance were loaded. One that cannot
// be written down is not entered.
func (b *Book[B, C]) Add(c C) error {
	return b.enter(c.Base().instance, func(all []C) []C { return append(all, c) })
}

// Drop ends a context and forgets it. While it cannot be written down that it is gone, it
// is there.
func (b *Book[B, C]) Drop(c C) error {
	base := c.Base()
	err := b.enter(base.instance, func(all []C) []C {
		return slices.DeleteFunc(all, func(other C) bool { return other.Base() == base })
	})
	if err == nil {
		base.end()
	}
	return err
}

// enter changes which contexts an instance has, when that was written down.
func (b *Book[B, C]) enter(instanceID string, change func([]C) []C) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	all, known := b.all[instanceID]
	b.mu.Unlock()
	if !known {
		return nil
	}
	all = change(slices.Clone(all))
	if err := b.write(instanceID, all); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.all[instanceID]; known { // else it was forgotten meanwhile
		b.all[instanceID] = all
	}
	return nil
}

// Change changes what is saved of a context.
func (b *Book[B, C]) Change(c C, change func(*Saved)) error {
	base := c.Base()
	base.mu.Lock()
	change(&base.saved)
	base.mu.Unlock()
	return b.enter(base.instance, func(all []C) []C { return all })
}

// write writes down the contexts of an instance. The caller holds saving.
func (b *Book[B, C]) write(instanceID string, all []C) error {
	saved := make([]Saved, len(all))
	for i, c := range all {
		saved[i] = c.Base().Saved()
	}
	return b.service.Save(instanceID, saved)
}

// Forget ends the contexts of an instance that is gone, as far as this process goes.
func (b *Book[B, C]) Forget(instanceID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all[instanceID] {
		c.Base().end()
	}
	delete(b.all, instanceID)
}

// Find finds a context of a sandbox.
func (b *Book[B, C]) Find(ctx context.Context, instanceID, contextID string, box B) (c C, err error) {
	all, err := b.Contexts(ctx, instanceID, box)
	if err != nil {
		return c, err
	}
	if i := slices.IndexFunc(all, func(c C) bool { return c.Base().ID == contextID }); i >= 0 {
		return all[i], nil
	}
	return c, b.missing(box)
}

// ErrNoContext says that there is no such context.
func ErrNoContext() error {
	return sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
}

func (b *Book[B, C]) missing(box B) error {
	if lost := b.service.Lost(box); lost != nil {
		return lost
	}
	return ErrNoContext()
}

// Take waits until no other code runs in the context of an execution.
func (b *Book[B, C]) Take(ctx context.Context, box B, c C, language sdk.Language) (release func(), err error) {
	base := c.Base()
	if language != "" && language != base.Language {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "the context is one of %s", base.Language)
	}
	timer := time.NewTimer(sdk.MaxContextWait)
	defer timer.Stop()
	select {
	case base.turn <- struct{}{}:
		if base.gone.Err() == nil {
			return func() { <-base.turn }, nil
		}
		<-base.turn
		return nil, b.missing(box)
	case <-base.gone.Done():
		return nil, b.missing(box)
	case <-timer.C:
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "the context was busy for %v", sdk.MaxContextWait)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ListContexts implements sdk.Contexts.
func (b *Book[B, C]) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	box, err := b.service.Box(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	found, err := b.Contexts(ctx, instanceID, box)
	var all []sdk.CodeContext
	for _, c := range found {
		all = append(all, State(c))
	}
	return all, err
}

// at finds a context by the names that the broker gives. lost says that it is not there,
// and its sandbox is.
func (b *Book[B, C]) at(ctx context.Context, instanceID, contextID string) (c C, lost bool, err error) {
	box, err := b.service.Box(ctx, instanceID)
	if err != nil {
		return c, false, err
	}
	c, err = b.Find(ctx, instanceID, contextID, box)
	return c, sdk.CodeOf(err) == sdk.CodeNotFound && ctx.Err() == nil && b.service.Lost(box) == nil, err
}

// RestartContext implements sdk.Contexts.
func (b *Book[B, C]) RestartContext(ctx context.Context, instanceID, contextID string) error {
	c, _, err := b.at(ctx, instanceID, contextID)
	if err != nil {
		return err
	}
	return c.Restart(ctx)
}

// DeleteContext implements sdk.Contexts. One that is gone already is a success.
func (b *Book[B, C]) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	c, lost, err := b.at(ctx, instanceID, contextID)
	switch {
	case lost:
		return nil
	case err != nil:
		return err
	}
	return c.Delete(ctx)
}
