package provider

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/cell"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Contexts = (*Provider)(nil)

// contexts are those that this process has used. Which there are stands in the records.
type contexts struct {
	mu  sync.Mutex
	all map[contextName]*codeContext
}

type contextName struct{ instance, context string }

// codeContext is what is known of a context while somebody uses it.
type codeContext struct {
	// turn holds a token while code runs.
	turn chan struct{}

	mu sync.Mutex
	// renewed is closed when the kernel is another, or none any more.
	renewed chan struct{}
}

func errNoContext() error {
	return sdk.FieldErrorf(sdk.CodeNotFound, "context_id", "no such context")
}

// use finds a context, and what is known of it.
func (p *Provider) use(instanceID, id string) (savedContext, *codeContext, error) {
	one, _ := p.records.Get(instanceID)
	i := slices.IndexFunc(one.Contexts, func(s savedContext) bool { return s.ID == id })
	if i < 0 {
		return savedContext{}, nil, errNoContext()
	}
	p.contexts.mu.Lock()
	defer p.contexts.mu.Unlock()
	name := contextName{instanceID, id}
	c := p.contexts.all[name]
	if c == nil {
		c = &codeContext{turn: make(chan struct{}, 1), renewed: make(chan struct{})}
		p.contexts.all[name] = c
	}
	return one.Contexts[i], c, nil
}

// forget drops what is known of contexts of an instance.
func (c *contexts) forget(instanceID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, one := range c.all {
		if name.instance == instanceID {
			one.renew()
			delete(c.all, name)
		}
	}
}

// kernel is a channel that is closed when the kernel of now is gone.
func (c *codeContext) kernel() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed
}

// renew tells code that runs that its kernel is gone.
func (c *codeContext) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.renewed)
	c.renewed = make(chan struct{})
}

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
	saved := savedContext{ID: remote.NewName(), Language: string(req.Language), Cwd: box.Absolute(req.Cwd), Env: req.Env, CreatedAt: time.Now().UTC()}
	if saved, err = p.newKernel(ctx, box, saved); err != nil {
		return sdk.CodeContext{}, err
	}
	err = p.changeContexts(box.ID, func(all []savedContext) []savedContext { return append(all, saved) })
	if err != nil {
		p.endKernel(ctx, box, saved.Kernel)
		return sdk.CodeContext{}, err
	}
	return contextOf(box, saved, false), nil
}

func contextOf(box sandbox, s savedContext, busy bool) sdk.CodeContext {
	return sdk.CodeContext{ID: s.ID, Language: sdk.Language(s.Language), Cwd: box.Shown(s.Cwd), CreatedAt: s.CreatedAt, Busy: busy}
}

// newKernel starts a kernel, and looks whether its output can be seen while code runs.
// A creation whose answer is lost is not repeated: there would be one kernel more. Until
// the kernel is in the record of its sandbox nobody else may make one there.
func (p *Provider) newKernel(ctx context.Context, box sandbox, s savedContext) (savedContext, error) {
	made, err := p.data.CreateContext(ctx, box.ID, s.Language, s.Cwd)
	if err != nil {
		if repeatable(err) {
			p.sweep(ctx, box, s)
		}
		return s, p.explain(ctx, err, sdk.CodeUnavailable, "start a kernel")
	}
	s.Kernel = made.ID
	name := remote.NewName()
	cells := []string{cell.Begin(sdk.Language(s.Language), cell.Start{ID: name, Env: box.Environment(s.Env), Dir: s.Cwd})}
	if s.Language == string(sdk.JavaScript) {
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
func (p *Provider) sweep(ctx context.Context, box sandbox, like savedContext) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	kernels, err := again(ctx, func(ctx context.Context) ([]agentrun.Context, error) { return p.data.ListContexts(ctx, box.ID) })
	if err != nil {
		p.log.Warn("a kernel may be left in a sandbox", "sandbox", box.ID, "error", p.secrets.Error(err))
	}
	one, _ := p.records.Get(box.ID)
	for _, k := range kernels {
		ours := slices.ContainsFunc(one.Contexts, func(s savedContext) bool { return s.Kernel == k.ID })
		if !ours && k.Language == like.Language && k.Cwd == like.Cwd {
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
func (p *Provider) endKernel(ctx context.Context, box sandbox, kernel string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := p.deleteKernel(ctx, box, kernel); err != nil {
		p.log.Warn("a kernel is left in a sandbox", "sandbox", box.ID, "error", p.secrets.Error(err))
	}
}

func (p *Provider) deleteKernel(ctx context.Context, box sandbox, kernel string) error {
	_, err := again(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.data.DeleteContext(ctx, box.ID, kernel)
	})
	if isMissing(err) {
		return nil
	}
	return err
}

// ListContexts implements sdk.Contexts.
func (p *Provider) ListContexts(ctx context.Context, instanceID string) ([]sdk.CodeContext, error) {
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	var all []sdk.CodeContext
	for _, s := range box.contexts {
		_, c, err := p.use(instanceID, s.ID)
		if err == nil {
			all = append(all, contextOf(box, s, len(c.turn) > 0))
		}
	}
	return all, nil
}

// RestartContext implements sdk.Contexts.
func (p *Provider) RestartContext(ctx context.Context, instanceID, contextID string) error {
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	return p.restart(ctx, box, contextID)
}

// restart ends a kernel with what runs in it, and starts another in its place.
func (p *Provider) restart(ctx context.Context, box sandbox, contextID string) error {
	release, err := p.changing.Take(ctx, contextID)
	if err != nil {
		return err
	}
	defer release()
	releaseAll, err := p.changing.Take(ctx, box.ID)
	if err != nil {
		return err
	}
	defer releaseAll()
	s, c, err := p.use(box.ID, contextID)
	if err != nil {
		return err
	}
	c.renew()
	if err := p.deleteKernel(ctx, box, s.Kernel); err != nil {
		return p.explain(ctx, err, sdk.CodeUnavailable, "end a kernel")
	}
	fresh, err := p.newKernel(ctx, box, s)
	if err != nil {
		return err
	}
	return p.changeContexts(box.ID, func(all []savedContext) []savedContext {
		for i := range all {
			if all[i].ID == contextID {
				all[i] = fresh
			}
		}
		return all
	})
}

// DeleteContext implements sdk.Contexts.
func (p *Provider) DeleteContext(ctx context.Context, instanceID, contextID string) error {
	box, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	release, err := p.changing.Take(ctx, contextID)
	if err != nil {
		return err
	}
	defer release()
	s, c, err := p.use(instanceID, contextID)
	if err != nil {
		return nil //nolint:nilerr // it is gone already
	}
	err = p.changeContexts(instanceID, func(all []savedContext) []savedContext {
		return slices.DeleteFunc(all, func(s savedContext) bool { return s.ID == contextID })
	})
	if err != nil {
		return err
	}
	c.renew()
	p.contexts.mu.Lock()
	delete(p.contexts.all, contextName{instanceID, contextID})
	p.contexts.mu.Unlock()
	return p.explain(ctx, p.deleteKernel(ctx, box, s.Kernel), sdk.CodeUnavailable, "end a kernel")
}

// takeTurn waits until no other code runs in the context.
func (p *Provider) takeTurn(ctx context.Context, instanceID, contextID string) (savedContext, *codeContext, error) {
	timer := time.NewTimer(sdk.MaxContextWait)
	defer timer.Stop()
	for {
		_, c, err := p.use(instanceID, contextID)
		if err != nil {
			return savedContext{}, nil, err
		}
		renewed := c.kernel()
		select {
		case c.turn <- struct{}{}:
			// Who waited may find another kernel, or that the context is gone.
			s, again, err := p.use(instanceID, contextID)
			if err == nil && again == c {
				return s, c, nil
			}
			<-c.turn
		case <-renewed:
		case <-timer.C:
			return savedContext{}, nil, sdk.Errorf(sdk.CodeQuotaExceeded, "the context was busy for %v", sdk.MaxContextWait)
		case <-ctx.Done():
			return savedContext{}, nil, context.Cause(ctx)
		}
	}
}
