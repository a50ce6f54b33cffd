package quota

import (
	"maps"
	"slices"
	"time"
)

// Line is what a tenant has used of one limit.
type Line struct {
	Limit Limit
	// Used and Max in seconds, MiB or units of money where the limit is in those;
	// with what is reserved. Max is 0 when there is no limit.
	Used, Max float64
	// ResetsAt is when Used begins anew; zero for what does not.
	ResetsAt time.Time
}

// Usage is what a tenant has used and may use.
type Usage struct {
	Tenant string
	// Lines of all limits, in a fixed order.
	Lines []Line
	// Waiting is how many of its requests wait for their turn.
	Waiting int
	// Refused counts what was refused since the start, by the limit.
	Refused map[Limit]int64
}

// Usage returns what a tenant has used.
func (k *Keeper) Usage(tenant string) Usage {
	k.mu.Lock()
	countVolumes := k.countVolumes
	k.mu.Unlock()
	var volumes, volumeBytes int64
	if countVolumes != nil { // it may wait for who asks AdmitVolume, and so holds no lock here
		volumes, volumeBytes = countVolumes(tenant)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a, now := k.account(tenant), k.now()
	l, day, month := a.limits, nextDay(now), nextMonth(now)
	burst := 0.0
	if a.bucket != nil {
		burst = max(0, float64(a.bucket.Limit())-a.bucket.TokensAt(now))
	}
	return Usage{
		Tenant: tenant, Waiting: len(a.line), Refused: maps.Clone(a.refused),
		Lines: []Line{
			{MaxInstances, float64(a.instances), float64(l.Instances), time.Time{}},
			{MaxPaused, float64(a.paused), float64(l.Paused), time.Time{}},
			{MaxConcurrent, float64(a.concurrent), float64(l.Concurrent), time.Time{}},
			{RequestsPerSecond, burst, l.RequestsPerSecond, time.Time{}},
			{ExecutionsPerDay, float64(a.used.Executions), float64(l.ExecutionsPerDay), day},
			{ExecutionTimePerDay, a.used.ExecutionTime.Seconds(), l.ExecutionTimePerDay.Seconds(), day},
			{MaxMemoryMB, 0, float64(l.Size.MemoryMB), time.Time{}},
			{MaxCPUs, 0, l.Size.CPUs, time.Time{}},
			{MoneyPerDay, a.used.MoneyDay.Amount(), l.MoneyPerDay.Amount(), day},
			{MoneyPerMonth, a.used.MoneyMonth.Amount(), l.MoneyPerMonth.Amount(), month},
			{MaxSnapshots, float64(a.snapshots), float64(l.Snapshots), time.Time{}},
			{MaxSnapshotBytes, float64(a.snapshotBytes), float64(l.SnapshotBytes), time.Time{}},
			{MaxVolumes, float64(volumes), float64(l.Volumes), time.Time{}},
			{MaxVolumeBytes, float64(volumeBytes), float64(l.VolumeBytes), time.Time{}},
		},
	}
}

// MaxInstances is how many instances a tenant may have at a time; 0 for any number.
func (k *Keeper) MaxInstances(tenant string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rules.Tenants[tenant].Instances
}

// Limits are those of a tenant.
func (k *Keeper) Limits(tenant string) Limits {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rules.Tenants[tenant]
}

// Usages returns those of the tenants in the rules, in the order of their names, of
// at most so many.
func (k *Keeper) Usages(most int) []Usage {
	k.mu.Lock()
	names := slices.Sorted(maps.Keys(k.rules.Tenants))
	k.mu.Unlock()
	var all []Usage
	for _, name := range names[:min(most, len(names))] {
		all = append(all, k.Usage(name))
	}
	return all
}

// All returns those of the tenants in the rules and of all others that have an account, in
// the order of their names.
func (k *Keeper) All() []Usage {
	k.mu.Lock()
	names := map[string]bool{}
	for name := range k.rules.Tenants {
		names[name] = true
	}
	for name := range k.accounts {
		names[name] = true
	}
	k.mu.Unlock()
	var all []Usage
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, k.Usage(name))
	}
	return all
}

// Totals of all tenants.
type Totals struct {
	// Waiting is how many requests wait for their turn.
	Waiting int
	// Cost of all instances since the start, up to this moment, without what is paid ahead.
	// What was charged for one that was not made comes off again.
	Cost Money
	// Priced says whether any provider has a price.
	Priced bool
}

// Totals returns those of this moment.
func (k *Keeper) Totals() Totals {
	k.mu.Lock()
	defer k.mu.Unlock()
	var t Totals
	for _, m := range k.meters {
		m.run(k.now(), 0)
		t.Cost += m.spent
		t.Priced = t.Priced || m.perSecond > 0
	}
	for _, price := range k.rules.Costs {
		t.Priced = t.Priced || price > 0
	}
	for _, a := range k.turns {
		t.Waiting += len(a.line)
	}
	return t
}

// Spent returns what the lives of instances have cost since the start, by the label of
// their provider, in the unit of money. It only grows: what comes off again for an instance
// that was not made is made up for before it does.
func (k *Keeper) Spent() map[string]float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	spent := map[string]float64{}
	for label, m := range k.meters {
		m.run(k.now(), 0)
		m.shown = max(m.shown, m.spent)
		spent[label] = m.shown.Amount()
	}
	return spent
}

// meter runs while instances of a provider live, at the sum of their prices. It is guarded by
// Keeper.mu.
type meter struct {
	perSecond, spent Money
	// shown is the most that anybody was told.
	shown Money
	at    time.Time
}

func (k *Keeper) meterOf(provider string) *meter {
	m := k.meters[provider]
	if m == nil {
		m = &meter{at: k.now()}
		k.meters[provider] = m
	}
	return m
}

// run goes on to a time, and from then at a price that differs.
func (m *meter) run(now time.Time, more Money) {
	if now.After(m.at) {
		m.spent = min(m.spent+costOf(m.perSecond, now.Sub(m.at)), maxMoney)
		m.at = now
	}
	m.perSecond += more
}
