package provider

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	if made, err := p.createdBefore(ctx, req.IdempotencyKey); err != nil || made != nil {
		if err != nil {
			return sdk.Instance{}, err
		}
		return p.described(made), nil
	}
	return p.create(ctx, req)
}

// createdBefore returns the pod that a creation with the same key has taken; nil if there is
// none. This process knows of its own creations; of those before it the watch has told, and of
// one whose end is not known the API server is asked.
func (p *Provider) createdBefore(ctx context.Context, key string) (*corev1.Pod, error) {
	p.mu.Lock()
	unsure := p.unsure[key]
	p.mu.Unlock()
	pod, err := p.store.Created(ctx, key, unsure)
	if err != nil {
		return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "look for what was made before")
	}
	if unsure {
		p.setUnsure(key, false)
	}
	return pod, nil
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
		s, err := p.pool.Acquire(ctx, pool.Request{
			Template: req.Template, Tenant: req.Labels[sdk.LabelTenant], Patience: p.settings.QueueTimeout, MaxQueue: req.MaxQueue,
		})
		if err != nil {
			return sdk.Instance{}, err
		}
		i, err := p.hand(ctx, s, req)
		if err == nil {
			return i.Instance, nil
		}
		p.pool.Release()
		if !errors.Is(err, pods.ErrTaken) {
			return sdk.Instance{}, err
		}
		// Somebody has deleted it, or it was evicted: there are others.
	}
}

// hand makes an instance of a sandbox of the pool. After an error the sandbox is gone, or is
// being destroyed.
func (p *Provider) hand(ctx context.Context, s *sandbox, req sdk.CreateRequest) (*instance, error) {
	lease := pods.Lease{Labels: req.Labels, Creation: req.IdempotencyKey, Fingerprint: string(s.fingerprint)}
	if req.TTL > 0 {
		lease.Expires = time.Now().Add(req.TTL)
	}
	// It remembers the environment, which is nowhere else: who reads pods must not read it.
	err := s.guest.Remember(ctx, req.Env)
	if err == nil {
		var pod *corev1.Pod
		if pod, err = p.store.Take(ctx, s.name, s.uid, lease); err == nil {
			i := &instance{Instance: p.described(pod), sandbox: s, env: maps.Clone(req.Env), pooled: true}
			p.add(i)
			return i, nil
		}
	}
	if errors.Is(err, pods.ErrTaken) || req.IdempotencyKey == "" || ctx.Err() == nil {
		p.maker.forget(s)
		p.maker.abandon(ctx, s.name, s.uid)
	}
	// Else whoever has the key looks for it by List, and may have taken it already.
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
	if err := p.store.SetExpiry(ctx, id, at); err != nil {
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
			defer p.pool.Release()
		}
		return explainDestroy(ctx, i.Destroy(ctx))
	}
	pod, err := p.store.Find(ctx, id)
	if err != nil || pod == nil {
		return explainDestroy(ctx, err)
	}
	return explainDestroy(ctx, p.store.Destroy(ctx, pod.Name, string(pod.UID)))
}

// List implements sdk.Provider.
func (p *Provider) List(ctx context.Context) ([]sdk.Instance, error) {
	found, err := p.store.Instances(ctx)
	if err != nil {
		return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "list the pods")
	}
	all := make([]sdk.Instance, 0, len(found))
	for _, pod := range found {
		all = append(all, p.described(pod))
	}
	return slices.Clip(all), nil
}
