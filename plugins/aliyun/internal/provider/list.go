package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxPages bounds a list that does not end.
	maxPages = 1000
	// parallelLooks is how many sandboxes are looked at at once: one after the other,
	// some hundreds would take longer than the broker waits.
	parallelLooks = 32
)

// List implements sdk.Provider. The service's list can be late: what it has may be gone,
// and what it lacks and we have a record of may be there. So each is asked for by name.
func (p *Provider) List(ctx context.Context) ([]sdk.Instance, error) {
	known := p.records.All() // before, so that nothing made meanwhile is judged
	candidates, err := p.listed(ctx)
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the sandboxes")
	}
	listed := len(candidates)
	seen := map[string]bool{}
	for _, one := range candidates {
		seen[one.ID] = true
	}
	for _, one := range known {
		if seen[one.ID] {
			continue
		}
		if p.leases.hasEnded(one) {
			if err := p.forgetEnded(one); err != nil {
				return nil, err
			}
			continue
		}
		candidates = append(candidates, one)
	}
	lives, err := p.lookAt(ctx, candidates, listed)
	if err != nil {
		return nil, err
	}
	var alive []sdk.Instance
	for i, one := range candidates {
		if lives[i] {
			alive = append(alive, p.instance(one))
			continue
		}
		p.leases.end(one.ID)
		if err := p.forgetEnded(one); err != nil {
			return nil, err
		}
	}
	return alive, nil
}

// listed are those of ours that the service's list has.
func (p *Provider) listed(ctx context.Context) ([]record, error) {
	var found []record
	seen := map[string]bool{}
	token := ""
	for range maxPages {
		page, err := again(ctx, func(ctx context.Context) (agentrun.SandboxPage, error) { return p.control.ListSandboxes(ctx, token) })
		if err != nil {
			return nil, err
		}
		for _, s := range page.Items {
			if !p.owns(s.SandboxID) || seen[s.SandboxID] {
				continue
			}
			if s.Status != agentrun.StatusReady && s.Status != agentrun.StatusCreating && s.Status != agentrun.StatusPaused {
				continue
			}
			seen[s.SandboxID] = true
			one, ok := p.records.Get(s.SandboxID)
			if !ok {
				// Its ID says whose it is.
				one = record{ID: s.SandboxID, Labels: map[string]string{sdk.LabelBroker: p.brokerID}}
				if at, err := time.Parse(time.RFC3339, s.CreatedAt); err == nil {
					one.CreatedAt, one.ExpiresAt = at.UTC(), at.UTC().Add(maxLifetime)
				}
			}
			found = append(found, one)
		}
		if token = page.NextToken; token == "" {
			return found, nil
		}
	}
	return nil, fmt.Errorf("the list of sandboxes does not end after %d pages", maxPages)
}

// lookAt says which of these live. The first ones are in the service's list: they live
// unless they certainly do not.
func (p *Provider) lookAt(ctx context.Context, all []record, listed int) ([]bool, error) {
	lives, failures := make([]bool, len(all)), make([]error, len(all))
	var looking sync.WaitGroup
	places := make(chan struct{}, parallelLooks)
	for i, one := range all {
		places <- struct{}{}
		looking.Go(func() {
			defer func() { <-places }()
			s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, one.ID) })
			switch {
			case isMissing(err), err == nil && s.Status == agentrun.StatusTerminated:
			case err != nil && i >= listed:
				failures[i] = err
			default:
				lives[i] = true
			}
		})
	}
	looking.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, p.explain(ctx, err, sdk.CodeUnavailable, "look for a sandbox")
		}
	}
	return lives, nil
}

// forgetEnded drops the record of a sandbox that has ended, when it cannot live any more
// whatever the service says of it.
func (p *Provider) forgetEnded(one record) error {
	if time.Now().Before(one.ExpiresAt) {
		return nil
	}
	p.leases.forget(one.ID)
	return p.records.Remove(one.ID)
}
