package provider

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

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
	found, err := p.listed(ctx, p.owns)
	if err != nil {
		return nil, p.explain(ctx, err, sdk.CodeUnavailable, "list the sandboxes")
	}
	var candidates []record
	listed := map[string]bool{}
	for _, s := range found {
		one, ok := p.records.Get(s.SandboxID)
		if !ok {
			one = recordOf(s, p.brokerID)
		}
		candidates = append(candidates, one)
		listed[one.ID] = true
	}
	var unlisted []record
	for _, one := range known {
		if listed[one.ID] {
			continue
		}
		if !p.owns(one.ID) || p.leases.hasEnded(one) {
			if err := p.forgetEnded(one); err != nil {
				return nil, err
			}
			continue
		}
		unlisted = append(unlisted, one)
	}
	// The list stands without a look at what is in it. What it lacks must be looked at, and
	// comes first.
	others, ended, unknown := p.lookAt(ctx, unlisted)
	if unknown != nil {
		return nil, p.explain(ctx, unknown, sdk.CodeUnavailable, "look for a sandbox")
	}
	inTime, cancel := mostOf(ctx)
	defer cancel()
	alive, endedToo, _ := p.lookAt(inTime, candidates)
	if ctx.Err() != nil {
		return nil, p.explain(ctx, ctx.Err(), sdk.CodeUnavailable, "look at the sandboxes")
	}
	for _, one := range slices.Concat(ended, endedToo) {
		if err := p.forgetEnded(one); err != nil {
			return nil, err
		}
	}
	var all []sdk.Instance
	for _, one := range slices.Concat(alive, others) {
		all = append(all, p.instance(one))
	}
	return all, nil
}

// mostOf is a context for what may be left out: it ends while there is time yet to say what
// was found out.
func mostOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*2/3)
}

// recordOf is the record of a sandbox of which there is none here: its ID says whose it is.
func recordOf(s agentrun.Sandbox, brokerID string) record {
	one := record{
		ID: s.SandboxID, Labels: map[string]string{sdk.LabelBroker: brokerID}, Idle: time.Duration(s.SandboxIdleTimeoutSeconds) * time.Second,
	}
	if at, err := time.Parse(time.RFC3339, s.CreatedAt); err == nil {
		one.CreatedAt, one.ExpiresAt = at.UTC(), at.UTC().Add(maxLifetime)
	}
	return one
}

// listed are those that the service's list has, of some of the account's.
func (p *Provider) listed(ctx context.Context, some func(id string) bool) ([]agentrun.Sandbox, error) {
	var found []agentrun.Sandbox
	seen := map[string]bool{}
	token := ""
	for range maxPages {
		page, err := again(ctx, func(ctx context.Context) (agentrun.SandboxPage, error) { return p.control.ListSandboxes(ctx, token) })
		if err != nil {
			return nil, err
		}
		for _, s := range page.Items {
			if !some(s.SandboxID) || seen[s.SandboxID] {
				continue
			}
			if s.Status != agentrun.StatusReady && s.Status != agentrun.StatusCreating && s.Status != agentrun.StatusPaused {
				continue
			}
			seen[s.SandboxID] = true
			found = append(found, s)
		}
		if token = page.NextToken; token == "" {
			return found, nil
		}
	}
	return nil, fmt.Errorf("the list of sandboxes does not end after %d pages", maxPages)
}

// lookAt returns those that live or may live, and those that have ended. If it could not
// find out about one of the former, unknown says why. What has ended is kept in mind
// whatever becomes of the others, so that the next list need not look at it again.
func (p *Provider) lookAt(ctx context.Context, all []record) (alive, ended []record, unknown error) {
	gone, failures := make([]bool, len(all)), make([]error, len(all))
	var looking errgroup.Group
	looking.SetLimit(parallelLooks)
	for i, one := range all {
		looking.Go(func() error {
			gone[i], failures[i] = p.look(ctx, one.ID)
			return nil
		})
	}
	_ = looking.Wait() // what failed is in failures
	for i, one := range all {
		if gone[i] {
			ended = append(ended, one)
			continue
		}
		alive = append(alive, one)
		if unknown == nil {
			unknown = failures[i]
		}
	}
	return alive, ended, unknown
}

// look says whether a sandbox has ended.
func (p *Provider) look(ctx context.Context, id string) (ended bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s, err := again(ctx, func(ctx context.Context) (agentrun.Sandbox, error) { return p.data.GetSandbox(ctx, id) })
	if isMissing(err) {
		s.Status, err = agentrun.StatusTerminated, nil
	}
	if err != nil || s.Status != agentrun.StatusTerminated {
		return false, err
	}
	p.leases.end(id)
	return true, nil
}

// forgetEnded drops the record of a sandbox that has ended, when it cannot live any more
// whatever the service says of it.
func (p *Provider) forgetEnded(one record) error {
	if time.Now().Before(one.ExpiresAt) {
		return nil
	}
	p.adopted.forget(one.ID)
	return p.forget(one.ID)
}
