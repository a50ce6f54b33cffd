package provider

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// instance is a sandbox that was given to a session.
type instance struct {
	sdk.Instance
	sandbox *sandbox
	env     map[string]string
	expiry  *time.Timer // nil if it does not expire
	key     string
	among   registry
	logger  hclog.Logger

	usage
	reuse bool // see reuse.wanted
	clean atomic.Bool
	// measuring is held by who freezes it, and read-held by measurements: whoever
	// looks on keeps nobody from pausing, who waits for the one in progress.
	measuring sync.RWMutex
	measured  sdk.InstanceMetrics // before it was paused

	installing sync.Mutex // installers of one language write to one directory

	ended  sync.Once
	reason reason // valid after ended
}

// registry is what an instance asks of those who know it.
type registry interface {
	// lookUp returns the instance with an ID that has not ended; nil if there is none.
	lookUp(instanceID string) *instance
	// lose takes back an instance that is of no use any more, and says whether it
	// had not ended.
	lose(i *instance) bool
	// running notes that code runs, until ended is called.
	running() (ended func())
}

// execute runs code in the instance.
func (i *instance) execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	done, err := i.use()
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	defer done()
	env := i.Environment(req.Env)
	if req.ContextID != "" {
		env = req.Env // the context has the instance's since it was made
	}
	defer i.among.running()()
	started := time.Now()
	result, err := i.sandbox.guest.Execute(ctx, req, env, out)
	i.clean.Store(err == nil && endedByItself(result))
	switch {
	case err == nil:
		return result, nil
	case errors.Is(err, guestclient.ErrNotStarted):
		i.among.lose(i)
		return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox did not take the code and was destroyed")
	default:
		return i.withoutResult(ctx, req.Timeout, started, err)
	}
}

// withoutResult says what it means that an execution, or an installation, that had begun
// has ended without a result.
func (i *instance) withoutResult(ctx context.Context, timeout time.Duration, started time.Time, err error) (sdk.ExecuteResult, error) {
	switch {
	case errors.Is(err, guestclient.ErrStuck):
		// A sandbox that does not even stop its code is destroyed.
		i.among.lose(i)
		return sdk.ExecuteResult{
			Status: sdk.StatusTimeout, ExitCode: 137, Duration: time.Since(started),
			Detail: guest.TimeoutDetail(timeout) + "; the sandbox did not answer any more and was destroyed",
		}, nil
	case errors.Is(err, guestclient.ErrGone):
		return i.executionLost(ctx, started)
	default:
		return sdk.ExecuteResult{}, err
	}
}

// Environment implements guestcalls.Instance: it is the instance's, and over it the given variables.
func (i *instance) Environment(given map[string]string) map[string]string {
	env := maps.Clone(i.env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, given)
	return env
}

// pause freezes the instance. What only looks on, a watch or whoever reads along,
// stands still with the rest.
func (i *instance) pause(ctx context.Context) error {
	needed, err := i.beginSwitch(true)
	if err != nil || !needed {
		return err
	}
	// Who measures does not ask a guest that is frozen.
	i.measuring.Lock()
	defer i.measuring.Unlock()
	err = i.freeze(ctx)
	i.endSwitch(err == nil)
	return err
}

// freeze pauses the sandbox of an instance that nobody uses.
func (i *instance) freeze(ctx context.Context) (err error) {
	// Nobody answers that while it is frozen.
	if i.measured, err = i.measure(ctx); err != nil {
		return err
	}
	if err := i.sandbox.Pause(ctx); err != nil {
		// Whatever has been done of it is undone: nobody would thaw what does not
		// count as frozen.
		thawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), guestcalls.AnswerBound)
		defer cancel()
		_ = i.sandbox.Resume(thawing) // it fails for one that runs
		return err
	}
	return nil
}

// resume lets the instance go on.
func (i *instance) resume(ctx context.Context) error {
	needed, err := i.beginSwitch(false)
	if err != nil || !needed {
		return err
	}
	err = i.sandbox.Resume(ctx)
	i.endSwitch(err != nil)
	return err
}

// metrics are what the instance uses now, or has used before it was paused.
func (i *instance) metrics(ctx context.Context) (sdk.InstanceMetrics, error) {
	if !i.measuring.TryRLock() {
		return sdk.InstanceMetrics{}, errPausing
	}
	defer i.measuring.RUnlock()
	if i.isPaused() {
		return i.measured, nil
	}
	return i.measure(ctx)
}

// measure asks the guest what its sandbox uses.
func (i *instance) measure(ctx context.Context) (sdk.InstanceMetrics, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, guestcalls.AnswerBound, guestcalls.ErrNoAnswer)
	defer cancel()
	m, err := i.sandbox.measure(bounded)
	if err != nil {
		return sdk.InstanceMetrics{}, guestcalls.Explain(ctx, bounded, i, err)
	}
	return m, nil
}
