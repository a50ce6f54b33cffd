package quota

import (
	"slices"
	"time"
)

// demand is a Demand with what the rules say of its provider.
type demand struct {
	Demand
	price Money // of a second
	size  Size
}

// money is what the instance has to pay at its beginning.
func (d *demand) money() Money {
	if !d.Instance {
		return 0
	}
	return costOf(d.price, paidAhead)
}

func (k *Keeper) demandOf(d Demand) demand {
	return demand{Demand: d, price: k.rules.Costs[d.Provider], size: d.Size.or(k.rules.Sizes[d.Provider])}
}

// waiter is a request in a tenant's line.
type waiter struct {
	account *account
	demand  demand
	// blocked is what it waits for.
	blocked *Refusal
	outcome chan outcome // gets one, when it is no longer in the line
}

// outcome is a grant, unless there is a refusal.
type outcome struct {
	grant   Grant
	refusal *Refusal
}

func (o outcome) get() (Grant, error) {
	if o.refusal != nil {
		return Grant{}, o.refusal
	}
	return o.grant, nil
}

// enqueue puts a demand into its tenant's line and serves the line. When the demand
// is still there it waits, unless it may not.
func (k *Keeper) enqueue(d Demand) *waiter {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put(d)
}

// put is enqueue for who holds mu.
func (k *Keeper) put(d Demand) *waiter {
	a := k.account(d.Tenant)
	if d.Arrived.IsZero() {
		d.Arrived = k.now()
	}
	w := &waiter{
		account: a,
		demand:  k.demandOf(d),
		outcome: make(chan outcome, 1),
	}
	if len(a.line) == 0 {
		k.turns = append(k.turns, a)
	}
	at, _ := slices.BinarySearchFunc(a.line, d.Arrived, func(other *waiter, t time.Time) int {
		if other.demand.Arrived.After(t) {
			return 1
		}
		return -1 // of two that came together the first in line is first
	})
	a.line = slices.Insert(a.line, at, w)
	k.serve(a)
	switch {
	case !slices.Contains(a.line, w):
		return w
	case d.Wait > 0 && len(a.line) <= k.rules.MaxWaiting:
		a.lineLacks()
		return w
	}
	refusal := *w.blocked
	if d.Wait > 0 {
		refusal.waiting, refusal.short = len(a.line)-1, false
	}
	k.refuse(w, &refusal)
	return w
}

// refuse takes a waiter out of its line with a refusal. The caller holds mu.
func (k *Keeper) refuse(w *waiter, refusal *Refusal) {
	if !refusal.short {
		w.account.refused[refusal.Limit]++
	}
	k.remove(w)
	w.outcome <- outcome{refusal: refusal}
}

// remove takes a waiter out if it is still there. The caller holds mu.
func (k *Keeper) remove(w *waiter) {
	a := w.account
	i := slices.Index(a.line, w)
	if i < 0 {
		return
	}
	a.line = slices.Delete(a.line, i, i+1)
	a.lineChanged()
	if len(a.line) == 0 {
		k.turns = slices.DeleteFunc(k.turns, func(other *account) bool { return other == a })
	}
}

// serve grants what a tenant's line can have now. The caller holds mu.
func (k *Keeper) serve(a *account) {
	for k.serveOne(a) {
	}
}

// serveAll lets the tenants who wait take turns, one grant each. The caller holds
// mu.
func (k *Keeper) serveAll() {
	for again := true; again; {
		again = false
		for _, a := range slices.Clone(k.turns) {
			if k.serveOne(a) {
				again = true
				k.endTurn(a)
			}
		}
	}
}

// endTurn puts a tenant behind the others who wait.
func (k *Keeper) endTurn(a *account) {
	if i := slices.Index(k.turns, a); i >= 0 {
		k.turns = append(slices.Delete(k.turns, i, i+1), a)
	}
}

// serveOne grants the first of a tenant's line that can be, and reports whether
// there was one. Nobody overtakes an earlier one that waits for the same thing; who
// waits for something else may go. The caller holds mu.
func (k *Keeper) serveOne(a *account) bool {
	now := k.now()
	a.roll(now)
	// What those before are waiting for.
	var before shortage
	for i := 0; i < len(a.line); i++ {
		w := a.line[i]
		if refusal := a.exhausted(&w.demand, now); refusal != nil {
			k.refuse(w, refusal)
			i--
			continue
		}
		if w.blocked = k.blocked(w, &before); w.blocked != nil {
			continue
		}
		k.remove(w)
		w.outcome <- outcome{grant: k.take(a, &w.demand)}
		return true
	}
	return false
}

// shortage is what those before somebody in a line wait for; nil for what they do
// not.
type shortage struct {
	concurrent, instances *Refusal
	providers             map[string]*Refusal
}

// blocked returns what a waiter has to wait for, nil if nothing, and adds it to what
// those behind it have to wait for.
func (k *Keeper) blocked(w *waiter, before *shortage) *Refusal {
	a, d := w.account, &w.demand
	if d.Execution {
		if before.concurrent == nil {
			before.concurrent = a.fits(MaxConcurrent, 1, soon)
		}
		if before.concurrent != nil {
			return before.concurrent
		}
	}
	if !d.Instance {
		return nil
	}
	if before.instances == nil {
		before.instances = a.fits(MaxInstances, 1, soon)
	}
	if before.instances != nil {
		return before.instances
	}
	if before.providers[d.Provider] == nil && k.closedTo(w) {
		if before.providers == nil {
			before.providers = map[string]*Refusal{}
		}
		before.providers[d.Provider] = &Refusal{Tenant: a.tenant, Limit: ProviderFull, RetryAfter: soon}
	}
	return before.providers[d.Provider]
}
