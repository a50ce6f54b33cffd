package frontdoortest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Contexts are interpreters that keep nothing but their names, which are context-1 and so
// on, in the order in which they are made. It is usable as it is.
type Contexts struct {
	mu   sync.Mutex
	list []sdk.CodeContext
	made int
}

var _ sdk.Contexts = (*Contexts)(nil)

// Adopt adds some that nobody asked for.
func (c *Contexts) Adopt(contexts ...sdk.CodeContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, contexts...)
}

// Language is that of a context, and whether there is one of that ID.
func (c *Contexts) Language(id string) (language sdk.Language, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.list {
		if one.ID == id {
			return one.Language, true
		}
	}
	return "", false
}

// CreateContext implements sdk.Contexts.
func (c *Contexts) CreateContext(_ context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	made := sdk.CodeContext{ID: fmt.Sprintf("context-%d", c.made), Language: req.Language, Cwd: req.Cwd}
	c.list = append(c.list, made)
	return made, nil
}

// ListContexts implements sdk.Contexts.
func (c *Contexts) ListContexts(context.Context, string) ([]sdk.CodeContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list), nil
}

// RestartContext implements sdk.Contexts.
func (c *Contexts) RestartContext(context.Context, string, string) error { return nil }

// DeleteContext implements sdk.Contexts.
func (c *Contexts) DeleteContext(_ context.Context, _, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(one sdk.CodeContext) bool { return one.ID == id })
	return nil
}
