package pool

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// giveUpAfter is how many sandboxes in a row may fail to be made before those
// who wait are told.
const giveUpAfter = 3

// schedule starts making what is missing: first for those who wait, in their
// order, then for the pool. It is called with the lock held whenever something
// changed.
func (p *Pool[S]) schedule() {
	if p.closed {
		return
	}
	targets := p.targets()
	p.replaceOld(targets)
	p.trim(targets)
	p.givePlaces()
	for p.retry == nil {
		template := p.next(targets)
		if template == "" {
			return
		}
		p.making[template]++
		p.wg.Add(1)
		go p.make(template, p.maker(template))
	}
}

// refillDelay is how long after a ready sandbox was taken the next one is made.
// Making takes a CPU for ten times as long as most code runs, and would run
// beside it.
const refillDelay = 20 * time.Millisecond

// scheduleSoon is schedule a little later, unless something happens before.
func (p *Pool[S]) scheduleSoon() {
	time.AfterFunc(refillDelay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.schedule()
	})
}

// spareDelay is how long a sandbox that nobody is likely to want soon waits for a moment
// in which no code runs, before it is made all the same.
const spareDelay = time.Second

// Running notes that code runs in one of the sandboxes, until the returned function is
// called. Meanwhile no sandbox is made that can wait.
func (p *Pool[S]) Running() (ended func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running--
		if p.deferred != nil && p.calm() {
			p.scheduleSoon()
		}
	}
}

// calm says whether code leaves half of the processors alone, which are what making uses.
func (p *Pool[S]) calm() bool { return 2*p.running < runtime.NumCPU() }

// maySpare says whether a sandbox that can wait may be made now. If not, it will be
// within spareDelay.
func (p *Pool[S]) maySpare() bool {
	if p.calm() || p.overdue {
		return true
	}
	if p.deferred == nil {
		p.deferred = time.AfterFunc(spareDelay, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.deferred, p.overdue = nil, true
			p.schedule()
		})
	}
	return false
}

// spared notes that a sandbox which could wait is being made, or that none is missing any
// more, so that the next one waits anew.
func (p *Pool[S]) spared() {
	p.overdue = false
	if p.deferred != nil {
		p.deferred.Stop()
		p.deferred = nil
	}
}

// existing counts the sandboxes that there are and those that are being made.
func (p *Pool[S]) existing() (total, making int) {
	for _, n := range p.making {
		making += n
	}
	total = p.inUse + making + len(p.kept)
	for _, list := range p.ready {
		total += len(list)
	}
	return total, making
}

// next is the template to make a sandbox for now, "" for none.
func (p *Pool[S]) next(targets map[string]int) string {
	total, making := p.existing()
	// Making takes a whole CPU. Half of them are enough to refill while nobody
	// waits; the others are for the code that runs. A lower scheduling priority
	// would do the same better, but would stay with the sandbox for its life.
	parallel := cmp.Or(p.o.Parallel, runtime.NumCPU())
	if p.waiters.size == 0 {
		parallel = max(1, parallel/2)
	}
	switch {
	case total >= p.o.Max:
		p.makeRoom()
		return ""
	case making >= parallel:
		return ""
	}
	if template := p.firstUnmet(); template != "" {
		return template
	}
	if template := p.mostLacking(p.needs(targets)); template != "" {
		return template
	}
	template := p.mostLacking(targets)
	if template != "" && !p.maySpare() {
		return ""
	}
	p.spared()
	return template
}

// mostLacking is the template of which most are missing, "" for none.
func (p *Pool[S]) mostLacking(wanted map[string]int) string {
	best, lack := "", 0
	for template, n := range wanted {
		have := len(p.ready[template]) + p.making[template]
		if p.outgoing != nil && p.outgoing.template == template {
			have--
		}
		if d := n - have; d > lack || d == lack && d > 0 && template < best {
			best, lack = template, d
		}
	}
	return best
}

// firstUnmet is the template that the first wants for whom none is being made.
func (p *Pool[S]) firstUnmet() string {
	promised := map[string]int{}
	for w := range p.waiters.inTurn() {
		if w.place {
			continue // it waits for room alone
		}
		if promised[w.template]++; promised[w.template] > p.making[w.template] {
			return w.template
		}
	}
	return ""
}

// makeRoom retires kept and ready sandboxes, which nobody waits for, where the bound
// leaves no room for those that somebody does.
func (p *Pool[S]) makeRoom() {
	unmet := 0
	for template, n := range p.waiters.waiting {
		unmet += max(0, n-p.making[template])
	}
	for p.retiring < unmet {
		if len(p.kept) > 0 {
			p.retire(p.takeBack(p.kept[0]))
			continue
		}
		most := ""
		for template, list := range p.ready {
			if len(list) > len(p.ready[most]) {
				most = template
			}
		}
		if most == "" {
			return
		}
		p.retire(p.take(p.ready[most][len(p.ready[most])-1]))
	}
}

// trim retires ready sandboxes of templates that are asked for less than they were, where
// those that have taken their place are ready.
func (p *Pool[S]) trim(targets map[string]int) {
	ready := 0
	for _, list := range p.ready {
		ready += len(list)
	}
	for ; p.o.Size > 0 && ready > p.o.Size; ready-- {
		most, surplus := "", 0
		for template, list := range p.ready {
			if n := len(list) - targets[template]; n > surplus || n == surplus && n > 0 && template < most {
				most, surplus = template, n
			}
		}
		if most == "" {
			return
		}
		p.retire(p.take(p.ready[most][0]))
	}
}

// targets splits the pool's size by demand; every template keeps one if the
// size allows it.
func (p *Pool[S]) targets() map[string]int {
	targets, rates, now := map[string]int{}, map[string]float64{}, p.second()
	sum := 1e-9 // or nothing was asked for, and none has a share
	templates := make([]string, 0, len(p.demand))
	for t, d := range p.demand {
		templates = append(templates, t)
		rates[t] = d.rate(now)
		sum += rates[t]
	}
	slices.SortFunc(templates, func(a, b string) int {
		return cmp.Or(cmp.Compare(rates[b], rates[a]), cmp.Compare(a, b))
	})
	left := p.o.Size
	for _, t := range templates {
		if left > 0 {
			targets[t]++
			left--
		}
	}
	spare := left
	for _, t := range templates {
		n := min(left, int(float64(spare)*rates[t]/sum+0.5))
		targets[t] += n
		left -= n
	}
	if left > 0 && len(templates) > 0 {
		targets[templates[0]] += left
	}
	return targets
}

// make makes one sandbox and passes it on.
func (p *Pool[S]) make(template string, produce func(ctx context.Context) (S, error)) {
	ctx, cancel := context.WithTimeout(p.ctx, p.o.MakeTimeout)
	defer cancel()
	began := time.Now()
	s, err := produce(ctx)
	took := time.Since(began)

	p.mu.Lock()
	defer p.mu.Unlock()
	// Whoever waits for it shall find it counted.
	defer p.triedOne.Do(func() {
		p.firstErr = err
		close(p.tried)
	})
	if p.making[template]--; p.making[template] == 0 {
		delete(p.making, template)
	}
	switch {
	case err != nil && isTailored(template):
		p.failedTailored(template, err)
		p.wg.Done()
	case err != nil:
		p.failed(err)
		p.wg.Done()
	default:
		p.counts.made(took)
		p.failures, p.failure = 0, nil
		p.hand(template, s)
	}
	p.schedule()
}

// FirstTry waits until the first try to make a sandbox is over, and returns its
// error. It returns nil when ctx ends before, and at once for a pool that keeps
// none ready.
func (p *Pool[S]) FirstTry(ctx context.Context) error {
	if p.o.Size == 0 {
		return nil
	}
	select {
	case <-p.tried:
		return p.firstErr
	case <-ctx.Done():
		return nil
	}
}

// Reason is what those who wait may know of an error of Make. It is its message
// if it has the code CodeCreateFailed; any other may name paths of the host and is
// the operator's business.
func Reason(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok && e.Code == sdk.CodeCreateFailed {
		return e.Message
	}
	return "the log of the broker says why"
}

// failed waits longer after each failure before the next try, and tells those
// who wait when it does not look as if there would be a sandbox soon.
func (p *Pool[S]) failed(err error) {
	if p.closed {
		return // that is why
	}
	p.failures++
	p.failure = err
	p.counts.Failed++
	p.o.Logger.Error("make sandbox", "error", err, "failures", p.failures)
	switch {
	case p.o.Final != nil && p.o.Final(err):
		p.waiters.refuse(err)
	case p.failures >= giveUpAfter:
		p.waiters.refuse(sdk.Errorf(sdk.CodeCreateFailed, "no sandbox can be made at the moment, %d failures in a row: %s", p.failures, Reason(err)))
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
