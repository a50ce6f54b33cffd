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

	instances, concurrent int64
	// used are the counts of the day and the month, with what is reserved.
	used Record
	// open is the part of used.ExecutionTime that is reserved and may come back.
	open time.Duration
	// rolls is when the counts begin anew.
	rolls time.Time

	line    []*waiter // in the order of their arrival
	refused map[Limit]int64
}

func (a *account) setLimits(limits Limits, now time.Time) {
	a.limits = limits
	if limits.RequestsPerSecond == 0 {
		a.bucket = nil
		return
	}
	perSecond, burst := rate.Limit(limits.RequestsPerSecond), max(1, int(math.Ceil(limits.RequestsPerSecond)))
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
}

// affords returns why the account cannot pay an amount, nil if it can.
func (a *account) affords(amount Money, now time.Time) *Refusal {
	for _, m := range []struct {
		limit      Limit
		most, used Money
		resets     time.Time
	}{
		{MoneyPerDay, a.limits.MoneyPerDay, a.used.MoneyDay, nextDay(now)},
		{MoneyPerMonth, a.limits.MoneyPerMonth, a.used.MoneyMonth, nextMonth(now)},
	} {
		if amount > 0 && m.most > 0 && m.used+amount > m.most {
			return a.refuse(m.limit, m.most.Amount(), m.used.Amount(), amount.Amount(), m.resets.Sub(now))
		}
	}
	return nil
}

// exhausted returns why a demand cannot be met however long it waits.
func (a *account) exhausted(d *demand, now time.Time) *Refusal {
	if d.Execution {
		if most := a.limits.ExecutionsPerDay; most > 0 && a.used.Executions+1 > most {
			return a.refuse(ExecutionsPerDay, float64(most), float64(a.used.Executions), 1, nextDay(now).Sub(now))
		}
		if most := a.limits.ExecutionTimePerDay; most > 0 && a.used.ExecutionTime+d.Timeout > most {
			retry := nextDay(now).Sub(now)
			if a.used.ExecutionTime-a.open+d.Timeout <= most {
				retry = soon // when those in progress take less than they may
			}
			return a.refuse(ExecutionTimePerDay, most.Seconds(), a.used.ExecutionTime.Seconds(), d.Timeout.Seconds(), retry)
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
