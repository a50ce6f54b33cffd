package provider

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// instance is a pod that a session was given.
type instance struct {
	sdk.Instance
	*sandbox
	env map[string]string
	// pooled says that it has a place in the pool of this process.
	pooled bool
	// creation is the idempotency key by which this process has made it.
	creation string

	installing sync.Mutex // installers of one language write to one directory

	mu     sync.Mutex
	expiry *time.Timer // nil if it does not expire
}

var (
	_ guestcalls.Instances = (*Provider)(nil)
	_ guestcalls.Instance  = (*instance)(nil)
)

var errNoInstance = &sdk.Error{Code: sdk.CodeNotFound, Message: "no such instance", NoEffect: true}

// lookUp returns an instance that this process knows, nil if it does not.
func (p *Provider) lookUp(id string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}

// find returns an instance, which an earlier process may have made.
func (p *Provider) find(ctx context.Context, id string) (*instance, error) {
	if i := p.lookUp(id); i != nil {
		return i, nil
	}
	if !nameForm20.MatchString(id) {
		return nil, errNoInstance
	}
	found, way, err := p.locate(ctx, id)
	switch {
	case err != nil:
		return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "look for the pod")
	case found == nil || found.Ended:
		return nil, errNoInstance
	}
	return p.adopt(ctx, found, way)
}

// adopt makes the instance of a pod that an earlier process took. Several may adopt one at
// once, and get the same.
func (p *Provider) adopt(ctx context.Context, found *pods.Instance, by way) (*instance, error) {
	release, err := p.adopting.Take(ctx, found.Name)
	if err != nil {
		return nil, err
	}
	defer release()
	if i := p.lookUp(found.Name); i != nil {
		return i, nil
	}
	authority, ok := p.maker.keys.of(found.Authority)
	if !ok {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the pod %s was made by a broker whose secret this one does not have: it cannot be used, and can be destroyed", found.Pod)
	}
	s := p.maker.track(found.Ref)
	s.way, s.fingerprint = by, guestlink.Fingerprint(found.Fingerprint)
	if err := p.maker.connect(s, authority); err != nil {
		p.maker.forget(s)
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	known, err := s.guest.Recall(bounded)
	if err != nil {
		p.maker.forget(s)
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the guest of the pod %s does not answer: %w", found.Pod, err)
	}
	p.maker.learn(known.Interpreters, known.NPM, false)
	i := &instance{Instance: p.described(found), sandbox: s, env: known.Env}
	p.add(i)
	return i, nil
}

// described is an instance as it is written down.
func (p *Provider) described(i *pods.Instance) sdk.Instance {
	return sdk.Instance{
		ID: i.Name, Template: i.Template, Labels: i.Labels, CreatedAt: i.Taken, ExpiresAt: i.Expires,
		Metadata: p.facts(),
	}
}

// describe is an instance as it is now.
func (i *instance) describe() sdk.Instance {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Instance
}

// add makes an instance known, until it ends.
func (p *Provider) add(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byID[i.ID] = i
	if !i.ExpiresAt.IsZero() {
		i.expireAt(i.ExpiresAt, func() { p.expire(i) })
	}
	p.serveRequested(i)
	p.background.Go(func() { p.noticeEnd(i) })
}

// noticeEnd frees what an instance holds when its pod ends by itself: the broker may never ask
// for the end of what is not listed any more.
func (p *Provider) noticeEnd(i *instance) {
	select {
	case <-i.exited:
	case <-p.life.Done():
		return
	}
	if p.lookUp(i.ID) == i {
		p.lose(i)
	}
}

func (i *instance) expireAt(at time.Time, expire func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Stop()
	}
	i.ExpiresAt, i.expiry = at, time.AfterFunc(time.Until(at), expire)
}

// leave lets go of an instance, which goes on.
func (i *instance) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.expiry != nil {
		i.expiry.Stop()
	}
	_ = i.guest.Close()
}

// expire ends an instance whose time is over, unless it was given more at that moment.
func (p *Provider) expire(i *instance) {
	if !i.isOver() {
		return
	}
	p.background.Go(func() {
		if !awaitLease(p.life) || !i.isOver() {
			return
		}
		ctx, cancel := context.WithTimeout(p.life, destroyTime)
		defer cancel()
		if err := p.Destroy(ctx, i.ID); err != nil {
			p.logger.Warn("an instance whose time is over is still there", "instance", i.ID, "error", err)
		}
	})
}

// isOver says whether the time of an instance is over.
func (i *instance) isOver() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !time.Now().Before(i.ExpiresAt)
}

// take removes an instance from those that are known; nil if it is not among them.
func (p *Provider) take(id string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.byID[id]
	delete(p.byID, id)
	if i != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.expiry != nil {
			i.expiry.Stop()
		}
	}
	return i
}

// lose ends an instance that is of no use any more. What it holds is freed in the background,
// for its caller has waited long enough.
func (p *Provider) lose(i *instance) {
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(p.life, destroyTime)
		defer cancel()
		if !i.hasEnded() {
			awaitLease(ctx)
		}
		if err := p.Destroy(ctx, i.ID); err != nil {
			p.logger.Warn("an instance that is of no use is still there", "instance", i.ID, "error", err)
		}
	})
}

// Reach implements guestcalls.Instances. No instance is ever paused.
func (p *Provider) Reach(ctx context.Context, id string) (guestcalls.Instance, func(), error) {
	i, err := p.find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return i, func() {}, nil
}

// Guest implements guestcalls.Instance.
func (i *instance) Guest() *guestclient.Client { return i.guest }

// Environment implements guestcalls.Instance.
func (i *instance) Environment(given map[string]string) map[string]string {
	env := maps.Clone(i.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, given)
	return env
}

// endingTime is how long Kubernetes may take to say that a pod has ended whose guest does
// not answer.
const endingTime = 5 * time.Second

// ended waits for the reason why the pod has ended; nil if it has not.
func (i *instance) ended(ctx context.Context) *pods.Ending {
	// The answer is for a caller who may have no patience left.
	ctx = context.WithoutCancel(ctx)
	timer := time.NewTimer(endingTime)
	defer timer.Stop()
	select {
	case <-i.exited:
	case <-timer.C:
		i.from.lookAt(ctx, i.sandbox) // the watch may have ended unseen
	}
	select {
	case <-i.exited:
		return i.ending
	default:
		return nil
	}
}

// Lost implements guestcalls.Instance.
func (i *instance) Lost(ctx context.Context) error {
	switch why := i.ended(ctx); {
	case why == nil:
		return sdk.Errorf(sdk.CodeUnavailable, "the connection to the sandbox broke during the call")
	case why.OutOfMemory:
		return sdk.Errorf(sdk.CodeUnavailable, "the programs and files in the sandbox took more memory than it has, and the sandbox was killed for it: "+
			"create a new instance, and use less memory in it or ask the operator for more than %d MiB", i.from.settings.MemoryMB)
	case why.Asked:
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	default:
		return sdk.Errorf(sdk.CodeUnavailable, "Kubernetes ended the sandbox during the call: %s", why)
	}
}

// Execute implements sdk.Provider.
func (p *Provider) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	i, err := p.find(ctx, req.InstanceID)
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	if req.Language == sdk.Bash && req.Arguments != nil {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main to give them to; use env")
	}
	env := i.Environment(req.Env)
	if req.ContextID != "" {
		env = req.Env // the context has the instance's since it was made
	}
	defer p.pool.Running()()
	started := time.Now()
	result, err := i.guest.Execute(ctx, req, env, out)
	if errors.Is(err, guestclient.ErrNotStarted) {
		p.lose(i)
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox did not take the code and was destroyed")
	}
	return p.resultOf(ctx, i, result, err, req.Timeout, started)
}

// resultOf says what it means that an execution, or an installation, that had begun has ended
// without a result.
func (p *Provider) resultOf(ctx context.Context, i *instance, result sdk.ExecuteResult, err error, timeout time.Duration, started time.Time) (sdk.ExecuteResult, error) {
	switch {
	case errors.Is(err, guestclient.ErrStuck):
		// A sandbox that does not even stop its code is destroyed.
		p.lose(i)
		return sdk.ExecuteResult{
			Status: sdk.StatusTimeout, ExitCode: 137, Duration: time.Since(started),
			Detail: guest.TimeoutDetail(timeout) + "; the sandbox did not answer any more and was destroyed",
		}, nil
	case errors.Is(err, guestclient.ErrGone):
	default:
		return result, err
	}
	killed := sdk.ExecuteResult{ExitCode: 137, Duration: time.Since(started)}
	switch why := i.ended(ctx); {
	case why == nil:
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the connection to the sandbox broke while the code ran, and the code was ended")
	case why.OutOfMemory:
		killed.Status, killed.Detail = sdk.StatusOutOfMemory, "the code used more memory than its sandbox has, and the sandbox was killed for it"
	case why.Asked:
		killed.Status, killed.Detail = sdk.StatusCancelled, "the instance was destroyed while the code ran"
	default:
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "Kubernetes ended the sandbox while the code ran: %s", why)
	}
	return killed, nil
}
