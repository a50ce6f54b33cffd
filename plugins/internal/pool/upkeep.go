package pool

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// entry is a ready sandbox.
type entry[S Sandbox] struct {
	sandbox  S
	template string
	// staying ends when the sandbox is taken out, and the care for it too.
	staying context.Context
	taken   context.CancelFunc
	old     bool
}

func (e *entry[S]) alive() bool {
	select {
	case <-e.sandbox.Exited():
		return false
	default:
		return true
	}
}

// keep puts a sandbox with those that are ready and looks after it.
func (p *Pool[S]) keep(template string, s S) {
	e := &entry[S]{sandbox: s, template: template}
	e.staying, e.taken = context.WithCancel(p.ctx)
	p.ready[template] = append(p.ready[template], e)
	p.wg.Go(func() { p.tend(e) })
}

// take takes a ready sandbox out. It counts as in use from here on.
func (p *Pool[S]) take(e *entry[S]) S {
	i := slices.Index(p.ready[e.template], e)
	p.ready[e.template] = slices.Delete(p.ready[e.template], i, i+1)
	if p.outgoing == e {
		p.outgoing = nil
	}
	e.taken()
	p.inUse++
	return e.sandbox
}

// tend looks after a ready sandbox until it is taken.
func (p *Pool[S]) tend(e *entry[S]) {
	// Sandboxes that were made together shall neither grow old nor be checked
	// together.
	var aged <-chan time.Time
	if p.o.MaxAge > 0 {
		timer := time.NewTimer(p.o.MaxAge - rand.N(p.o.MaxAge/10+1))
		defer timer.Stop()
		aged = timer.C
	}
	var due <-chan time.Time
	check := time.NewTimer(p.o.CheckInterval - rand.N(p.o.CheckInterval/2+1))
	defer check.Stop()
	if p.o.Check != nil {
		due = check.C
	}
	for {
		select {
		case <-e.staying.Done():
			return
		case <-e.sandbox.Exited():
			p.drop(e, nil)
			return
		case <-aged:
			p.mu.Lock()
			e.old = true
			p.schedule()
			p.mu.Unlock()
		case <-due:
			if err := p.check(e); err != nil {
				p.drop(e, err)
				return
			}
			check.Reset(p.o.CheckInterval)
		}
	}
}

func (p *Pool[S]) check(e *entry[S]) error {
	ctx, cancel := context.WithTimeout(e.staying, p.o.CheckTimeout)
	defer cancel()
	return p.o.Check(ctx, e.sandbox)
}

// drop retires a ready sandbox that is of no use: it has ended, or it did not
// stand the check, with that error. One that was taken meanwhile is not ours.
func (p *Pool[S]) drop(e *entry[S], unwell error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.staying.Err() != nil {
		return
	}
	if unwell != nil && e.alive() {
		p.counts.Unwell++
		p.o.Logger.Warn("a ready sandbox does not answer and is replaced", "template", e.template, "error", unwell)
	} else {
		p.counts.Ended++
		p.o.Logger.Warn("a ready sandbox ended by itself and is replaced", "template", e.template)
	}
	p.retire(p.take(e))
	p.schedule()
}

// replaceOld retires what is past its age, one after the other and each when
// there is another in its place, which next sees to. Only where the bound leaves
// no room for both, the old one goes first.
func (p *Pool[S]) replaceOld(targets map[string]int) {
	for {
		if p.outgoing == nil {
			p.outgoing = p.firstOld()
		}
		if p.outgoing == nil {
			return
		}
		total, making := p.existing()
		spare := len(p.ready[p.outgoing.template]) > targets[p.outgoing.template]
		full := total >= p.o.Max && making+p.retiring+p.waiters.size == 0
		if !spare && !full {
			return
		}
		p.counts.Aged++
		p.retire(p.take(p.outgoing))
	}
}

func (p *Pool[S]) firstOld() *entry[S] {
	for _, list := range p.ready {
		if i := slices.IndexFunc(list, func(e *entry[S]) bool { return e.old }); i >= 0 {
			return list[i]
		}
	}
	return nil
}
