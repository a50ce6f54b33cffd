// Package cells has the contexts of sandboxes whose service has no kernels, or none that
// show a value, speak JavaScript or outlive a connection. An interpreter of ours is a
// command with a place (package place); each cell has a place of its own, where its output
// is seen while it runs. All of it lies in the sandbox, so that another process of the
// plugin goes on with it.
package cells

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/artifacts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/returned"
)

var (
	//go:embed kernel.py
	python []byte
	//go:embed kernel.js
	javaScript []byte
)

// keptOutput is what an interpreter keeps of what it prints outside of cells, in bytes.
const keptOutput = 64 << 10

// interpreter is the program of a language, without its arguments.
func interpreter(language sdk.Language) (argv []string, source, suffix string, ok bool) {
	switch language {
	case sdk.Python:
		return []string{"python3", "{}"}, string(slices.Concat(returned.Python(), []byte("\n\n"), python)), ".py", true
	case sdk.JavaScript:
		return []string{"node", "{}"}, string(slices.Concat(returned.JavaScript(), []byte("\n"), javaScript)), ".js", true
	default:
		return nil, "", "", false
	}
}

// Service is what a provider knows of its sandboxes.
type Service interface {
	place.Service
	// Lost says why nothing can be done in a sandbox that was found any more; nil if it can.
	Lost(box place.Box) error
	// Load returns the contexts of a sandbox that an earlier process has made.
	Load(ctx context.Context, box place.Box) ([]contexts.Saved, error)
	// Save writes down the contexts of an instance.
	Save(instanceID string, all []contexts.Saved) error
	// Files finds what code in a sandbox has made.
	Files(box place.Box) artifacts.Finder
}

// Contexts implements sdk.Contexts; a provider embeds it.
type Contexts struct {
	*contexts.Book[place.Box, *Context]
	service  Service
	logger   hclog.Logger
	changing keylock.Locks[string]
}

var _ sdk.Contexts = (*Contexts)(nil)

// New makes Contexts.
func New(service Service, logger hclog.Logger) *Contexts {
	c := &Contexts{service: service, logger: logger}
	c.Book = contexts.NewBook(books{service, c})
	return c
}

// books is a contexts.Service.
type books struct {
	Service
	all *Contexts
}

// Context implements contexts.Service.
func (b books) Context(box place.Box, saved contexts.Saved) *Context {
	return &Context{contexts.New(context.Background(), box.ID, saved), b.all, box}
}

// Context is one that an interpreter of ours serves.
type Context struct {
	*contexts.Context
	all *Contexts
	box place.Box
}

// Cwd implements contexts.Kernel.
func (c *Context) Cwd() string { return c.box.Shown(c.Saved().Cwd) }

// CreateContext implements sdk.Contexts.
func (all *Contexts) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	box, err := all.service.Box(ctx, req.InstanceID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	if _, _, _, ok := interpreter(req.Language); !ok {
		return sdk.CodeContext{}, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "there are no contexts in %.50q", string(req.Language))
	}
	if _, err := all.Contexts(ctx, box.ID, box); err != nil {
		return sdk.CodeContext{}, err
	}
	saved := contexts.Saved{ID: remote.NewName(), Language: req.Language, Cwd: box.Absolute(req.Cwd), Env: req.Env, CreatedAt: time.Now().UTC()}
	if saved.Kernel, err = all.start(ctx, box, saved); err != nil {
		return sdk.CodeContext{}, err
	}
	c := books{all.service, all}.Context(box, saved)
	if err := all.Add(c); err != nil {
		all.end(ctx, box, saved.Kernel)
		return sdk.CodeContext{}, err
	}
	return contexts.State(c), nil
}

// start starts an interpreter, and returns its name.
func (all *Contexts) start(ctx context.Context, box place.Box, s contexts.Saved) (string, error) {
	argv, source, suffix, _ := interpreter(s.Language)
	run := place.Program{
		ID: remote.NewName(), Argv: argv, Source: source, Suffix: suffix, Dir: s.Cwd, Grace: sdk.InterruptGrace,
		Env:  box.Environment(map[string]string{"MPLBACKEND": "Agg"}, s.Env),
		Keep: keptOutput, Stdin: true, Hidden: true,
	}
	state, err := place.Ask(ctx, all.service, func(ctx context.Context) (place.State, error) { return place.Command(ctx, box, run) })
	if err == nil && state.Done != nil && state.Done.Error != "" {
		return "", sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the sandbox has no interpreter for contexts in %s: %.200s", s.Language, state.Done.Error)
	}
	if err != nil {
		all.end(ctx, box, run.ID)
		return "", all.service.Explain(ctx, err, "start an interpreter")
	}
	return run.ID, nil
}

// cleanUp bounds what is done after a caller has gone.
const cleanUp = 10 * time.Second

// end ends an interpreter with all that it has started, whoever waits.
func (all *Contexts) end(ctx context.Context, box place.Box, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := all.cancel(ctx, box, name); err != nil {
		all.logger.Warn("an interpreter may be left in a sandbox", "sandbox", box.ID, "error", all.service.Explain(ctx, err, "end an interpreter"))
	}
}

// cancel ends an interpreter. One that is not there is a success.
func (all *Contexts) cancel(ctx context.Context, box place.Box, name string) error {
	_, err := place.Ask(ctx, all.service, func(ctx context.Context) (struct{}, error) { return struct{}{}, place.Cancel(ctx, box, name) })
	if errors.Is(err, place.ErrUnknown) {
		return nil
	}
	return err
}

// Restart implements contexts.Kernel.
func (c *Context) Restart(ctx context.Context) error {
	release, err := c.all.changing.Take(ctx, c.ID)
	if err != nil {
		return err
	}
	defer release()
	if c.Gone().Err() != nil {
		return contexts.ErrNoContext()
	}
	c.Renew()
	if err := c.all.cancel(ctx, c.box, c.Saved().Kernel); err != nil {
		return c.all.service.Explain(ctx, err, "end an interpreter")
	}
	fresh, err := c.all.start(ctx, c.box, c.Saved())
	if err != nil {
		return err
	}
	return c.all.Change(c, func(s *contexts.Saved) { s.Kernel = fresh })
}

// Delete implements contexts.Kernel.
func (c *Context) Delete(ctx context.Context) error {
	release, err := c.all.changing.Take(ctx, c.ID)
	if err != nil {
		return err
	}
	defer release()
	if err := c.all.Drop(c); err != nil {
		return err
	}
	return c.all.service.Explain(ctx, c.all.cancel(ctx, c.box, c.Saved().Kernel), "end an interpreter")
}

// Execute runs code in a context, for limit at the most.
func (all *Contexts) Execute(ctx context.Context, box place.Box, req sdk.ExecuteRequest, limit time.Duration, running *remote.Executions, out sdk.Output) (sdk.ExecuteResult, error) {
	var fields map[string]json.RawMessage
	if req.Arguments != nil && (json.Unmarshal(req.Arguments, &fields) != nil || fields == nil) {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "must be a JSON object")
	}
	c, err := all.Find(ctx, box.ID, req.ContextID, box)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	release, err := all.Take(ctx, box, c, req.Language)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer release()
	one, over := running.Begin(req)
	defer over()
	run := kernel.Run{
		Kernel: &run{c: c, req: req}, Request: req, Out: out, Language: c.Language,
		Execution: one, Files: all.service.Files(box), Limit: limit, Grace: sdk.InterruptGrace,
	}
	return run.Do(ctx)
}
