package routing

import "time"

const (
	// threshold is how many creations in a row must fail for the circuit to open.
	threshold = 3
	// firstPause is how long it stays open then. After each trial that fails it is
	// twice as long, up to maxPause.
	firstPause = 5 * time.Second
	maxPause   = 2 * time.Minute
)

// State of a circuit.
type State string

// The states.
const (
	Closed   State = "closed"    // takes new instances
	Open     State = "open"      // others are asked first
	HalfOpen State = "half_open" // one request is let through, to see
)

// Standing is how a provider has done of late.
type Standing struct {
	Circuit State
	// Failures in a row.
	Failures int
	// Until is when an open circuit lets one request through.
	Until time.Time
	// Creation is how long creations took on average, the last ones most; 0 if there
	// was none yet.
	Creation time.Duration
}

// circuit is that of one provider; the zero value is closed.
type circuit struct {
	failures int
	pause    time.Duration // 0 while it is closed
	until    time.Time
	// trial says that a request was let through after until. When nothing is heard
	// of it for as long as the last pause, another is.
	trial bool
}

func (c *circuit) fail(now time.Time) {
	c.failures++
	switch {
	case c.pause == 0 && c.failures >= threshold:
		c.pause = firstPause
	case c.pause > 0 && c.trial:
		c.pause = min(2*c.pause, maxPause)
	default:
		// Still closed; or begun before it opened, which is nothing new.
		return
	}
	c.trial, c.until = false, now.Add(c.pause)
}

func (c *circuit) enter(now time.Time, well bool) (may, trial bool) {
	if c.pause == 0 {
		return true, false
	}
	if now.Before(c.until) || !well {
		return false, false
	}
	c.trial, c.until = true, now.Add(c.pause)
	return true, true
}

func (c *circuit) standing(now time.Time) Standing {
	s := Standing{Circuit: Closed, Failures: c.failures}
	switch {
	case c.pause == 0:
	case c.trial || !now.Before(c.until):
		s.Circuit = HalfOpen
	default:
		s.Circuit, s.Until = Open, c.until
	}
	return s
}
