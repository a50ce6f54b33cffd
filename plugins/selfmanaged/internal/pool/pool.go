// Package pool keeps sandboxes ready ahead of need, and makes those who ask wait
// their turn when none is.
//
// A sandbox leaves the pool once and never returns. What a sandbox is, and how
// one is made, the pool does not know.
package pool

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Sandbox is what the pool keeps.
type Sandbox interface {
	comparable
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
	// Templates with their initial share of the pool.
	Templates map[string]int
	// Size is how many sandboxes are kept ready, over all templates.
	Size int
	// Max bounds all sandboxes that exist, those in use too.
	Max int
	// MakeTimeout bounds one call of Make.
	MakeTimeout time.Duration
	Logger      hclog.Logger
}

// Pool keeps sandboxes ready.
type Pool[S Sandbox] struct {
	o      Options[S]
	ctx    context.Context // ends with Close; bounds making
	cancel context.CancelFunc
	wg     sync.WaitGroup // sandboxes, from their making until they are gone

	mu       sync.Mutex
	closed   bool
	ready    map[string][]S
	making   map[string]int
	inUse    int // retiring ones too
	retiring int
	waiters  []*waiter[S]
	demand   map[string]float64
	failures int // in a row
	retry    *time.Timer
	counts   Counts
}

// waiter is somebody who waits for a sandbox.
type waiter[S Sandbox] struct {
	template string
	got      chan S     // buffered
	failed   chan error // buffered
}

// Counts are totals since the start.
type Counts struct {
	Hits, Waits, Made, Failed int64
}

// Stats is the state of a pool.
type Stats struct {
	Counts
	Ready         map[string]int
	Making, InUse int
	Waiting       int
	// Failures in a row.
	Failures int
}

// New starts filling a pool. The caller owes a Close.
func New[S Sandbox](o Options[S]) *Pool[S] {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool[S]{
		o: o, ctx: ctx, cancel: cancel,
		ready: map[string][]S{}, making: map[string]int{}, demand: map[string]float64{},
	}
	for template, share := range o.Templates {
		p.demand[template] = float64(share)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule()
	return p
}

// demandDecay is how much one request weighs against the past when the pool is
// split between templates.
const demandDecay = 0.95

// destroyTimeout bounds the destruction of a sandbox that nobody got.
const destroyTimeout = 10 * time.Second

// giveUpAfter is how many sandboxes in a row may fail to be made before those
// who wait are told.
const giveUpAfter = 3

// Acquire returns a sandbox that nobody used before. The caller owes a Release.
// When none comes before ctx ends or patience is over, the error is CodeCreateFailed and
// says how deep the queue was.
func (p *Pool[S]) Acquire(ctx context.Context, template string, patience time.Duration) (S, error) {
	var none S
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return none, sdk.Errorf(sdk.CodeUnavailable, "the pool is shutting down")
	}
	for t := range p.demand {
		p.demand[t] *= demandDecay
	}
	p.demand[template]++
	if i := slices.IndexFunc(p.ready[template], alive[S]); i >= 0 {
		s := p.pick(template, i)
		p.counts.Hits++
		p.schedule()
		p.mu.Unlock()
		return s, nil
	}
	w := &waiter[S]{template: template, got: make(chan S, 1), failed: make(chan error, 1)}
	p.waiters = append(p.waiters, w)
	depth := len(p.waiters)
	p.counts.Waits++
	p.schedule()
	p.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case s := <-w.got:
		return s, nil
	case err := <-w.failed:
		return none, err
	case <-ctx.Done():
		return none, p.leave(w, ctx.Err())
	case <-timer.C:
		return none, p.leave(w, sdk.Errorf(sdk.CodeCreateFailed,
			"no sandbox became free within %s; %d requests were waiting when this one came", patience, depth-1))
	}
}

// leave takes a waiter out of the queue. If it was served at the same moment,
// what it got is destroyed: it may have been promised to nobody else.
func (p *Pool[S]) leave(w *waiter[S], reason error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
		return reason
	}
	select {
	case s := <-w.got: // unused still: it goes to the next in line
		p.inUse--
		p.hand(w.template, s)
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

func alive[S Sandbox](s S) bool {
	select {
	case <-s.Exited():
		return false
	default:
		return true
	}
}

// pick takes a ready sandbox out.
func (p *Pool[S]) pick(template string, i int) S {
	s := p.ready[template][i]
	p.ready[template] = slices.Delete(p.ready[template], i, i+1)
	p.inUse++
	return s
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

// hand gives a new sandbox to the first who waits for its template, or keeps it
// ready.
func (p *Pool[S]) hand(template string, s S) {
	if p.closed {
		p.inUse++
		p.retire(s)
		return
	}
	for i, w := range p.waiters {
		if w.template == template {
			p.waiters = slices.Delete(p.waiters, i, i+1)
			p.inUse++
			w.got <- s
			return
		}
	}
	p.ready[template] = append(p.ready[template], s)
}

// schedule starts making what is missing: first for those who wait, in their
// order, then for the pool. It is called with the lock held whenever something
// changed.
func (p *Pool[S]) schedule() {
	for !p.closed && p.retry == nil {
		template := p.next()
		if template == "" {
			return
		}
		p.making[template]++
		p.wg.Add(1)
		go p.make(template)
	}
}

// next is the template to make a sandbox for now, "" for none.
func (p *Pool[S]) next() string {
	total, making := p.inUse, 0
	for _, n := range p.making {
		making += n
	}
	for _, list := range p.ready {
		total += len(list)
	}
	// Making takes a whole CPU. Half of them are enough to refill while nobody
	// waits; the others are for the code that runs.
	parallel := runtime.NumCPU()
	if len(p.waiters) == 0 {
		parallel = max(1, parallel/2)
	}
	first, unmet := "", 0
	promised := map[string]int{}
	for _, w := range p.waiters {
		if promised[w.template]++; promised[w.template] > p.making[w.template] {
			if unmet++; unmet == 1 {
				first = w.template
			}
		}
	}
	switch {
	case total+making >= p.o.Max:
		p.makeRoom(unmet)
		return ""
	case making >= parallel:
		return ""
	case unmet > 0:
		return first
	}
	best, lack := "", 0
	for template, target := range p.targets() {
		if d := target - len(p.ready[template]) - p.making[template]; d > lack || d == lack && d > 0 && template < best {
			best, lack = template, d
		}
	}
	return best
}

// makeRoom retires ready sandboxes, which nobody waits for, where the bound
// leaves no room for those that somebody does.
func (p *Pool[S]) makeRoom(unmet int) {
	for p.retiring < unmet {
		most := ""
		for template, list := range p.ready {
			if len(list) > len(p.ready[most]) {
				most = template
			}
		}
		if most == "" {
			return
		}
		p.retire(p.pick(most, len(p.ready[most])-1))
	}
}

// targets splits the pool's size by demand; every template keeps one if the
// size allows it.
func (p *Pool[S]) targets() map[string]int {
	targets := map[string]int{}
	var sum float64
	for _, d := range p.demand {
		sum += d
	}
	left := p.o.Size
	templates := make([]string, 0, len(p.demand))
	for t := range p.demand {
		templates = append(templates, t)
	}
	slices.SortFunc(templates, func(a, b string) int {
		switch {
		case p.demand[a] > p.demand[b]:
			return -1
		case p.demand[a] < p.demand[b]:
			return 1
		default:
			return 0
		}
	})
	for _, t := range templates {
		if left > 0 {
			targets[t]++
			left--
		}
	}
	spare := left
	for _, t := range templates {
		n := min(left, int(float64(spare)*p.demand[t]/sum+0.5))
		targets[t] += n
		left -= n
	}
	if left > 0 && len(templates) > 0 {
		targets[templates[0]] += left
	}
	return targets
}

// make makes one sandbox and passes it on.
func (p *Pool[S]) make(template string) {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.MakeTimeout)
	defer cancel()
	s, err := p.o.Make(ctx, template)

	p.mu.Lock()
	defer p.mu.Unlock()
	p.making[template]--
	if err != nil {
		p.failed(err)
		p.wg.Done()
	} else {
		p.counts.Made++
		p.failures = 0
		p.hand(template, s)
		p.wg.Go(func() { p.watch(template, s) })
	}
	p.schedule()
}

// failed waits longer after each failure before the next try, and tells those
// who wait when it does not look as if there would be a sandbox soon.
func (p *Pool[S]) failed(err error) {
	if p.closed {
		return // that is why
	}
	p.failures++
	p.counts.Failed++
	p.o.Logger.Error("make sandbox", "error", err, "failures", p.failures)
	if p.failures >= giveUpAfter {
		for _, w := range p.waiters {
			// The reason is the operator's business: it may name paths of the host.
			w.failed <- sdk.Errorf(sdk.CodeCreateFailed, "no sandbox can be made at the moment, %d failures in a row; the log of the broker says why", p.failures)
		}
		p.waiters = nil
	}
	if p.retry == nil {
		wait := min(100*time.Millisecond<<min(p.failures-1, 10), 10*time.Second)
		p.retry = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.retry = nil
			p.schedule()
		})
	}
}

// watch drops a ready sandbox that ends by itself.
func (p *Pool[S]) watch(template string, s S) {
	select {
	case <-s.Exited():
	case <-p.ctx.Done():
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.ready[template], s); i >= 0 {
		p.retire(p.pick(template, i))
		p.schedule()
	}
}

// Stats returns the state of the pool.
func (p *Pool[S]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Counts: p.counts, Ready: map[string]int{}, InUse: p.inUse, Waiting: len(p.waiters),
		Failures: p.failures,
	}
	for template := range p.demand {
		s.Ready[template] = len(p.ready[template])
		s.Making += p.making[template]
	}
	return s
}

// Close stops making, refuses those who wait, destroys what is ready, and
// returns when no sandbox is left. Those in use are waited for; to destroy and
// to release them remains with their users.
func (p *Pool[S]) Close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for _, w := range p.waiters {
		w.failed <- sdk.Errorf(sdk.CodeUnavailable, "the pool is shutting down")
	}
	p.waiters = nil
	if p.retry != nil {
		p.retry.Stop()
	}
	for template := range p.ready {
		for len(p.ready[template]) > 0 {
			p.retire(p.pick(template, 0))
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// String describes the pool in a line, for health details.
func (s Stats) String() string {
	return fmt.Sprintf("ready=%v making=%d in_use=%d waiting=%d", s.Ready, s.Making, s.InUse, s.Waiting)
}
