package pool

import (
	"slices"
	"time"
)

// kept is a sandbox that waits for the tenant that has had it.
type kept[S Sandbox] struct {
	sandbox          S
	tenant, template string
	expiry           *time.Timer
}

// Keep is a Release for a sandbox that its tenant, and nobody else, may get again: by
// the next Acquire with Reuse. It is destroyed when nobody wants it for a while, or when
// there is no room for what others wait for.
func (p *Pool[S]) Keep(tenant, template string, s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.schedule()
	if p.closed || p.draining {
		p.retire(s)
		return
	}
	if w := p.waiters.popReuse(tenant, template); w != nil {
		p.counts.Reused++
		w.got <- s
		return
	}
	p.inUse--
	k := &kept[S]{sandbox: s, tenant: tenant, template: template}
	k.expiry = time.AfterFunc(p.o.KeepFor, func() { p.expire(k) })
	p.kept = append(p.kept, k)
}

// takeKept returns a sandbox that was kept for the tenant. The latest comes first: those
// that are not needed grow old. It is called with the lock held.
func (p *Pool[S]) takeKept(req Request) (s S, ok bool) {
	if !req.Reuse {
		return s, false
	}
	for _, k := range slices.Backward(p.kept) {
		if k.tenant != req.Tenant || k.template != req.Template {
			continue
		}
		s := p.takeBack(k)
		select {
		case <-k.sandbox.Exited():
			p.retire(s)
			continue
		default:
		}
		p.counts.Reused++
		return s, true
	}
	return s, false
}

// takeBack takes a sandbox out of those that are kept. It counts as in use from here on.
func (p *Pool[S]) takeBack(k *kept[S]) S {
	i := slices.Index(p.kept, k)
	p.kept = slices.Delete(p.kept, i, i+1)
	k.expiry.Stop()
	p.inUse++
	return k.sandbox
}

// expire retires a sandbox that nobody has wanted again.
func (p *Pool[S]) expire(k *kept[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.kept, k) {
		p.retire(p.takeBack(k))
	}
}
