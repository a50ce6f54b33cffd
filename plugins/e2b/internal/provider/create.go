package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// createTimeout bounds a creation with all its attempts.
const createTimeout = 3 * time.Minute

// make makes a sandbox that can execute code. repeated says that an earlier call of the
// same key may have made it. What it leaves after an error that is not certain is for
// whoever has the key: he finds it by List, and may have taken it before we could end it.
func (p *Provider) make(ctx context.Context, template string, req sdk.CreateRequest, repeated bool) (*sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	key := req.IdempotencyKey
	if key == "" {
		key = remote.NewName() // to find it by, if no answer comes
	}
	now := time.Now()
	life, deadline := p.settings.Timeout, now.Add(p.settings.Timeout)
	if req.TTL > 0 {
		life, deadline = min(life, req.TTL), now.Add(req.TTL)
	}
	var effect retry.Effect
	if repeated {
		effect.Possible()
	}
	from, err := p.snapshots.from(ctx, &req)
	if err != nil {
		return nil, effect.Error(err)
	}
	explain := p.explainCreation
	if from != nil {
		template, explain = from.reference, p.snapshots.explainCopy
	}
	order := control.NewSandbox{
		TemplateID: template, Timeout: control.Seconds(life), EnvVars: req.Env, Secure: true, Metadata: map[string]string{
			metaBroker: p.brokerID, metaKey: key, metaTemplate: req.Template, metaDeadline: strconv.FormatInt(deadline.Unix(), 10),
		},
	}
	for name, value := range req.Labels {
		order.Metadata[metaLabel+name] = value
	}
	order.AllowInternetAccess, order.Network = p.settings.network()

	made, err := p.order(ctx, order, &effect)
	if err != nil {
		return nil, effect.Error(explain(err))
	}
	sb := p.add(p.newSandbox(made, order.Metadata, now, now.Add(life)))
	sb.connected(made) // a list may have been faster to make it known, without its tokens
	if err = sb.prepare(ctx); err == nil {
		err = sb.goesOn(ctx, from)
	}
	if err != nil {
		if ctx.Err() != nil && req.IdempotencyKey != "" {
			return nil, ctx.Err() // it may be all right
		}
		if killed := p.kill(context.WithoutCancel(ctx), sb.id); killed != nil {
			p.logger.Warn("a sandbox that is no good could not be ended; it ends by itself", "sandbox", sb.id, "error", killed)
		}
		return nil, err
	}
	return sb, nil
}

// order asks for a sandbox until there is one. There is no key that makes the call
// safe to repeat, so before each repetition it looks for what the one before has made.
func (p *Provider) order(ctx context.Context, order control.NewSandbox, effect *retry.Effect) (control.Sandbox, error) {
	if !effect.None() { // by an earlier call
		if made, found, err := p.find(ctx, order); found || err != nil {
			return made, err
		}
	}
	return retry.Do(ctx, p.retry, func(ctx context.Context) (control.Sandbox, error) {
		made, err := p.api.Create(ctx, order)
		if err == nil && idForm.MatchString(made.SandboxID) {
			return made, nil
		}
		if err == nil { // it may have made one all the same
			err = e2bhttp.Lost(errors.New("an answer to a creation that names no sandbox"))
		}
		e, answered := errors.AsType[*e2bhttp.Error](err)
		switch {
		case remote.NotSent(err):
			return made, retry.Again(err, 0)
		case answered && e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
			return made, retry.Again(err, e.RetryAfter)
		case denied(err):
			return made, err
		}
		// Whatever it says, it may have made one.
		effect.Possible()
		if !answered && !isLost(err) {
			return made, err
		}
		made, found, looked := p.find(ctx, order)
		switch {
		case found, looked != nil:
			return made, looked
		case answered && mayNotHelp(e):
			return made, err
		}
		return made, retry.Again(err, 0)
	})
}

// find takes the sandbox of a creation whose answer was lost, if it can be found.
func (p *Provider) find(ctx context.Context, order control.NewSandbox) (made control.Sandbox, found bool, err error) {
	id, err := p.lookFor(ctx, order.Metadata[metaKey])
	if err == nil && id != "" {
		made, err = p.api.Connect(ctx, id, time.Duration(order.Timeout)*time.Second)
		if err == nil && made.SandboxID != id {
			err = e2bhttp.Lost(errors.New("an answer that names no sandbox"))
		}
	}
	return made, id != "", err
}

// lookFor looks for the sandbox of a creation whose answer was lost. It may turn up a
// little later, and lists may be late.
func (p *Provider) lookFor(ctx context.Context, key string) (id string, err error) {
	for _, pause := range p.patience.looks {
		if err := remote.Pause(ctx, pause); err != nil {
			return "", err
		}
		found, listed := p.api.List(ctx, map[string]string{metaBroker: p.brokerID, metaKey: key})
		err = listed
		for _, detail := range found {
			if detail.Metadata[metaKey] == key && detail.Metadata[metaBroker] == p.brokerID {
				return detail.SandboxID, nil
			}
		}
	}
	return "", err
}

// explainCreation says why there is no sandbox.
func (p *Provider) explainCreation(err error) error {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	switch {
	case !answered:
		return p.failure(err)
	case e.Status == http.StatusNotFound && e.Own:
		return p.redact.Error(sdk.FieldErrorf(sdk.CodeInvalidConfig, "template", "E2B has no such template: %w", err))
	case e.Status == http.StatusBadRequest:
		return p.redact.Error(sdk.Errorf(sdk.CodeInvalidConfig, "E2B refuses to make such a sandbox (template, timeout, allowed_hosts): %w", err))
	case e.Code == "sandbox_create_failed", e.Code == "sandbox_no_compatible_node", e.Status == http.StatusInternalServerError:
		return p.redact.Error(sdk.Errorf(sdk.CodeCreateFailed, "E2B could not make a sandbox: %w", err))
	}
	return p.failure(err)
}

// prepare waits until a new sandbox answers, and makes the workspace.
func (sb *sandbox) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sb.p.patience.ready)
	defer cancel()
	if err := sb.tooOld(); err != nil {
		return err
	}
	_, err := retry.Do(ctx, retry.Policy{Attempts: 100, Min: 50 * time.Millisecond, Max: time.Second}, func(ctx context.Context) (struct{}, error) {
		err := sb.tell(ctx, func(c *envd.Client) error { return c.MakeDir(ctx, remote.Workspace) })
		if status := statusOf(err); isLost(err) || status >= 500 || status == http.StatusConflict || status == http.StatusTooManyRequests {
			return struct{}{}, retry.Again(err, 0)
		}
		return struct{}{}, err
	})
	if err != nil {
		return sb.p.redact.Error(sdk.Errorf(sdk.CodeCreateFailed, "the new sandbox is not usable: %w", err))
	}
	sb.learnUser(ctx)
	return nil
}

// Destroy implements sdk.Provider.
func (p *Provider) Destroy(ctx context.Context, instanceID string) error {
	if !idForm.MatchString(instanceID) {
		return nil
	}
	return p.kill(ctx, instanceID)
}

// kill ends a sandbox. One that is not there is a success.
func (p *Provider) kill(ctx context.Context, id string) error {
	_, err := again(ctx, p.retry, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.api.Kill(ctx, id) })
	if err != nil && !isAbsent(err, id) {
		return p.failure(fmt.Errorf("end the sandbox: %w", err))
	}
	p.forget(id)
	p.forgetAdopted(id)
	p.snapshots.eraseSoon()
	return nil
}

// listed are all sandboxes of this broker.
func (p *Provider) listed(ctx context.Context) ([]control.Detail, error) {
	var ours []control.Detail
	for _, broker := range append(p.adoptedFrom(), p.brokerID) {
		all, err := p.carrying(ctx, broker)
		if err != nil {
			return nil, err
		}
		for _, detail := range all {
			if p.owns(detail) {
				ours = append(ours, detail)
			}
		}
	}
	return ours, nil
}

// carrying are the sandboxes that carry the ID of a broker.
func (p *Provider) carrying(ctx context.Context, broker string) ([]control.Detail, error) {
	all, err := again(ctx, p.retry, func(ctx context.Context) ([]control.Detail, error) {
		return p.api.List(ctx, map[string]string{metaBroker: broker})
	})
	return slices.DeleteFunc(all, func(d control.Detail) bool {
		return d.Metadata[metaBroker] != broker // whatever the server makes of filters
	}), err
}

// List implements sdk.Provider.
func (p *Provider) List(ctx context.Context) ([]sdk.Instance, error) {
	found, err := p.listed(ctx)
	if err != nil {
		return nil, p.failure(err)
	}
	var all []sdk.Instance
	for _, detail := range found {
		i := p.adopt(detail).instance()
		if detail.Metadata[metaBroker] != p.brokerID {
			i.Labels = maps.Clone(i.Labels)
			i.Labels[sdk.LabelBroker] = p.brokerID
		}
		all = append(all, i)
	}
	return all, nil
}

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
	if !ok && req.Snapshot == nil {
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "there is no template %.100q", req.Template)
	}
	p.mu.Lock()
	c := p.creations[req.IdempotencyKey]
	if c == nil || c.failed() {
		c = p.startCreation(sdk.LeaseOf(ctx), template, req, c)
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

// startCreation makes a creation known, and has it carried out as long as the lease is held of
// the broker that asks for it. The caller holds mu.
func (p *Provider) startCreation(lease *sdk.Lease, template string, req sdk.CreateRequest, earlier *creation) *creation {
	c := &creation{done: make(chan struct{}), earlier: earlier}
	life, abandon := context.WithCancel(sdk.WithLease(p.life, lease))
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
