package admission

import (
	"net/netip"
	"time"
)

// eventPause is the least time between two reports.
const eventPause = 10 * time.Second

// Event is what had to be done since the last report.
type Event struct {
	Counts
	// Address is where the last of the strangers came from that were turned away,
	// if any were. Owner is who had too many connections last.
	Address netip.Addr
	Owner   string
	// Err is the last error of accept.
	Err error
	// Bounds that hold.
	Bounds Bounds
}

// dueEvent returns what is to be reported now, if anything. The caller holds mu.
func (g *Gate) dueEvent(now time.Time) (Event, bool) {
	e := g.untold
	if e.Displaced+e.Idle+e.Refused+e.Overdrawn+e.Errors == 0 || !g.told.IsZero() && now.Sub(g.told) < eventPause {
		return Event{}, false
	}
	g.untold, g.told = Event{}, now
	e.Known, e.Strangers, e.Bounds = g.counts.Known, g.counts.Strangers, g.bounds
	return e, true
}
