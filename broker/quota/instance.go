package quota

import (
	"context"
	"time"
)

const (
	// paidAhead is how much of its life an instance pays at a time.
	paidAhead = time.Minute
	// payBefore is how long before the end of what it has paid it pays again.
	payBefore = 30 * time.Second
)

// Instance is the leave to have one instance. A nil one is that of nobody.
type Instance struct {
	keeper   *Keeper
	account  *account
	provider string
	price    Money // of a second

	// Guarded by Keeper.mu.
	began    time.Time
	paid     time.Time // until when
	day      string    // of the last payment, and how much on it
	onDay    Money
	month    string
	inMonth  Money
	released bool
	unmade   bool // nobody lived it
	// running says that it counts among the instances, and paused that it does among those
	// that are paused. While that changes it counts among both.
	running, paused bool
}

// newInstance counts an instance in, and has it pay what it must at its beginning.
// The caller holds mu.
func (k *Keeper) newInstance(a *account, d *demand) *Instance {
	now := k.now()
	i := &Instance{keeper: k, account: a, provider: d.Provider, price: d.price, began: now, paid: now, running: true}
	k.meterOf(d.Provider).run(now, i.price)
	a.instances++
	a.changedIn(MaxInstances)
	k.providers[d.Provider]++
	i.pay(now.Add(paidAhead))
	return i
}

// Adopt counts in an instance that there is already, whatever the limits: among those that are
// paused, or among the others.
func (k *Keeper) Adopt(tenant, provider string, paused bool) *Instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	i := k.newInstance(a, &demand{Demand: Demand{Instance: true, Provider: provider}, price: k.rules.Costs[provider]})
	i.count(!paused, paused)
	k.changed(a)
	return i
}

// Take returns the same leave for its new owner and makes this one nobody's. It
// returns nil when this one was released before.
func (i *Instance) Take() *Instance {
	i.keeper.mu.Lock()
	defer i.keeper.mu.Unlock()
	if i.released {
		return nil
	}
	taken := *i
	i.released = true
	return &taken
}

func (i *Instance) costs() bool { return i != nil && i.price > 0 }

// pay charges the instance's life until a time. The caller holds mu.
func (i *Instance) pay(until time.Time) {
	if i.price == 0 || !until.After(i.paid) {
		return
	}
	i.charge(costOf(i.price, until.Sub(i.paid)))
	i.paid = until
}

func (i *Instance) charge(amount Money) {
	a := i.account
	if i.day != a.used.Day {
		i.day, i.onDay = a.used.Day, 0
	}
	if i.month != a.used.Month {
		i.month, i.inMonth = a.used.Month, 0
	}
	i.onDay += amount
	i.inMonth += amount
	a.pay(amount)
}

// Cover pays for the instance's life until a time, before it is lived, if that is
// not paid yet. The error is a *Refusal, that of ctx, or SB009.
func (i *Instance) Cover(ctx context.Context, until time.Time) error {
	if !i.costs() {
		return nil
	}
	k, a := i.keeper, i.account
	var before time.Time
	durable := false
	cover := func() *Refusal {
		now := k.now()
		a.roll(now)
		if i.released || !until.After(i.paid) {
			return nil
		}
		before = i.paid
		if refusal := a.affords(costOf(i.price, until.Sub(before)), now); refusal != nil {
			return refusal
		}
		i.pay(until)
		k.changed(a)
		durable = k.books != nil && a.limits.countsMoney()
		return nil
	}
	needs := func() []need {
		amount := int64(costOf(i.price, until.Sub(i.paid)))
		return []need{{MoneyPerDay, amount}, {MoneyPerMonth, amount}}
	}
	if err := k.claim(ctx, a, needs, cover); err != nil || !durable {
		return err
	}
	err := k.books.settled(ctx, a.tenant)
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		a.roll(k.now())
		if !i.released && i.paid.Equal(until) {
			i.refund(costOf(i.price, until.Sub(before)))
			i.paid = before
		}
	}
	return err
}

// Renew pays the next part of the instance's life when that is due. Until is up to
// when it is paid; the zero time if it costs nothing. An error means that it must
// have ended by then.
func (i *Instance) Renew(ctx context.Context) (until time.Time, err error) {
	if !i.costs() {
		return time.Time{}, nil
	}
	k := i.keeper
	k.mu.Lock()
	now := k.now()
	due := i.paid.Sub(now) < payBefore
	k.mu.Unlock()
	if due {
		err = i.Cover(ctx, now.Add(paidAhead))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return i.paid, err
}

// NextCharge is when Renew has something to do; the zero time for never.
func (i *Instance) NextCharge() time.Time {
	if !i.costs() {
		return time.Time{}
	}
	i.keeper.mu.Lock()
	defer i.keeper.mu.Unlock()
	if i.released {
		return time.Time{}
	}
	return i.paid.Add(-payBefore)
}

// refund gives money back to the day and the month on which it was paid, if those
// go on. The caller holds mu.
func (i *Instance) refund(amount Money) {
	a := i.account
	if i.day == a.used.Day {
		back := min(amount, i.onDay)
		i.onDay -= back
		a.used.MoneyDay -= back
	}
	if i.month == a.used.Month {
		back := min(amount, i.inMonth)
		i.inMonth -= back
		a.used.MoneyMonth -= back
	}
	a.changedIn(MoneyPerDay, MoneyPerMonth)
	i.keeper.changed(a)
}

// Release says that the instance is no more. What it has paid too much comes back,
// what it has lived beyond is charged. Later calls do nothing.
func (i *Instance) Release() { i.end(true, nil) }

// Unmade says that the provider did not make the instance: Release gives back all that it
// has paid. Until then it counts.
func (i *Instance) Unmade() {
	if i == nil {
		return
	}
	i.keeper.mu.Lock()
	defer i.keeper.mu.Unlock()
	i.unmade = true
}

// Released reports whether it counts no more.
func (i *Instance) Released() bool {
	i.keeper.mu.Lock()
	defer i.keeper.mu.Unlock()
	return i.released
}

// Cancel releases an instance that the provider did not make.
func (i *Instance) Cancel() { i.end(false, nil) }

// Full is Cancel where the provider had no room. It holds back who else wants one there. retry is when the provider wants to be
// asked again, 0 if it did not say.
func (i *Instance) Full(retry time.Duration) {
	i.end(false, func(k *Keeper) { k.closeGate(i.provider, retry) })
}

func (i *Instance) end(lived bool, then func(k *Keeper)) {
	if i == nil {
		return
	}
	k, a := i.keeper, i.account
	k.mu.Lock()
	defer k.mu.Unlock()
	if i.released {
		return
	}
	now := k.now()
	i.count(false, false)
	i.released = true
	if k.providers[i.provider]--; k.providers[i.provider] == 0 {
		delete(k.providers, i.provider)
	}
	a.roll(now)
	m := k.meterOf(i.provider)
	m.run(now, -i.price)
	if !lived || i.unmade {
		m.spent -= costOf(i.price, now.Sub(i.began))
	}
	switch {
	case !i.costs():
	case !lived || i.unmade:
		i.refund(costOf(i.price, i.paid.Sub(i.began)))
	case i.paid.After(now):
		i.refund(costOf(i.price, i.paid.Sub(now)))
	default:
		i.pay(now)
		k.changed(a)
	}
	if then != nil {
		then(k)
	}
	if k.gates[i.provider] == nil {
		k.serve(a)
		return
	}
	k.serveAll() // the room may be another tenant's now
}
