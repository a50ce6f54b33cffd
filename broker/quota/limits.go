package quota

import (
	"cmp"
	"math"
	"time"
)

// Limits of one tenant. Zero means that there is no limit.
type Limits struct {
	// Instances that exist and executions in progress.
	Instances, Concurrent int64
	// Paused instances that hold no memory, which are none of Instances.
	Paused int64
	// RequestsPerSecond on average; those of one second may come at once.
	RequestsPerSecond float64
	// The counts of a day of UTC.
	ExecutionsPerDay    int64
	ExecutionTimePerDay time.Duration
	// Size of an instance.
	Size Size
	// The cost of instances in a day and in a month of UTC.
	MoneyPerDay, MoneyPerMonth Money
	// Snapshots that exist, and their bytes together.
	Snapshots, SnapshotBytes int64
	// Volumes that exist, and the sizes of all of them together, in bytes.
	Volumes, VolumeBytes int64
}

// countsExecutions reports whether there is a limit of the day on executions.
func (l Limits) countsExecutions() bool { return l.ExecutionsPerDay > 0 || l.ExecutionTimePerDay > 0 }

// countsMoney reports whether there is a limit on money.
func (l Limits) countsMoney() bool { return l.MoneyPerDay > 0 || l.MoneyPerMonth > 0 }

// Size of an instance. Zero means that it is not known, or not limited.
type Size struct {
	MemoryMB int64
	CPUs     float64
}

// Money in billionths of the unit in which the operator counts.
type Money int64

const (
	moneyUnit = 1_000_000_000
	// maxMoney keeps sums from overflowing.
	maxMoney = Money(math.MaxInt64 / 2)
)

// MoneyOf turns an amount in units into Money.
func MoneyOf(amount float64) Money {
	return Money(math.Round(min(amount*moneyUnit, float64(maxMoney))))
}

// Amount is the money in units.
func (m Money) Amount() float64 { return float64(m) / moneyUnit }

// costOf is what a time costs at a price per second.
func costOf(price Money, d time.Duration) Money {
	if price == 0 || d <= 0 {
		return 0
	}
	return MoneyOf(price.Amount() * d.Seconds())
}

// Rules are what the configuration says.
type Rules struct {
	// Tenants by name; one that is not there has no limits.
	Tenants map[string]Limits
	// Costs of a second of an instance, and Sizes of the instances, by the label of
	// the provider. What is not there costs nothing, or is not known.
	Costs map[string]Money
	Sizes map[string]Size
	// MaxWaiting is how many requests of each tenant may wait at a time.
	MaxWaiting int
}

// Limit names one of the limits, as the configuration does.
type Limit string

// The limits.
const (
	MaxInstances        Limit = "max_instances"
	MaxPaused           Limit = "max_paused"
	MaxConcurrent       Limit = "max_concurrent"
	RequestsPerSecond   Limit = "requests_per_second"
	ExecutionsPerDay    Limit = "executions_per_day"
	ExecutionTimePerDay Limit = "execution_seconds_per_day"
	MaxMemoryMB         Limit = "max_memory_mb"
	MaxCPUs             Limit = "max_cpus"
	MoneyPerDay         Limit = "money_per_day"
	MoneyPerMonth       Limit = "money_per_month"
	MaxSnapshots        Limit = "max_snapshots"
	MaxSnapshotBytes    Limit = "max_snapshot_bytes"
	MaxVolumes          Limit = "max_volumes"
	MaxVolumeBytes      Limit = "max_volume_bytes"
	// ProviderFull is no quota: the provider itself has no room, and others wait
	// for it already.
	ProviderFull Limit = "provider"
)

// or is the size, with what is not known of it from another.
func (s Size) or(usual Size) Size {
	return Size{MemoryMB: cmp.Or(s.MemoryMB, usual.MemoryMB), CPUs: cmp.Or(s.CPUs, usual.CPUs)}
}
