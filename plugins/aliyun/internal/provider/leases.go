package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun"
)

const (
	// parallelRenewals is how many sandboxes are kept alive at once.
	parallelRenewals = 8
	// renewalInterval is how often it is looked which are due: a sixth of the shortest idle
	// timeout, which those may have that are adopted.
	renewalInterval = minIdleTimeout / 6
)

// leases are what keeps sandboxes alive. The service ends one that nobody has asked for
// anything for its idle timeout, and that is short: who asks is the provider, so that
// sandboxes end soon after it.
type leases struct {
	mu sync.Mutex
	// used is when each sandbox has answered last.
	used map[string]time.Time
	// ended are those that have lived and do not any more.
	ended map[string]bool
}

func (l *leases) touch(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used[id] = time.Now()
}

func (l *leases) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[id] = true
	delete(l.used, id)
}

func (l *leases) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ended, id)
	delete(l.used, id)
}

// hasEnded says whether a sandbox was seen to have ended. One that never could run code
// may just be made.
func (l *leases) hasEnded(one record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[one.ID] && one.made()
}

// due says whether a sandbox has to be asked for something: a third of its idle timeout is
// over. That is idle where its record says no other.
func (l *leases) due(one record, now time.Time, idle time.Duration) bool {
	if one.Paused || !one.made() || !one.KeepUntil.IsZero() && now.After(one.KeepUntil) || l.hasEnded(one) {
		return false
	}
	if one.Idle > 0 {
		idle = one.Idle
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.used[one.ID]) >= idle/3
}

// keepAlive asks the sandboxes of living instances whether they are well, until ctx ends.
func (p *Provider) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(renewalInterval)
	defer ticker.Stop()
	for {
		var asking errgroup.Group
		asking.SetLimit(parallelRenewals)
		for _, one := range p.records.All() {
			if p.owns(one.ID) && p.leases.due(one, time.Now(), p.settings.IdleTimeout) {
				asking.Go(func() error { p.renew(ctx, one.ID); return nil })
			}
		}
		_ = asking.Wait() // they say what failed
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// renew has the service begin to count anew.
func (p *Provider) renew(ctx context.Context, id string) {
	_, err := p.data.Ready(ctx, id)
	switch {
	case err == nil || ctx.Err() != nil:
	case isMissing(err):
		p.leases.end(id)
	default:
		p.log.Warn("the life of a sandbox could not be extended; it is tried again", "sandbox", id, "error", p.secrets.Error(err))
	}
}

// inside is the data plane as the provider uses it: what a sandbox answers extends its
// life, and what it refuses is looked into.
type inside struct {
	dataPlane
	leases *leases
}

// judge looks what a failure means: a sandbox that has ended can be told of in many ways.
func (d inside) judge(ctx context.Context, id string, err error) error {
	f, ok := errors.AsType[*agentrun.Failure](err)
	switch {
	case err == nil:
		d.leases.touch(id)
		return nil
	case !ok, f.Missing(), f.Stray(), f.Throttled(), f.Refused(), f.Status == http.StatusGatewayTimeout, f.Code == agentrun.InvalidAnswer:
		return err
	}
	s, looked := d.GetSandbox(ctx, id)
	if isMissing(looked) || looked == nil && s.Status == agentrun.StatusTerminated {
		refused := f.Status >= http.StatusBadRequest && f.Status < http.StatusInternalServerError && f.Status != http.StatusRequestTimeout
		return &agentrun.Failure{Status: http.StatusNotFound, Code: agentrun.NotFound, Message: "the sandbox has ended: " + f.Message, RequestID: f.RequestID, Open: !refused}
	}
	return err
}

func (d inside) Ready(ctx context.Context, id string) (bool, error) {
	ready, err := d.dataPlane.Ready(ctx, id)
	if err == nil {
		d.leases.touch(id)
	}
	return ready, err
}

func (d inside) RunCommand(ctx context.Context, id, command, cwd string, timeout time.Duration) (agentrun.CommandResult, error) {
	r, err := d.dataPlane.RunCommand(ctx, id, command, cwd, timeout)
	return r, d.judge(ctx, id, err)
}

func (d inside) Upload(ctx context.Context, id, file string, content []byte) error {
	return d.judge(ctx, id, d.dataPlane.Upload(ctx, id, file, content))
}

func (d inside) Download(ctx context.Context, id, file string) (io.ReadCloser, error) {
	content, err := d.dataPlane.Download(ctx, id, file)
	return content, d.judge(ctx, id, err)
}

func (d inside) CreateContext(ctx context.Context, id, language, cwd string) (agentrun.Context, error) {
	made, err := d.dataPlane.CreateContext(ctx, id, language, cwd)
	return made, d.judge(ctx, id, err)
}

func (d inside) ExecuteCode(ctx context.Context, id, contextID, code string, timeout time.Duration) (agentrun.CodeResult, error) {
	r, err := d.dataPlane.ExecuteCode(ctx, id, contextID, code, timeout)
	return r, d.judge(ctx, id, err)
}
