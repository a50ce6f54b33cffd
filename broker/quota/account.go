package quota

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// account is what one tenant uses. It is guarded by Keeper.mu.
type account struct {
	tenant string
	limits Limits
	bucket *rate.Limiter // nil without RequestsPerSecond

	// paused are the instances that hold no memory, which are none of the others.
	instances, paused, concurrent int64
	// snapshots that are kept, those of forks, and the bytes of both.
	snapshots, transient, snapshotBytes int64
	// used are the counts of the day and the month, with what is reserved.
	used Record
	// open is the part of used.ExecutionTime that is reserved and may come back.
	open time.Duration
	// rolls is when the counts begin anew.
	rolls time.Time

	// shares are what is held of limits that brokers share; nil where they do not. due has the
	// account looked at by who asks for more and gives back.
	shares map[Limit]*share
	due    func(*account)

	line    []*waiter // in the order of their arrival
	refused map[Limit]int64
}

// setLimits changes the limits, which so many brokers share.
func (a *account) setLimits(limits Limits, brokers int, now time.Time) {
	a.limits = limits
	if limits.RequestsPerSecond == 0 {
		a.bucket = nil
		return
	}
	part := limits.RequestsPerSecond / float64(max(1, brokers))
	perSecond, burst := rate.Limit(part), max(1, int(math.Ceil(part)))
	if a.bucket == nil {
		a.bucket = rate.NewLimiter(perSecond, burst)
		return
	}
	a.bucket.SetLimitAt(now, perSecond)
	a.bucket.SetBurstAt(now, burst)
}

// maxSetBack is how far a clock may be set back without a day being counted anew.
// One that is set back further was wrong, and would keep what it has counted from
// ever ending.
const maxSetBack = 48 * time.Hour

// roll begins the counts anew when a day or a month has ended.
func (a *account) roll(now time.Time) {
	if now.Before(a.rolls) && a.rolls.Sub(now) <= maxSetBack {
		return
	}
	a.rolls = nextDay(now)
	later := now.Add(maxSetBack)
	if day := dayOf(now); day > a.used.Day || dayOf(later) < a.used.Day {
		a.used.Day, a.used.Executions, a.used.ExecutionTime, a.used.MoneyDay = day, 0, 0, 0
		a.open = 0
	}
	if month := monthOf(now); month > a.used.Month || monthOf(later) < a.used.Month {
		a.used.Month, a.used.MoneyMonth = month, 0
	}
}

func (a *account) pay(amount Money) {
	a.used.MoneyDay = min(a.used.MoneyDay+amount, maxMoney)
	a.used.MoneyMonth = min(a.used.MoneyMonth+amount, maxMoney)
	a.changedIn(MoneyPerDay, MoneyPerMonth)
}

// affords returns why the account cannot pay an amount, nil if it can.
func (a *account) affords(amount Money, now time.Time) *Refusal {
	if refusal := a.fits(MoneyPerDay, int64(amount), nextDay(now).Sub(now)); refusal != nil {
		return refusal
	}
	return a.fits(MoneyPerMonth, int64(amount), nextMonth(now).Sub(now))
}

// exhausted returns why a demand cannot be met however long it waits.
func (a *account) exhausted(d *demand, now time.Time) *Refusal {
	if d.Execution {
		retry := nextDay(now).Sub(now)
		if refusal := a.fits(ExecutionsPerDay, 1, retry); refusal != nil {
			return refusal
		}
		if a.open > 0 && a.used.ExecutionTime-a.open+d.Timeout <= a.limits.ExecutionTimePerDay {
			retry = soon // when those in progress take less than they may
		}
		if refusal := a.fits(ExecutionTimePerDay, int64(d.Timeout), retry); refusal != nil {
			return refusal
		}
	}
	if most := a.limits.Size.MemoryMB; d.Instance && most > 0 && d.size.MemoryMB > most {
		return a.refuse(MaxMemoryMB, float64(most), 0, float64(d.size.MemoryMB), 0)
	}
	if most := a.limits.Size.CPUs; d.Instance && most > 0 && d.size.CPUs > most {
		return a.refuse(MaxCPUs, most, 0, d.size.CPUs, 0)
	}
	return a.affords(d.money(), now)
}

func (a *account) refuse(limit Limit, most, used, need float64, retry time.Duration) *Refusal {
	if need > most {
		retry = 0
	}
	return &Refusal{Tenant: a.tenant, Limit: limit, Max: most, Used: used, Need: need, RetryAfter: retry}
}

const (
	dayForm   = "2006-01-02"
	monthForm = "2006-01"
)

func dayOf(t time.Time) string   { return t.UTC().Format(dayForm) }
func monthOf(t time.Time) string { return t.UTC().Format(monthForm) }

func nextDay(t time.Time) time.Time {
	y, m, d := t.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

func nextMonth(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
}
