package provider

import (
	"context"
	"errors"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var (
	_ sdk.Pauser        = (*Provider)(nil)
	_ sdk.PauseReleaser = (*Provider)(nil)
	_ sdk.TTLSetter     = (*Provider)(nil)
	_ sdk.Meter         = (*Provider)(nil)
)

// betweenStates repeats what is refused while a sandbox goes from one state to another.
var betweenStates = retry.Policy{Attempts: 6, Min: 200 * time.Millisecond, Max: 2 * time.Second}

// PauseReleasing implements sdk.PauseReleaser. E2B counts no paused sandbox among those that may
// run at once.
func (p *Provider) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	err = p.Pause(ctx, instanceID)
	return err == nil, err
}

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
		var renewing errgroup.Group
		renewing.SetLimit(parallelRenewals)
		for _, sb := range p.due(time.Now()) {
			renewing.Go(func() error { sb.renew(p.life); return nil })
		}
		_ = renewing.Wait() // they say what failed
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

// A pause breaks every connection into a sandbox, while its processes only stand still.
// What listens to one waits until the sandbox goes on, and listens again.

// standStill notes that the sandbox is being paused, or is.
func (sb *sandbox) standStill() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.standing == nil {
		sb.standing = make(chan struct{})
		sb.standstills++
	}
}

// standstillCount returns how often a pause of the sandbox has begun.
func (sb *sandbox) standstillCount() int {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.standstills
}

// goOn notes that it runs.
func (sb *sandbox) goOn() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.standing != nil {
		close(sb.standing)
		sb.standing = nil
	}
}

// stands is closed when the sandbox goes on; nil if it runs.
func (sb *sandbox) stands() <-chan struct{} {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.standing
}

// awaitRunning waits until the sandbox is not paused.
func (sb *sandbox) awaitRunning(ctx context.Context) error {
	for {
		standing := sb.stands()
		if standing == nil {
			return ctx.Err()
		}
		select {
		case <-standing:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listens notes that the stream of a job is read, since the last pause.
func (sb *sandbox) listens(j *job) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.listeners == nil {
		sb.listeners = map[*job]int{}
	}
	sb.listeners[j] = sb.pauses
	sb.hear()
}

// leaves notes that nobody reads the stream of a job any more.
func (sb *sandbox) leaves(j *job) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	delete(sb.listeners, j)
	sb.hear()
}

// hear tells who waits for listeners. The caller holds mu.
func (sb *sandbox) hear() {
	if sb.heard != nil {
		close(sb.heard)
		sb.heard = nil
	}
}

// awaitListeners waits, after a pause, until all that listened listen again, so that
// nothing is lost of what follows on the resume.
func (sb *sandbox) awaitListeners(ctx context.Context) {
	for {
		sb.mu.Lock()
		missing := false
		for _, knows := range sb.listeners {
			missing = missing || knows < sb.pauses
		}
		if sb.heard == nil {
			sb.heard = make(chan struct{})
		}
		heard := sb.heard
		sb.mu.Unlock()
		if !missing {
			return
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
}

// standsStill says whether a sandbox is paused, by us or by somebody else: of that only
// the API knows.
func (sb *sandbox) standsStill(ctx context.Context) bool {
	if sb.stands() != nil {
		return true
	}
	detail, err := sb.p.inspect(ctx, sb.id)
	if err != nil || detail.State != control.StatePaused {
		return false
	}
	sb.mu.Lock()
	sb.paused = true
	sb.mu.Unlock()
	sb.standStill()
	return true
}

// listening is how often a process is asked for after a pause: a sandbox that has just
// been resumed may take a moment.
var listening = retry.Policy{Attempts: 20, Min: 50 * time.Millisecond, Max: time.Second}

// listeningTimeout bounds how long a resume waits for those who listen.
const listeningTimeout = 3 * time.Second

// listenAgain listens to a process again when the sandbox goes on.
func (sb *sandbox) listenAgain(ctx context.Context, pid int) (*envd.Process, error) {
	return retry.Do(ctx, listening, func(context.Context) (process *envd.Process, err error) {
		if err := sb.awaitRunning(ctx); err != nil {
			return nil, err
		}
		process, err = ask(ctx, sb, func(c *envd.Client) (*envd.Process, error) { return c.Connect(ctx, pid) })
		if status := statusOf(err); isLost(err) || status >= 500 || status == http.StatusConflict || status == http.StatusTooManyRequests {
			sb.standsStill(ctx)
			return process, retry.Again(err, 0)
		}
		return process, err
	})
}
