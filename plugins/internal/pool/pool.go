package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Sandbox is what the pool keeps.
type Sandbox interface {
	// Exited is closed when the sandbox has ended.
	Exited() <-chan struct{}
	// Destroy ends it and frees what it holds.
	Destroy(ctx context.Context) error
}

// Options of a Pool.
type Options[S Sandbox] struct {
	// Make makes a sandbox for a template. It is called from several
	// goroutines at once.
	Make func(ctx context.Context, template string) (S, error)
	// Final says whether an error of Make comes again until somebody does something: those who
	// wait are told it at once, as it is. nil for none.
	Final func(err error) bool
	// Check asks a ready sandbox whether it is well. An error means that it is
	// of no use. nil for no checks.
	Check func(ctx context.Context, sandbox S) error
	// Templates with their share of the pool: as if each was asked for so often in every
	// minute, beside the requests that there are.
	Templates map[string]int
	// Size is how many sandboxes are kept ready, over all templates.
	Size int
	// Parallel is how many are made at once for those who wait; 0 for as many as there are
	// processors.
	Parallel int
	// Max bounds all sandboxes that exist, those in use too.
	Max int
	// MakeTimeout bounds one call of Make.
	MakeTimeout time.Duration
	// CheckInterval is the time between two checks of a ready sandbox,
	// CheckTimeout bounds one.
	CheckInterval, CheckTimeout time.Duration
	// MaxAge is how long a sandbox may be ready before another takes its place;
	// 0 for ever.
	MaxAge time.Duration
	// KeepFor is how long a sandbox waits for its tenant to want it again.
	KeepFor time.Duration
	Logger  hclog.Logger
}

// Pool keeps sandboxes ready.
type Pool[S Sandbox] struct {
	o      Options[S]
	ctx    context.Context // ends with Close; bounds making
	cancel context.CancelFunc
	wg     sync.WaitGroup // sandboxes, from their making until they are gone

	mu       sync.Mutex
	closed   bool
	draining bool                   // nothing is kept ready any more
	ready    map[string][]*entry[S] // the oldest first
	kept     []*kept[S]             // the latest last
	outgoing *entry[S]              // ready, and being replaced
	making   map[string]int
	inUse    int // retiring ones too
	retiring int
	waiters  queue[S]
	demand   map[string]*demand
	began    time.Time
	running  int         // executions
	deferred *time.Timer // what can wait is made when it ends; nil for nothing that waits
	overdue  bool        // it has ended
	failures int         // in a row
	failure  error       // the last of them
	retry    *time.Timer
	counts   Counts
	// handedOut by template.
	handedOut map[string]HandOuts
	// tailored makes the sandboxes that suit one request alone, by the template that they
	// count as; tailorings counts all that there were.
	tailored   map[string]func(ctx context.Context) (S, error)
	tailorings int

	tried    chan struct{} // closed when the first try to make a sandbox is over
	triedOne sync.Once
	firstErr error
}

// New starts filling a pool. The caller owes a Close.
func New[S Sandbox](o Options[S]) *Pool[S] {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool[S]{
		o: o, ctx: ctx, cancel: cancel,
		ready: map[string][]*entry[S]{}, making: map[string]int{}, demand: map[string]*demand{}, began: time.Now(), handedOut: map[string]HandOuts{},
		tailored: map[string]func(ctx context.Context) (S, error){},
		waiters:  queue[S]{waiting: map[string]int{}}, tried: make(chan struct{}),
	}
	for template, share := range o.Templates {
		p.demand[template] = &demand{share: share}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule()
	return p
}

// destroyTimeout bounds the destruction of a sandbox that nobody got.
const destroyTimeout = 10 * time.Second

// Request asks for a sandbox.
type Request struct {
	Template string
	// Tenant is who asks. Those who wait take turns by it.
	Tenant string
	// Patience is how long to wait for a sandbox.
	Patience time.Duration
	// Reuse prefers a sandbox that the same tenant has had before; see Keep.
	Reuse bool
	// MaxQueue, if not nil, is how long to wait where one of those in use has to end
	// first, if that is less.
	MaxQueue *time.Duration
}

// Acquire returns a sandbox that nobody used before, or with Reuse perhaps one that the
// tenant has. The caller owes a Release or a Keep.
// When none comes before ctx ends, the error is ctx's; when patience is over, it
// is CodeCreateFailed and says how deep the queue was; CodeQuotaExceeded when it was
// MaxQueue that was over.
func (p *Pool[S]) Acquire(ctx context.Context, req Request) (S, error) {
	return p.acquire(ctx, req, nil)
}

// AcquireTailored is Acquire for a sandbox that suits this request alone: tailored makes it,
// in its turn and in its place among all that there may be. Its error is that of the
// call. Reuse has no meaning.
func (p *Pool[S]) AcquireTailored(ctx context.Context, req Request, tailored func(ctx context.Context) (S, error)) (S, error) {
	req.Reuse = false
	return p.acquire(ctx, req, tailored)
}

func (p *Pool[S]) acquire(ctx context.Context, req Request, tailored func(ctx context.Context) (S, error)) (S, error) {
	var none S
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return none, errClosed()
	}
	if s, ok := p.takeKept(req); ok {
		p.mu.Unlock()
		return s, nil
	}
	template := req.Template
	if tailored != nil {
		template = p.tailor(template, tailored)
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.tailored, template)
		}()
	} else {
		p.want(template)
	}
	if i := slices.IndexFunc(p.ready[template], (*entry[S]).alive); i >= 0 {
		s := p.take(p.ready[template][i])
		p.counts.Hits++
		p.handOut(req.Template, true)
		p.scheduleSoon()
		p.mu.Unlock()
		return s, nil
	}
	w := &waiter[S]{tenant: req.Tenant, template: template, reuse: req.Reuse, got: make(chan S, 1), failed: make(chan error, 1)}
	before, own := p.waiters.push(w)
	full := before+1 > p.o.Max-p.inUse // even if what is ready for others is retired
	p.counts.Waits++
	p.schedule()
	p.mu.Unlock()
	return p.await(ctx, req, w, full, before, own)
}

// await waits for what a waiter in the queue wants. before is how many were in it, and own
// how many of them of the same tenant; full says that one in use has to end first.
func (p *Pool[S]) await(ctx context.Context, req Request, w *waiter[S], full bool, before, own int) (S, error) {
	var none S
	began := time.Now()
	defer func() { p.waited(time.Since(began)) }()
	patience, late := req.Patience, sdk.CodeCreateFailed
	if full && req.MaxQueue != nil && *req.MaxQueue < patience {
		patience, late = *req.MaxQueue, sdk.CodeQuotaExceeded
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s := <-w.got:
		if !w.place {
			p.mu.Lock()
			p.handOut(req.Template, false)
			p.mu.Unlock()
		}
		return s, nil
	case err := <-w.failed:
		return none, err
	case <-ctx.Done():
		return none, p.leave(w, ctx.Err())
	case <-timer.C:
		return none, p.leave(w, sdk.Errorf(late,
			"no sandbox became free within %s; %d requests were waiting when this one came, %d of them of this tenant", patience, before, own))
	}
}

func errClosed() error { return sdk.Errorf(sdk.CodeUnavailable, "the pool is shutting down") }

// leave takes a waiter out of the queue. If it was served at the same moment,
// what it got is destroyed: it may have been promised to nobody else.
func (p *Pool[S]) leave(w *waiter[S], reason error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.GivenUp++
	if p.waiters.remove(w) {
		return reason
	}
	select {
	case s := <-w.got: // unused still: it goes to the next in line
		p.inUse--
		if w.place {
			p.wg.Done()
		} else {
			p.hand(w.template, s)
		}
		p.schedule()
	default:
	}
	return reason
}

// Release tells the pool that a sandbox from Acquire is gone.
func (p *Pool[S]) Release() {
	defer p.wg.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inUse--
	p.schedule()
}

// hand gives a new sandbox to who is next to get one of its template, or keeps
// it ready.
func (p *Pool[S]) hand(template string, s S) {
	if p.closed {
		p.inUse++
		p.retire(s)
		return
	}
	if w := p.waiters.pop(template); w != nil {
		p.inUse++
		w.got <- s
		return
	}
	if p.draining || isTailored(template) {
		p.inUse++
		p.retire(s)
		return
	}
	p.keep(template, s)
}

// retire destroys a sandbox that nobody shall have. It counts as in use until
// it is gone.
func (p *Pool[S]) retire(s S) {
	p.retiring++
	go func() { // wg waits for s, and so for this
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), destroyTimeout)
		defer cancel()
		if err := s.Destroy(ctx); err != nil {
			p.o.Logger.Warn("destroy sandbox", "error", err)
		}
		p.mu.Lock()
		p.retiring--
		p.mu.Unlock()
		p.Release()
	}()
}

// Drain destroys what is ready and keeps nothing ready from now on. Who asks all
// the same gets a sandbox that is made for it.
func (p *Pool[S]) Drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining, p.o.Size = true, 0
	p.retireReady()
}

// Forget destroys what is ready of a template, of which nothing is kept ready any more
// unless somebody asks for it again.
func (p *Pool[S]) Forget(template string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.demand, template)
	for len(p.ready[template]) > 0 {
		p.retire(p.take(p.ready[template][0]))
	}
	delete(p.ready, template)
	p.schedule()
}

// retireReady retires what is kept for a tenant, too. It is called with the lock held.
func (p *Pool[S]) retireReady() {
	for len(p.kept) > 0 {
		p.retire(p.takeBack(p.kept[0]))
	}
	for template := range p.ready {
		for len(p.ready[template]) > 0 {
			p.retire(p.take(p.ready[template][0]))
		}
	}
}

// Close stops making, refuses those who wait, destroys what is ready, and
// returns when no sandbox is left. Those in use are waited for; to destroy and
// to release them remains with their users.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	p.waiters.refuse(errClosed())
	for _, timer := range []*time.Timer{p.retry, p.deferred} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.retireReady()
	p.mu.Unlock()
	p.wg.Wait()
}
