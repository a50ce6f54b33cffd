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
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var _ sdk.Contexts = (*Provider)(nil)

// codeContext is a kernel of the code interpreter.
type codeContext struct {
	*contexts.Context
	sb *sandbox

	mu sync.Mutex
	// astray says that code may run in the kernel that nobody listens to.
	astray bool
	// pid of what runs the cells; 0 if not known.
	pid int
}

// service is a contexts.Service. The code interpreter lists its kernels, but knows nothing
// of whose they are and of what they were made with, which is in the records.
type service struct{ *Provider }

// Box implements contexts.Service.
func (s service) Box(ctx context.Context, instanceID string) (*sandbox, error) {
	return s.lookup(ctx, instanceID)
}

// Lost implements contexts.Service.
func (service) Lost(sb *sandbox) error {
	if sb.gone.Err() != nil {
		return errNoInstance
	}
	return nil
}

// Context implements contexts.Service.
func (service) Context(sb *sandbox, saved contexts.Saved) *codeContext {
	return &codeContext{Context: contexts.New(sb.gone, sb.id, saved), sb: sb}
}

// Load implements contexts.Service: what is written down and the code interpreter still has.
func (s service) Load(ctx context.Context, sb *sandbox) ([]contexts.Saved, error) {
	saved, _ := s.contexts.Get(sb.id)
	if len(saved) == 0 {
		return nil, nil
	}
	kernels, err := sb.interpreter().Contexts(ctx)
	if err != nil {
		return nil, sb.explain(ctx, err)
	}
	sb.memoryKills(ctx)
	return slices.DeleteFunc(slices.Clone(saved), func(c contexts.Saved) bool { return !slices.Contains(kernels, c.ID) }), nil
}

// Save implements contexts.Service. If it fails, a later process will not know the
// contexts; for this one nothing is lost.
func (s service) Save(id string, all []contexts.Saved) error {
	if _, saved := s.contexts.Get(id); !saved && len(all) == 0 {
		return nil
	}
	if err := s.contexts.Put(id, all); err != nil {
		s.logger.Warn("contexts could not be written down; they are forgotten when the plugin restarts", "sandbox", id, "error", err)
	}
	s.mu.Lock()
	_, known := s.sandboxes[id]
	s.mu.Unlock()
	if !known { // meanwhile
		s.forgetContexts(id)
	}
	return nil
}

// forgetContexts is for a sandbox that is gone.
func (p *Provider) forgetContexts(id string) {
	if err := p.contexts.Remove(id); err != nil {
		p.logger.Warn("what was written down about a sandbox that is gone is left", "sandbox", id, "error", err)
	}
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
	if _, err := p.Contexts(ctx, sb.id, sb); err != nil {
		return sdk.CodeContext{}, err
	}
	c, err := sb.newContext(ctx, req)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	return contexts.State(c), p.Add(c)
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
	saved := contexts.Saved{ID: id, Language: req.Language, Cwd: absolute(cwd), Env: req.Env, CreatedAt: time.Now(), Fresh: true}
	return service{sb.p}.Context(sb, saved), nil
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

// Restart ends what runs in a kernel and forgets its state.
func (c *codeContext) Restart(ctx context.Context) error {
	err := c.sb.interpreter().RestartContext(ctx, c.ID)
	if lacksContext(err, c.ID) {
		return c.missing()
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
	if !it {
		c.mu.Lock()
		c.pid = 0 // it is another kernel
		c.mu.Unlock()
	}
	_ = c.sb.p.Change(c, func(s *contexts.Saved) { s.Fresh = !it }) // Save tells of failures
}

// missing forgets one that the code interpreter does not have any more: it was deleted, or
// the code interpreter was started again.
func (c *codeContext) missing() error {
	_ = c.sb.p.Drop(c) // likewise
	return contexts.ErrNoContext()
}

// Delete ends the kernel. While that fails it is listed yet, and no code runs in it.
func (c *codeContext) Delete(ctx context.Context) error {
	c.End()
	err := c.sb.interpreter().DeleteContext(ctx, c.ID)
	if err != nil && !lacksContext(err, c.ID) {
		return c.sb.explain(ctx, err)
	}
	return c.sb.p.Drop(c)
}

// furnish gives a new kernel what it does not have by itself, or not whole: the
// environment of the instance and of the context, and, for one that was started again,
// its directory.
func (c *codeContext) furnish(ctx context.Context) error {
	c.mu.Lock()
	astray := c.astray
	c.mu.Unlock()
	if astray {
		if err := c.Restart(ctx); err != nil {
			return err
		}
	}
	saved, language := c.Saved(), c.Language
	if !saved.Fresh {
		return nil
	}
	ignored := func(kernel.Event) error { return nil }
	if err := c.sb.interpreter().Execute(ctx, c.ID, cell.First(language), ignored); err != nil {
		return err
	}
	global, err := c.sb.globalEnv(ctx)
	if err != nil {
		return err
	}
	env := maps.Clone(global)
	maps.Copy(env, saved.Env)
	err = c.silently(ctx, cell.Furnish(language, env, saved.Cwd, c.endFile()))
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
func (c *codeContext) endFile() string { return "/tmp/.sandbox-kernel-" + c.ID }

// silently runs a cell of our own.
func (c *codeContext) silently(ctx context.Context, code string) error {
	return c.sb.interpreter().Execute(ctx, c.ID, code, kernel.Quietly)
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
