package provider

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Contexts = (*Provider)(nil)

// codeContext is a context that a kernel of the service serves.
type codeContext struct {
	*contexts.Context
	p   *Provider
	box place.Box
}

// Context implements contexts.Service.
func (s service) Context(box place.Box, saved contexts.Saved) *codeContext {
	return &codeContext{contexts.New(context.Background(), box.ID, saved), s.p, box}
}

// Lost implements contexts.Service.
func (s service) Lost(box place.Box) error {
	if _, ok := s.p.records.Get(box.ID); !ok {
		return errNoInstance
	}
	return nil
}

// Load implements contexts.Service.
func (s service) Load(_ context.Context, box place.Box) ([]contexts.Saved, error) {
	one, _ := s.p.records.Get(box.ID)
	return one.Contexts, nil
}

// Save implements contexts.Service.
func (s service) Save(id string, all []contexts.Saved) error {
	return s.p.records.Change(id, func(one record) record { one.Contexts = all; return one })
}

// Cwd implements contexts.Kernel.
func (c *codeContext) Cwd() string { return c.box.Shown(c.Saved().Cwd) }

// CreateContext implements sdk.Contexts.
func (p *Provider) CreateContext(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
	box, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	if req.Language != sdk.Python && req.Language != sdk.JavaScript {
		return sdk.CodeContext{}, sdk.FieldErrorf(sdk.CodeNotSupported, "language", "there are no contexts in %.50q", string(req.Language))
	}
	// One after the other: see sweep.
	release, err := p.changing.Take(ctx, box.ID)
	if err != nil {
		return sdk.CodeContext{}, err
	}
	defer release()
	if _, err := p.Contexts(ctx, box.ID, box); err != nil {
		return sdk.CodeContext{}, err
	}
	saved := contexts.Saved{ID: remote.NewName(), Language: req.Language, Cwd: box.Absolute(req.Cwd), Env: req.Env, CreatedAt: time.Now().UTC()}
	if saved, err = p.newKernel(ctx, box, saved); err != nil {
		return sdk.CodeContext{}, err
	}
	c := service{p}.Context(box, saved)
	if err := p.Add(c); err != nil {
		p.endKernel(ctx, box, saved.Kernel)
		return sdk.CodeContext{}, err
	}
	return contexts.State(c), nil
}

// newKernel starts a kernel, and looks whether its output can be seen while code runs.
// A creation whose answer is lost is not repeated: there would be one kernel more. Until
// the kernel is in the record of its sandbox nobody else may make one there.
func (p *Provider) newKernel(ctx context.Context, box place.Box, s contexts.Saved) (contexts.Saved, error) {
	made, err := p.data.CreateContext(ctx, box.ID, string(s.Language), s.Cwd)
	if err != nil {
		if repeatable(err) {
			p.sweep(ctx, box, s)
		}
		return s, p.explain(ctx, err, sdk.CodeUnavailable, "start a kernel")
	}
	s.Kernel = made.ID
	name := remote.NewName()
	cells := []string{cell.Begin(s.Language, cell.Start{ID: name, Env: box.Environment(s.Env), Dir: s.Cwd})}
	if s.Language == sdk.JavaScript {
		cells = append(cells, cell.Print(name))
	}
	for _, code := range cells {
		var result agentrun.CodeResult
		if result, err = p.data.ExecuteCode(ctx, box.ID, made.ID, code, maxTimeout); err != nil {
			break
		}
		if failed, ok := failure(result); ok {
			err = sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the kernel of the service cannot be used for contexts: %.300s", failed.Trace())
			break
		}
	}
	if err == nil {
		var first place.Progress
		first, err = place.Look(ctx, box, name, 0, 0)
		s.Kills = first.Kills
		if err == nil && len(cells) > 1 && string(first.Stdout) != name+"\n" {
			// It puts its own console back before each cell, and tells of its output at the end.
			err = sdk.FieldErrorf(sdk.CodeNotSupported, "language", "the kernel of the service shows what JavaScript prints only when a cell has ended, so that there are no contexts in it here; executions without a context are not concerned")
		}
	}
	if errors.Is(err, place.ErrUnknown) {
		err = sdk.FieldErrorf(sdk.CodeNotSupported, "language", "what the kernel of the service writes cannot be seen by commands")
	}
	if err != nil {
		p.endKernel(ctx, box, made.ID)
	}
	return s, p.explain(ctx, err, sdk.CodeUnavailable, "prepare a kernel")
}

// sweep ends a kernel that may have been made although the answer was lost: one like it
// that is in no record.
func (p *Provider) sweep(ctx context.Context, box place.Box, like contexts.Saved) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	kernels, err := again(ctx, func(ctx context.Context) ([]agentrun.Context, error) { return p.data.ListContexts(ctx, box.ID) })
	if err != nil {
		p.log.Warn("a kernel may be left in a sandbox", "sandbox", box.ID, "error", p.secrets.Error(err))
	}
	one, _ := p.records.Get(box.ID)
	for _, k := range kernels {
		ours := slices.ContainsFunc(one.Contexts, func(s contexts.Saved) bool { return s.Kernel == k.ID })
		if !ours && k.Language == string(like.Language) && k.Cwd == like.Cwd {
			p.endKernel(ctx, box, k.ID)
		}
	}
}

// failure is the error in a result, if there is one.
func failure(r agentrun.CodeResult) (agentrun.Item, bool) {
	for _, item := range r.Results {
		if item.Type == "error" || item.Type == "endOfExecution" && item.Status != "ok" {
			return item, true
		}
	}
	return agentrun.Item{}, false
}

// endKernel ends one, whoever waits.
func (p *Provider) endKernel(ctx context.Context, box place.Box, kernel string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := p.deleteKernel(ctx, box, kernel); err != nil {
		p.log.Warn("a kernel is left in a sandbox", "sandbox", box.ID, "error", p.secrets.Error(err))
	}
}

func (p *Provider) deleteKernel(ctx context.Context, box place.Box, kernel string) error {
	_, err := again(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.data.DeleteContext(ctx, box.ID, kernel)
	})
	if isMissing(err) {
		return nil
	}
	return err
}

// Restart ends a kernel with what runs in it, and starts another in its place.
func (c *codeContext) Restart(ctx context.Context) error {
	release, err := c.p.changing.Take(ctx, c.ID)
	if err != nil {
		return err
	}
	defer release()
	releaseAll, err := c.p.changing.Take(ctx, c.box.ID)
	if err != nil {
		return err
	}
	defer releaseAll()
	if c.Gone().Err() != nil {
		return contexts.ErrNoContext()
	}
	c.Renew()
	old := c.Saved()
	if err := c.p.deleteKernel(ctx, c.box, old.Kernel); err != nil {
		return c.p.explain(ctx, err, sdk.CodeUnavailable, "end a kernel")
	}
	fresh, err := c.p.newKernel(ctx, c.box, old)
	if err != nil {
		return err
	}
	return c.p.Change(c, func(s *contexts.Saved) { *s = fresh })
}

// Delete ends the kernel.
func (c *codeContext) Delete(ctx context.Context) error {
	release, err := c.p.changing.Take(ctx, c.ID)
	if err != nil {
		return err
	}
	defer release()
	if err := c.p.Drop(c); err != nil {
		return err
	}
	return c.p.explain(ctx, c.p.deleteKernel(ctx, c.box, c.Saved().Kernel), sdk.CodeUnavailable, "end a kernel")
}
