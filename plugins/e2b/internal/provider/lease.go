package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// renewLeases extends the sandboxes that are to live longer, until the provider ends.
// E2B counts no work as a reason to let a sandbox live.
func (p *Provider) renewLeases() {
	ticker := time.NewTicker(p.patience.renewals)
	defer ticker.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
		}
		p.forgetEnded(time.Now())
		var renewing sync.WaitGroup
		places := make(chan struct{}, parallelRenewals)
		for _, sb := range p.due(time.Now()) {
			places <- struct{}{}
			renewing.Go(func() {
				defer func() { <-places }()
				sb.renew(p.life)
			})
		}
		renewing.Wait()
	}
}

const parallelRenewals = 8

// due are the sandboxes whose lease should be longer: a third of it is over.
func (p *Provider) due(now time.Time) []*sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due []*sandbox
	for _, sb := range p.sandboxes {
		sb.mu.Lock()
		if !sb.paused && sb.endAt.Before(sb.deadline) && sb.endAt.Sub(now) < p.settings.Timeout*2/3 {
			due = append(due, sb)
		}
		sb.mu.Unlock()
	}
	return due
}

// forgetEnded forgets the sandboxes that E2B must have ended by now. If it has not, the
// next call for one finds it again.
func (p *Provider) forgetEnded(now time.Time) {
	var ended []string
	p.mu.Lock()
	p.forgetFailed(now)
	for id, sb := range p.sandboxes {
		sb.mu.Lock()
		if !sb.paused && now.Sub(sb.endAt) > time.Minute {
			ended = append(ended, id)
		}
		sb.mu.Unlock()
	}
	p.mu.Unlock()
	for _, id := range ended {
		p.drop(id)
	}
}

// renew extends the lease of a sandbox.
func (sb *sandbox) renew(ctx context.Context) {
	sb.mu.Lock()
	now := time.Now()
	life := min(sb.p.settings.Timeout, sb.deadline.Sub(now))
	sb.mu.Unlock()
	if life <= 0 {
		return
	}
	err := sb.p.api.SetTimeout(ctx, sb.id, life)
	switch {
	case err == nil:
		sb.leased(now.Add(life))
	case isAbsent(err, sb.id):
		// It is forgotten if a second look says the same.
		if _, err := sb.p.inspect(ctx, sb.id); err != nil && !errors.Is(err, errNoInstance) {
			sb.p.logger.Warn("the life of a sandbox could not be extended; it is tried again", "sandbox", sb.id, "error", err)
		}
	case statusOf(err) == http.StatusBadRequest:
		sb.p.logger.Info("a sandbox has lived as long as the plan allows; it will end", "sandbox", sb.id, "error", sb.p.failure(err))
		sb.mu.Lock()
		sb.deadline = sb.endAt
		sb.mu.Unlock()
	default:
		sb.p.logger.Warn("the life of a sandbox could not be extended; it is tried again", "sandbox", sb.id, "error", sb.p.failure(err))
	}
}

func (sb *sandbox) leased(until time.Time) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.endAt = until
}
