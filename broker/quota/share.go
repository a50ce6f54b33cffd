package quota

import (
	"slices"
	"time"
)

// Where brokers share a Ledger, a limit of a tenant is what all of them hold together. A broker
// takes from what it holds, and asks for more (till.go) before it takes more.

// sharedLimits are those that brokers hold parts of.
var sharedLimits = []Limit{
	MaxInstances, MaxPaused, MaxConcurrent, ExecutionsPerDay, ExecutionTimePerDay, MoneyPerDay, MoneyPerMonth,
}

// lasts reports whether what was used of a limit stays used: until the day or the month is over.
// What a broker holds of another one is free again once it counts as dead.
func (l Limit) lasts() bool {
	switch l {
	case ExecutionsPerDay, ExecutionTimePerDay, MoneyPerDay, MoneyPerMonth:
		return true
	default:
		return false
	}
}

// amount is a number of a limit as Refusal and Line have it.
func (l Limit) amount(n int64) float64 {
	switch l {
	case ExecutionTimePerDay:
		return time.Duration(n).Seconds()
	case MoneyPerDay, MoneyPerMonth:
		return Money(n).Amount()
	default:
		return float64(n)
	}
}

// goodFor is how long a reserve may be taken from that was confirmed: less than a broker that
// the database does not hear of is given, since others may have what a dead one held.
const goodFor = 3 * time.Second

// A reserve is so many times the need of a request, where there is plenty: the least, and up to
// the most where it does not last for batchTime.
const (
	leastBatch = 64
	mostBatch  = 4096
	batchTime  = 250 * time.Millisecond
)

// share is what a broker holds of one limit of a tenant. It is guarded by Keeper.mu.
type share struct {
	period string
	held   int64
	// confirmed is when the database was last asked that has said so.
	confirmed time.Time
	// granted is the reserve that came with the last answer, and unit the need of who asked.
	granted, unit int64
	// batch is how many units are taken as a reserve.
	batch int64
	// others is what other brokers hold, and told what they know to be in use here.
	others, told int64
	// tight says that the last answer had no reserve: what is not in use any more is told at
	// once, and stays here unless others want it.
	tight bool
	// wanted says that other brokers want it: there is no reserve then.
	wanted bool
	// taken says that something was taken in this second.
	taken bool
	// tell says that the ledger does not have how it is, lacks that somebody waits in the line
	// for more, and refill that the reserve will soon be used up.
	tell, lacks, refill bool
	// asked says that the ledger knows of those who wait in the line.
	asked bool
}

// grow has a reserve be as large as it is used up soon.
func (s *share) grow() {
	switch since := time.Since(s.confirmed); {
	case since > time.Second:
		s.batch = leastBatch
	case since < batchTime:
		s.batch = min(2*s.batch, mostBatch)
	}
}

// need is what a request needs of a limit.
type need struct {
	limit  Limit
	amount int64
}

// reading is how much of a shared limit is in use here, the limit, and the period that counts.
func (a *account) reading(limit Limit) (used, most int64, period string) {
	switch limit {
	case MaxInstances:
		return a.instances, a.limits.Instances, ""
	case MaxPaused:
		return a.paused, a.limits.Paused, ""
	case MaxConcurrent:
		return a.concurrent, a.limits.Concurrent, ""
	case ExecutionsPerDay:
		return a.used.Executions, a.limits.ExecutionsPerDay, a.used.Day
	case ExecutionTimePerDay:
		return int64(a.used.ExecutionTime), int64(a.limits.ExecutionTimePerDay), a.used.Day
	case MoneyPerDay:
		return int64(a.used.MoneyDay), int64(a.limits.MoneyPerDay), a.used.Day
	case MoneyPerMonth:
		return int64(a.used.MoneyMonth), int64(a.limits.MoneyPerMonth), a.used.Month
	default:
		panic("quota: " + string(limit) + " is not shared")
	}
}

// share returns what is held of a limit in the period that goes on.
func (a *account) share(limit Limit, period string) *share {
	s := a.shares[limit]
	if s == nil {
		s = &share{}
		a.shares[limit] = s
	}
	if s.period != period {
		*s = share{period: period}
	}
	return s
}

// reserve is what is held and not in use.
func (s *share) reserve(limit Limit, used int64) int64 {
	if !limit.lasts() && time.Since(s.confirmed) > goodFor {
		return 0
	}
	return s.held - used
}

// lacks reports whether more of a limit has to be asked for before so much of it can be taken,
// which waits requests may do that are in the line.
func (a *account) lacks(limit Limit, amount int64) bool {
	if a.shares == nil || amount <= 0 {
		return false
	}
	used, most, period := a.reading(limit)
	if most == 0 {
		return false
	}
	s := a.share(limit, period)
	if s.reserve(limit, used) >= amount {
		return false
	}
	if !s.asked {
		s.lacks = true
		a.due(a)
	}
	return true
}

// lineLacks has asked once more for those who wait in the line.
func (a *account) lineLacks() {
	for _, limit := range []Limit{MaxConcurrent, MaxInstances} {
		if s := a.shares[limit]; s != nil {
			s.asked, s.lacks = false, true
			a.due(a)
		}
	}
}

// lineChanged has the ledger told that somebody waits no more.
func (a *account) lineChanged() {
	for _, limit := range []Limit{MaxConcurrent, MaxInstances} {
		if s := a.shares[limit]; s != nil && s.asked {
			s.tell = true
			a.due(a)
		}
	}
}

// tellAll has the ledger told of all that is in use, and of what it may have of earlier rules.
func (a *account) tellAll() {
	if a.shares == nil {
		return
	}
	for _, limit := range sharedLimits {
		used, most, period := a.reading(limit)
		if a.shares[limit] == nil && (most == 0 || used == 0) {
			continue
		}
		s := a.share(limit, period)
		s.held, s.tell = used, true
		a.due(a)
	}
}

// fits refuses an amount of a limit that is neither left nor, where brokers share it, held.
// retry is when to ask again.
func (a *account) fits(limit Limit, amount int64, retry time.Duration) *Refusal {
	used, most, _ := a.reading(limit)
	if most == 0 || amount <= 0 {
		return nil
	}
	full := used+amount > most
	if lacks := a.lacks(limit, amount); !full && !lacks {
		return nil
	}
	refusal := a.refuse(limit, limit.amount(most), limit.amount(used), limit.amount(amount), retry)
	refusal.short = !full
	return refusal
}

// changedIn notes that more or less of limits is in use. What comes back to a limit that others
// want is theirs.
func (a *account) changedIn(limits ...Limit) {
	if a.shares == nil {
		return
	}
	for _, limit := range limits {
		used, most, period := a.reading(limit)
		if most == 0 {
			continue
		}
		s := a.share(limit, period)
		s.taken = true
		switch reserve := s.held - used; {
		case reserve < 0:
			s.tell = true
		case reserve > 0 && s.wanted:
			s.held, s.tell = used, true
		case s.tight && used < s.told:
			s.tell = true
		case !s.wanted && s.unit > 0 && reserve < s.granted/4:
			s.refill = true
		default:
			continue
		}
		a.due(a)
	}
}

// needs are what a demand takes of the limits that are shared and that nobody waits for in a
// line.
func (d *demand) needs() []need {
	var all []need
	if d.Execution {
		all = append(all, need{ExecutionsPerDay, 1}, need{ExecutionTimePerDay, int64(d.Timeout)})
		if d.Wait == 0 {
			all = append(all, need{MaxConcurrent, 1})
		}
	}
	if d.Instance {
		all = append(all, need{MoneyPerDay, int64(d.money())}, need{MoneyPerMonth, int64(d.money())})
		if d.Wait == 0 {
			all = append(all, need{MaxInstances, 1})
		}
	}
	return slices.DeleteFunc(all, func(n need) bool { return n.amount == 0 })
}

// maxWaits is how many of those who wait for a limit other brokers are told of.
const maxWaits = 64

// waits says when those have come who are held back by a limit that is shared, and need this one.
func (a *account) waits(limit Limit) []time.Time {
	var all []time.Time
	for _, w := range a.line {
		if w.blocked == nil || w.blocked.Limit == ProviderFull {
			continue
		}
		if limit == MaxConcurrent && w.demand.Execution || limit == MaxInstances && w.demand.Instance {
			if all = append(all, w.demand.Arrived); len(all) == maxWaits {
				break
			}
		}
	}
	return all
}
