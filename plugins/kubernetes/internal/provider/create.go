package provider

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Create implements sdk.Provider.
func (p *Provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	language := languageOf(req.Template)
	switch {
	case !p.configured.Load():
		return sdk.Instance{}, sdk.Errorf(sdk.CodeNotInitialized, "not configured")
	case language == "":
		return sdk.Instance{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "must be one of python, nodejs, bash")
	case req.IdempotencyKey == "":
		return p.create(ctx, req)
	}
	release, err := p.creating.Take(ctx, req.IdempotencyKey)
	if err != nil {
		return sdk.Instance{}, err
	}
	defer release()
	if made, ok := p.createdHere(req.IdempotencyKey); ok {
		return made, nil
	}
	if made, err := p.createdBefore(ctx, req.IdempotencyKey); err != nil || made != nil {
		if err != nil {
			return sdk.Instance{}, err
		}
		return *made, nil
	}
	return p.create(ctx, req)
}

// createdHere returns the instance that this process has made with the key, if there is one.
// The watch may not have told of it yet.
func (p *Provider) createdHere(key string) (sdk.Instance, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.byID {
		if i.creation == key && !i.hasEnded() {
			return i.describe(), true
		}
	}
	return sdk.Instance{}, false
}

// createdBefore returns the instance that a creation with the same key has made; nil if there
// is none. Of those of earlier processes the watch has told, and of one whose end is not known
// the API server is asked.
func (p *Provider) createdBefore(ctx context.Context, key string) (*sdk.Instance, error) {
	p.mu.Lock()
	unsure := p.unsure[key]
	p.mu.Unlock()
	for _, way := range p.ways {
		found, err := way.Created(ctx, key, unsure)
		if err != nil {
			return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "look for what was made before")
		}
		if found != nil {
			p.setUnsure(key, false)
			return new(p.described(found)), nil
		}
	}
	p.setUnsure(key, false)
	return nil, nil
}

// setUnsure notes whether nobody knows if a creation with the key has taken a pod.
func (p *Provider) setUnsure(key string, unsure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if unsure {
		p.unsure[key] = true
	} else {
		delete(p.unsure, key)
	}
}

func (p *Provider) create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	for {
		s, err := p.acquire(ctx, req)
		if err != nil {
			return sdk.Instance{}, err
		}
		i, err := p.hand(ctx, s, req)
		if err == nil {
			return i.Instance, nil
		}
		p.release()
		if !errors.Is(err, pods.ErrTaken) {
			return sdk.Instance{}, err
		}
		// Somebody has deleted it, or it was evicted: there are others.
	}
}

// acquire takes a sandbox from the pool, and waits for none that cannot come.
func (p *Provider) acquire(ctx context.Context, req sdk.CreateRequest) (*sandbox, error) {
	if p.reach.isLost() { // it may be back
		_, _ = p.ping(ctx)
	}
	bounded, release := p.reach.bound(ctx)
	defer release()
	s, err := p.pool.Acquire(bounded, pool.Request{
		Template: req.Template, Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout, MaxQueue: req.MaxQueue,
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return s, err
	case bounded.Err() != nil:
		err = context.Cause(bounded)
	}
	// Whatever the pool could not make, no instance was made of it.
	if told, known := errors.AsType[*sdk.Error](err); known && !told.NoEffect {
		certain := *told
		certain.NoEffect = true
		err = &certain
	}
	return nil, err
}

// hand makes an instance of a sandbox of the pool. After an error the sandbox is gone, or is
// being destroyed.
func (p *Provider) hand(ctx context.Context, s *sandbox, req sdk.CreateRequest) (*instance, error) {
	lease := pods.Lease{Labels: req.Labels, Creation: req.IdempotencyKey, Fingerprint: string(s.fingerprint)}
	if req.TTL > 0 {
		lease.Expires = time.Now().Add(req.TTL)
	}
	// It remembers the environment, which is nowhere else: who reads pods must not read it.
	err := s.guest.Remember(ctx, req.Env, lease.Expires)
	if err == nil {
		var taken *pods.Instance
		if taken, err = take(ctx, s, lease); err == nil {
			i := &instance{Instance: p.described(taken), sandbox: s, env: maps.Clone(req.Env), creation: req.IdempotencyKey, pooled: true}
			p.add(i)
			p.rebalance()
			return i, nil
		}
	}
	p.maker.forget(s)
	if errors.Is(err, pods.ErrTaken) || req.IdempotencyKey == "" || ctx.Err() == nil {
		p.maker.abandon(ctx, s.Ref)
	}
	// Else it may be an instance, which whoever has the key looks for. If it is none, it is
	// swept.
	if req.IdempotencyKey != "" && !refused(err) {
		p.setUnsure(req.IdempotencyKey, true)
	}
	switch {
	case errors.Is(err, pods.ErrTaken):
		return nil, err
	case errors.Is(err, guestclient.ErrGone):
		return nil, pods.ErrTaken
	}
	return nil, explainAPI(ctx, err, sdk.CodeCreateFailed, "hand out a pod")
}

// renewTime is how long a creation waits for a renewal of its broker's lease, which comes with each
// call and each probe of the health.
const renewTime = 10 * time.Second

// take makes an instance of a sandbox. Its pod may have taken longer than the lease lasts that came
// with the call.
func take(ctx context.Context, s *sandbox, l pods.Lease) (*pods.Instance, error) {
	renewing, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	awaitLease(renewing)
	return s.way.Take(ctx, s.Ref, l)
}

// SetTTL implements sdk.TTLSetter.
func (p *Provider) SetTTL(ctx context.Context, id string, ttl time.Duration) (time.Time, error) {
	if ttl <= 0 {
		return time.Time{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be positive")
	}
	i, err := p.find(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	at := time.Now().Add(ttl)
	// Without a plugin the guest ends by what it was told.
	if err := i.guest.Remember(ctx, i.env, at); err != nil {
		if errors.Is(err, guestclient.ErrGone) {
			err = i.Lost(ctx)
		}
		return time.Time{}, err
	}
	if err := i.way.SetExpiry(ctx, id, at); err != nil {
		return time.Time{}, explainAPI(ctx, err, sdk.CodeUnavailable, "write down when the instance ends")
	}
	i.expireAt(at, func() { p.expire(i) })
	return at, nil
}

// InstanceMetrics implements sdk.Meter.
func (p *Provider) InstanceMetrics(ctx context.Context, id string) (m sdk.InstanceMetrics, err error) {
	if m, err = p.Measure(ctx, id); err != nil {
		return sdk.InstanceMetrics{}, err
	}
	m.CPULimit = p.settings.CPUs
	m.MemoryLimit, m.ProcessLimit = p.settings.MemoryMB<<20, p.settings.Processes
	if p.settings.Kernel == kernelShared {
		m.Memory = 0 // what the guest sees in use there is the node's
	}
	return m, nil
}

// Interrupt implements sdk.Interrupter.
func (p *Provider) Interrupt(ctx context.Context, id, executionID string) error {
	i := p.lookUp(id)
	if i == nil {
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	err := i.guest.Interrupt(ctx, executionID, sdk.InterruptGrace)
	if errors.Is(err, guestclient.ErrGone) {
		return sdk.Errorf(sdk.CodeNotFound, "the sandbox does not answer any more, and the execution has ended with that")
	}
	return err
}

// Destroy implements sdk.Provider. It returns when the pod is gone.
func (p *Provider) Destroy(ctx context.Context, id string) error {
	if !nameForm20.MatchString(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTime)
	defer cancel()
	if i := p.take(id); i != nil {
		if i.pooled {
			defer p.release()
		}
		return explainDestroy(ctx, i.Destroy(ctx))
	}
	found, way, err := p.locate(ctx, id)
	if err != nil || found == nil {
		return explainDestroy(ctx, err)
	}
	return explainDestroy(ctx, way.Destroy(ctx, found.Ref))
}

// locate returns an instance by the API server's own word, and the way it was made; nil if
// there is none.
func (p *Provider) locate(ctx context.Context, id string) (*pods.Instance, way, error) {
	if p.adopted.isReleased(id) {
		return nil, nil, nil
	}
	for _, way := range p.ways {
		if found, err := way.Find(ctx, id); err != nil || found != nil {
			return found, way, err
		}
	}
	return nil, nil, nil
}

// List implements sdk.Provider.
func (p *Provider) List(ctx context.Context) ([]sdk.Instance, error) {
	var all []sdk.Instance
	for _, way := range p.ways {
		found, err := way.Instances(ctx)
		if err != nil {
			return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "list the pods")
		}
		for _, i := range found {
			all = append(all, p.described(i))
		}
	}
	return slices.Clip(all), nil
}
