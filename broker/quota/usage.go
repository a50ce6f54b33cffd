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
	defer k.mu.Unlock()
	a, now := k.account(tenant), k.now()
	l, day, month := a.limits, nextDay(now), nextMonth(now)
	burst := 0.0
	if a.bucket != nil {
		burst = max(0, l.RequestsPerSecond-a.bucket.TokensAt(now))
	}
	return Usage{
		Tenant: tenant, Waiting: len(a.line), Refused: maps.Clone(a.refused),
		Lines: []Line{
			{MaxInstances, float64(a.instances), float64(l.Instances), time.Time{}},
			{MaxConcurrent, float64(a.concurrent), float64(l.Concurrent), time.Time{}},
			{RequestsPerSecond, burst, l.RequestsPerSecond, time.Time{}},
			{ExecutionsPerDay, float64(a.used.Executions), float64(l.ExecutionsPerDay), day},
			{ExecutionTimePerDay, a.used.ExecutionTime.Seconds(), l.ExecutionTimePerDay.Seconds(), day},
			{MaxMemoryMB, 0, float64(l.Size.MemoryMB), time.Time{}},
			{MaxCPUs, 0, l.Size.CPUs, time.Time{}},
			{MoneyPerDay, a.used.MoneyDay.Amount(), l.MoneyPerDay.Amount(), day},
			{MoneyPerMonth, a.used.MoneyMonth.Amount(), l.MoneyPerMonth.Amount(), month},
		},
	}
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
