package provider

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// creation is the making of one sandbox, for all that ask for it by the same key. When
// they have left it ends, and what it may have made is theirs to look for by List. One
// without a key goes on, for nobody else could tidy up.
type creation struct {
	done chan struct{}
	// What came of it, once done is closed, and when.
	sandbox *sandbox
	err     error
	endedAt time.Time
	// earlier has the same key and failed: it may have made a sandbox all the same.
	earlier *creation

	// waiting counts those who want it; guarded by Provider.mu, as abandoned is.
	waiting   int
	abandoned bool
	abandon   context.CancelFunc
}

// rememberFailed is how long a creation that failed is known by its key.
const rememberFailed = 5 * time.Minute

// finished is a creation that an earlier process has made.
func finished(sb *sandbox) *creation {
	c := &creation{done: make(chan struct{}), sandbox: sb, abandon: func() {}}
	close(c.done)
	return c
}

// failed says that it has no sandbox for who asks now. The caller holds Provider.mu.
func (c *creation) failed() bool { return c.abandoned || c.err != nil }

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
	if c == nil || c.failed() {
		c = p.startCreation(template, req, c)
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
		if c.waiting == 0 && req.IdempotencyKey != "" {
			c.abandoned = true
			c.abandon()
		}
		p.mu.Unlock()
		return sdk.Instance{}, ctx.Err()
	}
}

// startCreation makes a creation known, and has it carried out. The caller holds mu.
func (p *Provider) startCreation(template string, req sdk.CreateRequest, earlier *creation) *creation {
	c := &creation{done: make(chan struct{}), earlier: earlier}
	life, abandon := context.WithCancel(p.life)
	c.abandon = abandon
	if req.IdempotencyKey != "" {
		p.creations[req.IdempotencyKey] = c
	}
	p.background.Go(func() {
		defer abandon()
		p.carryOut(life, c, template, req)
	})
	return c
}

// carryOut makes the sandbox. If nobody waits for it any more, and nobody can ask for it
// again, it is ended.
func (p *Provider) carryOut(ctx context.Context, c *creation, template string, req sdk.CreateRequest) {
	var sb *sandbox
	if c.earlier != nil {
		<-c.earlier.done
		sb = c.earlier.sandbox
	}
	var err error
	if sb == nil || sb.gone.Err() != nil {
		sb, err = p.make(ctx, template, req, c.earlier != nil)
		p.usage.creation(err)
	}
	p.mu.Lock()
	c.sandbox, c.err, c.endedAt, c.earlier = sb, err, time.Now(), nil
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.NoEffect && p.creations[req.IdempotencyKey] == c {
		delete(p.creations, req.IdempotencyKey) // there is nothing to remember
	}
	unwanted := c.waiting == 0 && req.IdempotencyKey == ""
	close(c.done)
	p.mu.Unlock()
	if err == nil && unwanted {
		sb.discard()
	}
}

// forgetFailed forgets the creations that failed long ago. The caller holds mu.
func (p *Provider) forgetFailed(now time.Time) {
	maps.DeleteFunc(p.creations, func(_ string, c *creation) bool {
		return c.err != nil && now.Sub(c.endedAt) > rememberFailed
	})
}

// discard ends a sandbox that nobody has got.
func (sb *sandbox) discard() {
	if err := sb.p.kill(sb.p.life, sb.id); err != nil {
		sb.p.logger.Warn("a sandbox that nobody waits for any more could not be ended; it ends by itself", "sandbox", sb.id, "error", err)
	}
}
