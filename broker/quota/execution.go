package quota

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// Execution is the leave to run one execution. A nil one is that of nobody.
type Execution struct {
	keeper   *Keeper
	account  *account
	day      string // whose counts it is in
	reserved time.Duration

	// Guarded by Keeper.mu.
	started  time.Time
	released bool
}

// Start says that the code begins to run. Without it, Release takes back the whole
// execution.
func (e *Execution) Start() {
	if e == nil {
		return
	}
	e.keeper.mu.Lock()
	defer e.keeper.mu.Unlock()
	if e.started.IsZero() {
		e.started = e.keeper.now()
	}
}

// Release ends the execution. What it took is charged, at most what was reserved for
// it, and the rest comes back. Later calls do nothing.
func (e *Execution) Release() { e.end(true) }

// Cancel is Release when nothing ran, started or not.
func (e *Execution) Cancel() { e.end(false) }

func (e *Execution) end(ran bool) {
	if e == nil {
		return
	}
	k, a := e.keeper, e.account
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.released {
		return
	}
	e.released = true
	a.concurrent--
	a.changedIn(MaxConcurrent)
	now := k.now()
	a.roll(now)
	if e.day == a.used.Day { // else it was yesterday's, which nobody counts any more
		back := e.reserved
		if e.started.IsZero() || !ran {
			a.used.Executions--
		} else {
			back -= min(max(0, now.Sub(e.started)), e.reserved)
		}
		a.used.ExecutionTime -= back
		a.open -= e.reserved
		a.changedIn(ExecutionsPerDay, ExecutionTimePerDay)
		k.changed(a)
	}
	k.serve(a)
	failpoint.Hit(failpoint.QuotaSettled)
}
