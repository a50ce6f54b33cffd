package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// instance is a sandbox that was given to a session.
type instance struct {
	sdk.Instance
	sandbox *sandbox
	env     map[string]string
	expiry  *time.Timer // nil if it does not expire
	key     string

	usage
	reuse bool // see Provider.reusable
	clean atomic.Bool
	// measuring is held by who freezes it, and read-held by measurements: whoever
	// looks on keeps nobody from pausing, who waits for the one in progress.
	measuring sync.RWMutex
	measured  sdk.InstanceMetrics // before it was paused

	installing sync.Mutex // installers of one language write to one directory

	ended  sync.Once
	reason reason // valid after ended
}

// creation is a Create with an idempotency key, running or done.
type creation struct {
	done     chan struct{}
	instance sdk.Instance
	err      error
}

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if !p.configured.Load() {
		return sdk.Instance{}, sdk.Errorf(sdk.CodeNotInitialized, "not configured")
	}
	if req.IdempotencyKey == "" {
		return p.create(ctx, req)
	}
	for {
		p.mu.Lock()
		c, running := p.keys[req.IdempotencyKey]
		if !running {
			c = &creation{done: make(chan struct{})}
			p.keys[req.IdempotencyKey] = c
		}
		p.mu.Unlock()
		if !running {
			p.createOnce(ctx, req, c)
			return c.instance, c.err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return sdk.Instance{}, ctx.Err()
		}
		if !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
			return c.instance, c.err
		}
		// Whoever asked first has given up; that says nothing about us.
	}
}

// createOnce is what the first to come with a key does for all.
func (p *Provider) createOnce(ctx context.Context, req sdk.CreateRequest, c *creation) {
	defer close(c.done)
	c.instance, c.err = p.create(ctx, req)
	if c.err != nil { // nothing was made: the key may be used again
		p.mu.Lock()
		delete(p.keys, req.IdempotencyKey)
		p.mu.Unlock()
	}
}

func (p *Provider) create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	language := languageOf(req.Template)
	switch {
	case language == "":
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be one of python, nodejs, bash")
	case p.interpreters[string(language)] == "":
		return sdk.Instance{}, sdk.Errorf(sdk.CodeCreateFailed, "there is no %s for the sandboxes of this provider to use, so there are no %s sandboxes", language, req.Template)
	}
	s, err := p.pool.Acquire(ctx, pool.Request{
		Template: req.Template, Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout,
		Reuse: p.reuses(req), MaxQueue: req.MaxQueue,
	})
	if err != nil {
		return sdk.Instance{}, err
	}
	now := time.Now()
	i := &instance{
		Instance: sdk.Instance{
			ID: s.instanceID(), Template: req.Template, Labels: maps.Clone(req.Labels), CreatedAt: now,
			Metadata: map[string]string{"runtime": p.settings.Runtime},
		},
		sandbox: s, env: maps.Clone(req.Env), key: req.IdempotencyKey, reuse: p.reuses(req),
	}
	if req.TTL > 0 {
		i.ExpiresAt = now.Add(req.TTL)
	}
	if !p.add(i) {
		return sdk.Instance{}, errors.Join(sdk.Errorf(sdk.CodeUnavailable, "the provider is shutting down"), p.end(ctx, i))
	}
	if p.canInstallPython() {
		go p.serveRequested(i)
	}
	return i.Instance, nil
}

// add makes an instance known, unless the provider closes.
func (p *Provider) add(i *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.instances[i.ID] = i
	if !i.ExpiresAt.IsZero() {
		i.expiry = time.AfterFunc(time.Until(i.ExpiresAt), func() { p.expire(i) })
	}
	return true
}

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.find(req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if req.Language == sdk.Bash && req.Arguments != nil {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to give them to; use env")
	}
	done, err := i.use()
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer done()
	env := i.environment(req.Env)
	if req.ContextID != "" {
		env = req.Env // the context has the instance's since it was made
	}
	started := time.Now()
	result, err := i.sandbox.guest.Execute(ctx, req, env, out)
	i.clean.Store(err == nil && endedByItself(result))
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, guestclient.ErrNotStarted):
		p.lose(i)
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox did not take the code and was destroyed")
	case errors.Is(err, guestclient.ErrStuck):
		// A sandbox that does not even stop its code is destroyed.
		p.lose(i)
		return sdk.ExecuteResult{
			Status: sdk.StatusTimeout, ExitCode: 137, Duration: time.Since(started),
			Detail: guest.TimeoutDetail(req.Timeout) + "; the sandbox did not answer any more and was destroyed",
		}, nil
	case errors.Is(err, guestclient.ErrGone):
		return p.executionLost(ctx, i, started)
	default:
		return sdk.ExecuteResult{}, err
	}
}

// environment is the instance's, and over it the given variables.
func (i *instance) environment(given map[string]string) map[string]string {
	env := maps.Clone(i.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, given)
	return env
}

// lose takes back an instance that is of no use any more, and says whether it
// was still known. What it holds is freed in the background, for its caller has
// waited long enough; the pool waits for that when it closes.
func (p *Provider) lose(i *instance) bool {
	if p.take(i.ID) == nil {
		return false // somebody ends it already
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), makeTimeout)
		defer cancel()
		if err := p.end(ctx, i); err != nil {
			p.logger.Warn("destroy sandbox", "error", err)
		}
	}()
	return true
}

// Destroy implements sdk.Provider.
func (p *Provider) Destroy(ctx context.Context, instanceID string) error {
	i := p.take(instanceID)
	if i == nil {
		return nil
	}
	return p.end(ctx, i)
}

// take removes an instance from those that are known. Whoever gets it ends it.
func (p *Provider) take(instanceID string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[instanceID]
	if i != nil {
		p.forget(i)
	}
	return i
}

func (p *Provider) forget(i *instance) {
	delete(p.instances, i.ID)
	delete(p.keys, i.key)
	if i.expiry != nil {
		i.expiry.Stop()
	}
}

// end destroys an instance that is not known any more.
func (p *Provider) end(ctx context.Context, i *instance) error {
	if p.reusable(i) && p.handOver(ctx, i) {
		return nil
	}
	defer p.pool.Release()
	if err := i.sandbox.Destroy(ctx); err != nil {
		return fmt.Errorf("destroy instance %s: %w", i.ID, err)
	}
	return nil
}

// List implements sdk.Provider. A self-managed instance ends with the process
// that made it, so all of them are this broker's.
func (p *Provider) List(context.Context) ([]sdk.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]sdk.Instance, 0, len(p.instances))
	for _, i := range p.instances {
		list = append(list, i.Instance)
	}
	return list, nil
}
