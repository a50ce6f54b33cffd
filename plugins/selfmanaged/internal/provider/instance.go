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
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// instance is a sandbox that was given to a session.
type instance struct {
	sdk.Instance
	body
	kind   string // in the pool
	env    map[string]string
	expiry *time.Timer // nil if it does not expire
	key    string
	among  registry
	logger hclog.Logger

	usage
	volumes bool // it has some

	reuse bool // see reuse.wanted
	clean atomic.Bool
	// measuring is held by who freezes it, and read-held by measurements: whoever
	// looks on keeps nobody from pausing, who waits for the one in progress.
	measuring sync.RWMutex
	measured  sdk.InstanceMetrics // before it was paused

	installing sync.Mutex // installers of one language write to one directory
	// writing is held from when the guest is told a token until the checkpoint has it.
	writing keylock.Locks[struct{}]
	network network

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
	result, err := i.sandbox().guest.Execute(ctx, req, env, out)
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
	return i.withNetwork(env)
}

// pause has the instance stand still, and says whether it gave back its memory. What only
// looks on, a watch or whoever reads along, stands still with the rest of a frozen one, and is
// told that it is paused by one that gave back its memory.
func (i *instance) pause(ctx context.Context, all *asides) (released bool, err error) {
	needed, err := i.beginSwitch(true)
	if err != nil || !needed {
		return i.isAside() != nil, err
	}
	// Who measures does not ask a guest that is frozen.
	i.measuring.Lock()
	defer i.measuring.Unlock()
	released, err = all.put(ctx, i)
	i.endSwitch(err == nil)
	if err != nil {
		i.catchUpNetwork(ctx)
	}
	return released, err
}

// freeze pauses the sandbox of an instance that nobody uses.
func (i *instance) freeze(ctx context.Context) (err error) {
	// Nobody answers that while it is frozen.
	if i.measured, err = i.measure(ctx); err != nil {
		return err
	}
	if err := i.sandbox().Pause(ctx); err != nil {
		// Whatever has been done of it is undone: nobody would thaw what does not
		// count as frozen.
		i.thaw(ctx)
		return err
	}
	return nil
}

// thaw undoes a freeze. It does nothing to a sandbox that runs.
func (i *instance) thaw(ctx context.Context) {
	thawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), guestcalls.AnswerBound)
	defer cancel()
	if err := i.sandbox().Resume(thawing); err != nil { // as it does for one that runs
		i.logger.Debug("a sandbox was not thawed", "instance", i.ID, "error", err)
	}
}

// resume lets the instance go on. awake is called where it is in another sandbox then.
func (i *instance) resume(ctx context.Context, all *asides, awake func()) error {
	needed, err := i.beginSwitch(false)
	if err != nil || !needed {
		return err
	}
	put := i.isAside()
	if put != nil {
		err = all.back(ctx, i, put)
	} else {
		err = i.sandbox().Resume(ctx)
	}
	if err == nil && put != nil {
		// Before anybody uses it: what it starts is told where its proxy is.
		i.reopenNetwork(ctx)
	}
	i.endSwitch(err != nil)
	if err != nil {
		return err
	}
	if put != nil {
		awake()
	}
	i.catchUpNetwork(ctx)
	return nil
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
	m, err := i.sandbox().measure(bounded)
	if err != nil {
		return sdk.InstanceMetrics{}, guestcalls.Explain(ctx, bounded, i, err)
	}
	return m, nil
}
