package instance

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
)

// lifecycle is how long the parts of a service work, and within which limits.
type lifecycle struct {
	logger  hclog.Logger
	bounds  atomic.Pointer[Limits]
	started time.Time

	mu       sync.Mutex
	draining bool
	// calls counts requests in progress and creations. Add is called under mu and never
	// when draining, or by who is counted already, as WaitGroup demands.
	calls sync.WaitGroup
	// lifetime ends executions and creations when the broker stops, cleanup
	// ends destruction when that has taken too long.
	// watching ends already when the drain begins, for those who only look on.
	lifetime    context.Context
	endLifetime context.CancelCauseFunc
	watching    context.Context
	endWatching context.CancelFunc
	cleanup     context.Context
	endCleanup  context.CancelFunc
	tasks       *background.Group
}

func newLifecycle(logger hclog.Logger, limits Limits) *lifecycle {
	l := &lifecycle{logger: logger, started: time.Now(), tasks: background.NewGroup(logger)}
	l.bounds.Store(&limits)
	l.lifetime, l.endLifetime = context.WithCancelCause(context.Background())
	l.watching, l.endWatching = context.WithCancel(l.lifetime)
	l.cleanup, l.endCleanup = context.WithCancel(context.Background())
	return l
}

func (l *lifecycle) limits() Limits { return *l.bounds.Load() }

// begin registers a call; the caller must call calls.Done when it ends.
func (l *lifecycle) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining {
		return shuttingDown()
	}
	l.calls.Add(1)
	return nil
}

// drain refuses new work from now on, ends what only watches, and waits for the calls.
// When ctx ends first they are cancelled; it still waits for them to notice.
func (l *lifecycle) drain(ctx context.Context) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	l.endWatching()

	stop := context.AfterFunc(ctx, func() { l.endLifetime(errShuttingDown) })
	defer stop()
	l.calls.Wait()
}

func (l *lifecycle) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// noting returns a context for what is written down although nobody waits for it, or
// nobody may stop it.
func (l *lifecycle) noting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.cleanup, cmp.Or(l.limits().DiskTimeout, 30*time.Second))
}

// bounded returns a context for a call that ends with ctx, with errNoAnswer after d, or
// with errShuttingDown when the broker stops.
func (l *lifecycle) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, d, errNoAnswer)
	stop := context.AfterFunc(l.lifetime, func() { cancelCause(errShuttingDown) })
	return ctx, func() {
		stop()
		cancel()
		cancelCause(nil)
	}
}

// slack is how much longer than MaxLifetime a provider is told to keep an
// instance. Its clock starts when the creation does, ours when that has ended;
// and at the end of the maximum lifetime a running execution may finish, and the
// destruction is ours to do.
func (l Limits) slack() time.Duration {
	return l.CreateTimeout + l.MaxTimeout + answerGrace + reapInterval + destroyTimeout
}
