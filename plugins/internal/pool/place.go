package pool

import "context"

// Place waits for room for a sandbox that its user makes: one that cannot be made ahead.
// It is like Acquire, in the same queue, but for the template, which is disregarded. The
// caller owes a Release when that sandbox is gone, or was not made.
func (p *Pool[S]) Place(ctx context.Context, req Request) error {
	req.Template, req.Reuse = "", false
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errClosed()
	}
	w := &waiter[S]{tenant: req.Tenant, place: true, got: make(chan S, 1), failed: make(chan error, 1)}
	before, own := p.waiters.push(w)
	full := before+1 > p.o.Max-p.inUse
	p.counts.Waits++
	p.schedule()
	p.mu.Unlock()
	_, err := p.await(ctx, req, w, full, before, own)
	return err
}

// givePlaces gives the room that there is to those who wait for nothing else, in their
// turn. It is called with the lock held.
func (p *Pool[S]) givePlaces() {
	for {
		total, _ := p.existing()
		if p.waiters.waiting[""] == 0 || total >= p.o.Max {
			return // next makes room, if it can
		}
		w := p.waiters.pop("")
		p.inUse++
		p.wg.Add(1)
		var nothing S
		w.got <- nothing
	}
}
