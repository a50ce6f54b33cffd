package provider

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// creation is the making of one sandbox, for all that ask for it by the same key. It
// goes on when they have left, for nobody else could tidy up.
type creation struct {
	done chan struct{}
	// What came of it, once done is closed.
	sandbox *sandbox
	err     error
	// waiting counts those who want it; guarded by Provider.mu.
	waiting int
}

// finished is a creation that an earlier process has made.
func finished(sb *sandbox) *creation {
	c := &creation{done: make(chan struct{}), sandbox: sb}
	close(c.done)
	return c
}

// made reports whether it made that sandbox.
func (c *creation) made(sb *sandbox) bool {
	select {
	case <-c.done:
		return c.sandbox == sb
	default:
		return false
	}
}

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	template, ok := p.settings.templateOf(req.Template)
	if !ok {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "there is no template %.100q", req.Template)
	}
	p.mu.Lock()
	c := p.creations[req.IdempotencyKey]
	if c == nil || req.IdempotencyKey == "" {
		c = &creation{done: make(chan struct{})}
		if req.IdempotencyKey != "" {
			p.creations[req.IdempotencyKey] = c
		}
		p.background.Go(func() { p.carryOut(c, template, req) })
	}
	c.waiting++
	p.mu.Unlock()

	select {
	case <-c.done:
		p.mu.Lock()
		c.waiting--
		p.mu.Unlock()
		if c.err != nil {
			return sdk.Instance{}, c.err
		}
		return c.sandbox.instance(), nil
	case <-ctx.Done():
		p.mu.Lock()
		c.waiting--
		p.mu.Unlock()
		return sdk.Instance{}, ctx.Err()
	}
}

// carryOut makes the sandbox. If nobody waits for it any more, it is ended again.
func (p *Provider) carryOut(c *creation, template string, req sdk.CreateRequest) {
	sb, err := p.make(p.life, template, req)
	p.usage.creation(err)
	p.mu.Lock()
	c.sandbox, c.err = sb, err
	wanted := c.waiting > 0
	if (err != nil || !wanted) && p.creations[req.IdempotencyKey] == c {
		delete(p.creations, req.IdempotencyKey)
	}
	close(c.done)
	p.mu.Unlock()
	if err == nil && !wanted {
		p.discard(sb)
	}
}

// discard ends a sandbox that nobody has got.
func (p *Provider) discard(sb *sandbox) {
	if err := p.kill(p.life, sb.id); err != nil {
		p.logger.Warn("a sandbox that nobody waits for any more could not be ended; it ends by itself", "sandbox", sb.id, "error", err)
	}
}
