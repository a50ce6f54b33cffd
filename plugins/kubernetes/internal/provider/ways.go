package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/claims"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// way is how pods come to be, and where it is written down whose they are: as plain pods, which
// this process makes and keeps ready, or as claims of agent-sandbox.
type way interface {
	// Create has a pod made for this process, or takes one that is ready, by a name that is
	// new. The pod may not run yet. After an error there may be something to Remove.
	Create(ctx context.Context, name, template string) (*corev1.Pod, error)
	// Take makes an instance of it. The error is pods.ErrTaken if it is not this process's any
	// more.
	Take(ctx context.Context, ref pods.Ref, l pods.Lease) (*pods.Instance, error)
	// Remove asks for the end of what there may be by a name, and does not wait for it.
	Remove(ctx context.Context, ref pods.Ref) error
	// Destroy returns when the pod is gone.
	Destroy(ctx context.Context, ref pods.Ref) error

	// Created returns the instance that a creation with the key made, nil if there is none. The
	// API server is asked only if ask says so.
	Created(ctx context.Context, creation string, ask bool) (*pods.Instance, error)
	// Find returns an instance by the API server's own word, nil if there is none.
	Find(ctx context.Context, name string) (*pods.Instance, error)
	// Instances are those that go on, by the API server's own word, and KnownInstances those
	// of the watch.
	Instances(ctx context.Context) ([]*pods.Instance, error)
	KnownInstances() []*pods.Instance
	// SetExpiry writes down when an instance ends by itself.
	SetExpiry(ctx context.Context, name string, at time.Time) error
	// Sweep removes what earlier processes kept ready, and SweepEnded what has ended by itself.
	Sweep(ctx context.Context) error
	SweepEnded(ctx context.Context) error
}

var (
	_ way = (*pods.Store)(nil)
	_ way = (*claims.Store)(nil)
)

// Which way pods are made.
const (
	modeAuto         = "auto"
	modePods         = "pods"
	modeAgentSandbox = "agent-sandbox"
)

const (
	// untakenGrace is how long a claim may wait to be taken beyond create_timeout, and
	// untakenAge when it is given back before that: nobody gets one that the controller is
	// about to end.
	untakenGrace = 3 * time.Minute
	untakenAge   = time.Minute
	// claimsAtOnce is how many claims may wait at once. They cost this machine little.
	claimsAtOnce = 16
	// endPoolTime bounds the wait for the end of the pods that the cluster kept ready.
	endPoolTime = 15 * time.Second
)

// openClaims opens agent-sandbox's way where the cluster has it and the settings want it, or
// where an earlier process may have gone it. p.claims stays nil where it is not to be had.
func (p *Provider) openClaims(ctx context.Context, o claims.Options) error {
	p.ways = []way{p.store}
	err := claims.Detect(ctx, p.client, p.settings.Namespace)
	if err == nil {
		p.claims, err = claims.Open(ctx, o)
	}
	if err == nil {
		p.ways = append(p.ways, p.claims) // also for instances of an earlier process
		if p.settings.Mode != modePods {
			err = p.claims.Try(ctx)
		}
	}
	absent, is := errors.AsType[*claims.AbsentError](err)
	switch {
	case err == nil:
		return nil
	case p.settings.Mode == modePods:
		return nil
	case p.settings.Mode == modeAgentSandbox && is:
		return sdk.FieldErrorf(sdk.CodeInvalidConfig, "mode", "cannot be %q: %w", modeAgentSandbox, absent)
	case p.settings.Mode == modeAgentSandbox:
		return explainAPI(ctx, err, sdk.CodeInvalidConfig, "use agent-sandbox")
	case is && !absent.Served:
		p.logger.Debug("pods are made without agent-sandbox", "reason", absent)
	default:
		p.logger.Warn("pods are made without agent-sandbox, which the cluster has", "error", err)
	}
	return nil
}

// beginClaims has the cluster keep pods ready, if it is agent-sandbox that makes them. It
// falls back to plain pods where that is allowed.
func (p *Provider) beginClaims(ctx context.Context) error {
	p.maker.way = p.store
	if p.claims == nil || p.settings.Mode == modePods {
		return nil
	}
	err := p.claims.Begin(ctx, int(p.settings.PoolSize))
	switch {
	case err == nil:
		p.maker.byClaims(p.life, p.claims)
		return nil
	case p.settings.Mode == modeAgentSandbox && errors.Is(err, claims.ErrNoController):
		return sdk.FieldErrorf(sdk.CodeUnavailable, "mode", "cannot be %q now: %w", modeAgentSandbox, err)
	case p.settings.Mode == modeAgentSandbox:
		return explainAPI(ctx, err, sdk.CodeConnectionFailed, "use agent-sandbox")
	}
	p.logger.Warn("pods are made without agent-sandbox, which the cluster has", "error", err)
	return nil
}

// byClaims has pods made by claims from now on.
func (m *maker) byClaims(life context.Context, by *claims.Store) {
	a := newAhead(life, m, by.Waits)
	m.mu.Lock()
	m.way, m.ahead = by, a
	m.mu.Unlock()
	for _, pod := range m.store.Known() { // which ran before anybody was told
		a.changed(pod, pods.Ended(pod) != nil)
	}
}

// clustersPool says whether the cluster keeps pods ready, and not this process.
func (p *Provider) clustersPool() bool { return p.maker.ahead != nil }

// wayName is the way in which pods are made, for the operator.
func (p *Provider) wayName() string {
	if p.clustersPool() {
		return modeAgentSandbox
	}
	return modePods
}

// poolOptions are those of what waits for pods, and of the pods that this process keeps ready.
func (p *Provider) poolOptions() pool.Options[*sandbox] {
	s := p.settings
	o := pool.Options[*sandbox]{
		Make: p.maker.make, Templates: map[string]int{templatePython: 5, templateNode: 3, templateBash: 2},
		Final:         isFinal,
		Check:         func(ctx context.Context, s *sandbox) error { return s.guest.Check(ctx) },
		CheckInterval: checkInterval, CheckTimeout: checkTimeout, MaxAge: s.MaxAge,
		Size: int(s.PoolSize), Max: int(s.MaxSandboxes),
		MakeTimeout: s.CreateTimeout + makeGrace, Logger: p.logger,
	}
	if p.clustersPool() {
		// What a request did not wait for goes to the next, or ends soon.
		o.Size, o.MaxAge, o.Parallel = 0, untakenAge, claimsAtOnce
	}
	return o
}

// rebalance has the size of the cluster's pool thought about again.
func (p *Provider) rebalance() {
	select {
	case p.unbalanced <- struct{}{}:
	default:
	}
}

// keepBalance keeps what the cluster has ready, together with what is in use, within
// max_sandboxes. What is being made is not counted: until it is in use, it is one of those that
// are ready.
func (p *Provider) keepBalance() {
	for {
		select {
		case <-p.life.Done():
			return
		case <-p.unbalanced:
		}
		stats := p.pool.Stats()
		used := stats.InUse
		for _, n := range stats.Ready {
			used += n
		}
		size := min(int(p.settings.PoolSize), max(0, int(p.settings.MaxSandboxes)-used))
		if p.draining.Load() {
			size = 0
		}
		ctx, cancel := context.WithTimeout(p.life, cleanUp)
		if err := p.claims.Resize(ctx, size); err != nil && p.life.Err() == nil {
			p.logger.Warn("the size of the cluster's pool could not be changed", "size", size, "error", err)
		}
		cancel()
	}
}

// release gives the place of an instance back.
func (p *Provider) release() {
	p.pool.Release()
	p.rebalance()
}

// endClaims removes what the cluster keeps ready for this process.
func (p *Provider) endClaims(ctx context.Context) {
	if p.claims == nil {
		return
	}
	defer p.claims.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPoolTime)
	defer cancel()
	if p.maker.ahead != nil {
		p.maker.ahead.close()
	}
	if err := p.claims.End(ctx); err != nil {
		p.logger.Warn("the pool of the cluster is not gone", "error", err) // the next process sweeps it
	}
}

// describeClaims adds what the cluster keeps ready to what the operator is told.
func (p *Provider) describeClaims(ctx context.Context, h *sdk.Health) {
	if !p.clustersPool() {
		return
	}
	ready, of, err := p.claims.Ready(ctx)
	if err != nil {
		h.Details["warm_pool"] = "it is not there, or could not be asked for"
		p.logger.Warn("the cluster's pool does not answer", "error", err)
		return
	}
	prepared := p.maker.ahead.prepared()
	h.Details["warm_pool"] = fmt.Sprintf("%d of %d are ready, and %d prepared", ready, of, prepared)
	gauge := func(name, help string, value int) {
		h.Metrics = append(h.Metrics, sdk.Metric{Name: name, Help: help, Kind: sdk.MetricGauge, Value: float64(value)})
	}
	gauge("warm_pool_ready_sandboxes", "Pods that the cluster has ready for this broker.", ready)
	gauge("warm_pool_prepared_sandboxes", "Pods among those whose guests are ready too.", prepared)
}
