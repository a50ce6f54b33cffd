package provider

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var _ sdk.Contexts = (*Provider)(nil)

// codeContext is a kernel of the code interpreter. What the service does not know of it
// is written down (savedContext).
type codeContext struct {
	sb    *sandbox
	state sdk.CodeContext // Busy apart, which turn says
	env   map[string]string
	// turn holds a token while code runs.
	turn chan struct{}
	// gone ends when it is deleted, or with its sandbox.
	gone context.Context //nolint:containedctx // the lifetime of the context
	end  context.CancelFunc

	mu sync.Mutex
	// fresh says that the kernel needs its environment and its directory before the next
	// execution.
	fresh bool
	// astray says that code may run in the kernel that nobody listens to.
	astray bool
	// pid of what runs the cells; 0 if not known.
	pid int
}

func (sb *sandbox) interpreter() *interpreter.Client {
	return interpreter.New(sb.endpoint(interpreter.Port, sb.p.kernels))
}

// inContexts are the languages that contexts are made for.
var inContexts = []sdk.Language{sdk.Python, sdk.JavaScript, sdk.TypeScript, sdk.R, sdk.Java}

// CreateContext implements sdk.Contexts.
func (p *Provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	switch {
	case !slices.Contains(inContexts, req.Language):
		return sdk.CodeContext{}, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "there are no contexts in %.50q", string(req.Language))
	case len(req.Env) > 0 && !cell.Supports(req.Language):
		return sdk.CodeContext{}, sdk.FieldErrorf(sdk.CodeNotSupported, "env", "contexts in %s have no environment of their own", req.Language)
	}
	if err := sb.restoreContexts(ctx); err != nil {
		return sdk.CodeContext{}, err
	}
	c, err := sb.newContext(ctx, req)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	sb.mu.Lock()
	sb.contexts = append(sb.contexts, c)
	sb.mu.Unlock()
	sb.saveContexts()
	return c.state, nil
}

// newContext starts a kernel.
func (sb *sandbox) newContext(ctx context.Context, req sdk.CreateContextRequest) (*codeContext, error) {
	cwd := req.Cwd
	if cwd == "" {
		cwd = remote.Workspace
	}
	sb.memoryKills(ctx)
	id, err := sb.startKernel(ctx, string(req.Language), absolute(cwd))
	if err != nil {
		return nil, err
	}
	return sb.contextOf(sdk.CodeContext{ID: id, Language: req.Language, Cwd: absolute(cwd), CreatedAt: time.Now()}, req.Env, true), nil
}

// contextOf is the handle of a kernel.
func (sb *sandbox) contextOf(state sdk.CodeContext, env map[string]string, fresh bool) *codeContext {
	c := &codeContext{sb: sb, state: state, env: env, turn: make(chan struct{}, 1), fresh: fresh}
	c.gone, c.end = context.WithCancel(sb.gone)
	return c
}

// startKernel waits a little for a code interpreter that is not up yet.
func (sb *sandbox) startKernel(ctx context.Context, language, cwd string) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, sb.p.patience.ready)
	defer cancel()
	failed := 0
	id, err := retry.Do(waiting, retry.Policy{Attempts: 100, Min: 100 * time.Millisecond, Max: time.Second}, func(context.Context) (string, error) {
		id, err := sb.interpreter().CreateContext(ctx, language, cwd)
		if isClosedPort(err) || remote.NotSent(err) {
			return id, retry.Again(err, 0)
		}
		// The server says so as well when Jupyter is down, or slow.
		if statusOf(err) == http.StatusInternalServerError && !lacksKernel(err) && failed == 0 {
			failed++
			return id, retry.Again(err, 0)
		}
		return id, err
	})
	switch {
	case err == nil:
		return id, nil
	case isClosedPort(err):
		return "", sdk.Errorf(sdk.CodeNotSupported, "the template of this instance has no code interpreter: %w", err)
	case lacksKernel(err):
		return "", sb.p.redact.Error(sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the code interpreter has no kernel for %s: %w", language, err))
	}
	return "", sb.explain(ctx, err)
}

// lacksKernel says that the code interpreter has no kernel for a language.
func lacksKernel(err error) bool {
	e, ok := errors.AsType[*e2bhttp.Error](err)
	return ok && e.Status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.Message), "kernel is not available")
}

// lacksContext says that the code interpreter has no such context. Its answer is text that
// names it; that of a balancer is another.
func lacksContext(err error, id string) bool {
	e, ok := errors.AsType[*e2bhttp.Error](err)
	return ok && e.Status == http.StatusNotFound && strings.Contains(e.Message, id)
}

// ListContexts implements sdk.Contexts.
func (p *Provider) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	if err := sb.restoreContexts(ctx); err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	var all []sdk.CodeContext
	for _, c := range sb.contexts {
		state := c.state
		state.Busy = len(c.turn) > 0
		all = append(all, state)
	}
	return all, nil
}

func errNoContext() error {
	return sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
}

// context finds a context of an instance.
func (sb *sandbox) context(ctx context.Context, id string) (*codeContext, error) {
	if err := sb.restoreContexts(ctx); err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for _, c := range sb.contexts {
		if c.state.ID == id {
			return c, nil
		}
	}
	return nil, errNoContext()
}

// RestartContext implements sdk.Contexts.
func (p *Provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	c, err := sb.context(ctx, contextID)
	if err != nil {
		return err
	}
	return c.restart(ctx)
}

// restart ends what runs in a kernel and forgets its state.
func (c *codeContext) restart(ctx context.Context) error {
	err := c.sb.interpreter().RestartContext(ctx, c.state.ID)
	if lacksContext(err, c.state.ID) {
		c.drop()
		return errNoContext()
	}
	c.mu.Lock()
	c.astray = err != nil
	c.mu.Unlock()
	if err != nil {
		return c.sb.explain(ctx, err)
	}
	c.furnished(false)
	return nil
}

// furnished notes whether the kernel has its environment.
func (c *codeContext) furnished(it bool) {
	c.mu.Lock()
	c.fresh = !it
	if !it {
		c.pid = 0 // it is another kernel
	}
	c.mu.Unlock()
	c.sb.saveContexts()
}

// DeleteContext implements sdk.Contexts.
func (p *Provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	c, err := sb.context(ctx, contextID)
	switch {
	case sdk.CodeOf(err) == sdk.CodeNotFound && ctx.Err() == nil && sb.gone.Err() == nil:
		return nil // it is gone already
	case err != nil:
		return err
	}
	return c.delete(ctx)
}

func (c *codeContext) delete(ctx context.Context) error {
	c.end()
	err := c.sb.interpreter().DeleteContext(ctx, c.state.ID)
	if err != nil && !lacksContext(err, c.state.ID) {
		return c.sb.explain(ctx, err)
	}
	c.drop()
	return nil
}

// drop forgets one that the code interpreter does not have any more: it was
// deleted, or the code interpreter was started again.
func (c *codeContext) drop() {
	c.end()
	c.sb.mu.Lock()
	c.sb.contexts = slices.DeleteFunc(c.sb.contexts, func(other *codeContext) bool { return other == c })
	c.sb.mu.Unlock()
	c.sb.saveContexts()
}

// takeTurn waits until no other code runs in the context.
func (c *codeContext) takeTurn(ctx context.Context) (release func(), err error) {
	timer := time.NewTimer(sdk.MaxContextWait)
	defer timer.Stop()
	select {
	case c.turn <- struct{}{}:
		return func() { <-c.turn }, nil
	case <-c.gone.Done():
		if c.sb.gone.Err() != nil {
			return nil, errNoInstance
		}
		return nil, errNoContext()
	case <-timer.C:
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "the context was busy for %v", sdk.MaxContextWait)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// furnish gives a new kernel what it does not have by itself, or not whole: the
// environment of the instance and of the context, and, for one that was started again,
// its directory.
func (c *codeContext) furnish(ctx context.Context) error {
	c.mu.Lock()
	fresh, astray := c.fresh, c.astray
	c.mu.Unlock()
	if astray {
		if err := c.restart(ctx); err != nil {
			return err
		}
		fresh = true
	}
	if !fresh {
		return nil
	}
	language := c.state.Language
	ignored := func(kernel.Event) error { return nil }
	if err := c.sb.interpreter().Execute(ctx, c.state.ID, cell.First(language), ignored); err != nil {
		return err
	}
	global, err := c.sb.globalEnv(ctx)
	if err != nil {
		return err
	}
	env := maps.Clone(global)
	maps.Copy(env, c.env)
	err = c.silently(ctx, cell.Furnish(language, env, c.state.Cwd, c.endFile()))
	if failed, ok := errors.AsType[*kernel.CellError](err); ok && !cell.Supports(language) {
		// What the code interpreter has pasted has to do.
		c.sb.p.logger.Warn("a kernel has not got its environment whole", "sandbox", c.sb.id, "language", language, "error", c.sb.p.redact.Error(failed))
		err = nil
	}
	if err != nil {
		return err
	}
	c.furnished(true)
	return nil
}

// endFile is where a kernel writes how it ends.
func (c *codeContext) endFile() string { return "/tmp/.sandbox-kernel-" + c.state.ID }

// silently runs a cell of our own.
func (c *codeContext) silently(ctx context.Context, code string) error {
	return c.sb.interpreter().Execute(ctx, c.state.ID, code, kernel.Quietly)
}

// globalEnv is the environment that the sandbox was made with. It never changes.
func (sb *sandbox) globalEnv(ctx context.Context) (map[string]string, error) {
	sb.mu.Lock()
	env := sb.env
	sb.mu.Unlock()
	if env != nil {
		return env, nil
	}
	env, err := ask(ctx, sb, func(c *envd.Client) (map[string]string, error) { return c.Envs(ctx) })
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	sb.env = env
	sb.mu.Unlock()
	return env, nil
}
