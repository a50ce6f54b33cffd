package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Contexts = (*Provider)(nil)

// codeContext is a context, whose interpreter may be replaced.
type codeContext struct {
	instance *instance
	env      map[string]string
	turn     chan struct{} // holds a token while code runs
	gone     chan struct{} // closed when it is deleted

	mu          sync.Mutex
	state       sdk.CodeContext
	interpreter *interpreter // nil until it is needed
	// variables, if not nil, are what its first interpreter begins with.
	variables []byte
}

// CreateContext implements sdk.Contexts.
func (p *Provider) CreateContext(_ context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	if req.Language != sdk.Python {
		return sdk.CodeContext{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "contexts are for python")
	}
	if req.Cwd == "" {
		req.Cwd = "/workspace"
	}
	c := &codeContext{
		instance: i, env: req.Env, turn: make(chan struct{}, 1), gone: make(chan struct{}),
		state: sdk.CodeContext{ID: "ctx" + newID(), Language: req.Language, Cwd: req.Cwd, CreatedAt: time.Now()},
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.contexts = append(i.contexts, c)
	return c.state, nil
}

// directory is where code of the context starts.
func (c *codeContext) directory() string {
	if filepath.IsAbs(c.state.Cwd) {
		return c.instance.place(c.state.Cwd)
	}
	return filepath.Join(c.instance.workspace(), c.state.Cwd)
}

func (i *instance) findContext(contextID string) (*codeContext, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.contexts {
		if c.state.ID == contextID {
			return c, nil
		}
	}
	return nil, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
}

// ListContexts implements sdk.Contexts.
func (p *Provider) ListContexts(_ context.Context, instanceID string) ([]sdk.CodeContext, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []sdk.CodeContext
	for _, c := range i.contexts {
		state := c.state
		state.Busy = len(c.turn) > 0
		list = append(list, state)
	}
	return list, nil
}

// RestartContext implements sdk.Contexts.
func (p *Provider) RestartContext(_ context.Context, instanceID, contextID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	c, err := i.findContext(contextID)
	if err != nil {
		return err
	}
	c.drop()
	return nil
}

// DeleteContext implements sdk.Contexts.
func (p *Provider) DeleteContext(_ context.Context, instanceID, contextID string) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	c, err := i.findContext(contextID)
	if err != nil {
		return nil //nolint:nilerr // which is what was asked for
	}
	i.mu.Lock()
	i.contexts = slices.DeleteFunc(i.contexts, func(other *codeContext) bool { return other == c })
	i.mu.Unlock()
	close(c.gone)
	c.drop()
	return nil
}

// drop ends the interpreter; the next execution gets a new one.
func (c *codeContext) drop() {
	c.mu.Lock()
	old := c.interpreter
	c.interpreter, c.variables = nil, nil
	c.mu.Unlock()
	if old != nil {
		old.run.end(errDestroyed)
		<-old.dead
	}
}

// current starts the interpreter if there is none.
func (c *codeContext) current() (*interpreter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interpreter != nil {
		select {
		case <-c.interpreter.dead:
		default:
			return c.interpreter, nil
		}
	}
	var err error
	if c.interpreter, err = c.start(); err != nil || c.variables == nil {
		return c.interpreter, err
	}
	path := filepath.Join(c.instance.dir, variablesFile(c.state.ID))
	err = os.WriteFile(path, c.variables, 0o600)
	c.variables = nil
	if err == nil {
		err = c.interpreter.ask(c.instance.life, request{Take: path})
	}
	return c.interpreter, errors.Join(err, os.Remove(path))
}

// executeInContext waits for its turn and runs code.
func (i *instance) executeInContext(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	c, err := i.findContext(req.ContextID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-c.gone:
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
	case <-ctx.Done():
		return sdk.ExecuteResult{}, ctx.Err()
	}
	interpreter, err := c.current()
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	return interpreter.execute(ctx, req, out)
}
