package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var (
	_ sdk.Pauser    = (*Provider)(nil)
	_ sdk.TTLSetter = (*Provider)(nil)
	_ sdk.Meter     = (*Provider)(nil)
)

// betweenStates repeats what is refused while a sandbox goes from one state to another.
var betweenStates = retry.Policy{Attempts: 6, Min: 200 * time.Millisecond, Max: 2 * time.Second}

// Pause implements sdk.Pauser. The memory stays at E2B, for as long as the instance is
// not destroyed.
func (p *Provider) Pause(ctx context.Context, instanceID string) error {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	sb.standStill() // before connections break
	_, err = retry.Do(ctx, betweenStates, func(ctx context.Context) (struct{}, error) {
		_, err := again(ctx, p.retry, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.api.Pause(ctx, sb.id) })
		if statusOf(err) != http.StatusConflict {
			return struct{}{}, err
		}
		detail, inspected := p.inspect(ctx, sb.id)
		if inspected != nil || detail.State == control.StatePaused {
			return struct{}{}, inspected
		}
		return struct{}{}, retry.Again(err, 0)
	})
	if err != nil {
		if !sb.isPaused() { // what listens finds out how it is
			sb.goOn()
		}
		return p.ofInstance(ctx, sb.id, err)
	}
	sb.mu.Lock()
	if !sb.paused {
		sb.pauses++
	}
	sb.paused = true
	sb.mu.Unlock()
	p.usage.finish(sb.id)
	return nil
}

// Resume implements sdk.Pauser.
func (p *Provider) Resume(ctx context.Context, instanceID string) error {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return err
	}
	now := time.Now()
	made, err := retry.Do(ctx, betweenStates, func(ctx context.Context) (control.Sandbox, error) {
		made, err := again(ctx, p.retry, func(ctx context.Context) (control.Sandbox, error) {
			return p.api.Connect(ctx, sb.id, p.settings.Timeout)
		})
		if statusOf(err) == http.StatusConflict {
			err = retry.Again(err, 0)
		}
		return made, err
	})
	if err != nil {
		return p.ofInstance(ctx, sb.id, err)
	}
	sb.connected(made)
	sb.mu.Lock()
	resumed := sb.paused
	sb.paused = false
	if until := now.Add(p.settings.Timeout); until.After(sb.endAt) {
		sb.endAt = until
	}
	if sb.deadline.Before(now) { // it was over while it was paused
		sb.deadline = sb.endAt
	}
	sb.mu.Unlock()
	sb.goOn()
	if resumed {
		p.usage.begin(sb.id)
		waiting, cancel := context.WithTimeout(ctx, listeningTimeout)
		defer cancel()
		sb.awaitListeners(waiting)
	}
	return nil
}

// SetTTL implements sdk.TTLSetter. E2B is told no more than the timeout; the lease is
// renewed until then.
func (p *Provider) SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (time.Time, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	deadline, life := now.Add(ttl), min(ttl, p.settings.Timeout)
	if !sb.isPaused() {
		_, err = again(ctx, p.retry, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.api.SetTimeout(ctx, sb.id, life)
		})
		if err != nil {
			return time.Time{}, p.ofInstance(ctx, sb.id, err)
		}
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.endAt, sb.deadline = now.Add(life), deadline
	return deadline, nil
}

// ofInstance is failure for calls about one sandbox. It takes two answers to end what may
// run there.
func (p *Provider) ofInstance(ctx context.Context, id string, err error) error {
	if isAbsent(err, id) {
		if _, gone := p.inspect(ctx, id); gone != nil {
			return gone
		}
		return p.redact.Error(sdk.Errorf(sdk.CodeUnavailable, "E2B does not know the instance at one moment, and does at the next: %w", err))
	}
	return p.failure(err)
}

func (sb *sandbox) isPaused() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.paused
}

// InstanceMetrics implements sdk.Meter. The numbers are those of the whole virtual
// machine; envd does not count CPU time.
func (p *Provider) InstanceMetrics(ctx context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return sdk.InstanceMetrics{}, err
	}
	m, err := ask(ctx, sb, func(c *envd.Client) (envd.Metrics, error) { return c.Metrics(ctx) })
	if err != nil {
		return sdk.InstanceMetrics{}, sb.explain(ctx, err)
	}
	return sdk.InstanceMetrics{
		MeasuredAt: time.Now(), CPULimit: m.CPUCount, Memory: m.MemUsed, MemoryLimit: m.MemTotal, Disk: m.DiskUsed, DiskLimit: m.DiskTotal,
	}, nil
}
