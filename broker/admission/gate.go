package admission

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// grace is how long a stranger has to show a token before its connection is closed
// for want of room. A request that is on its way needs less, also on a machine that
// is busy.
const grace = 250 * time.Millisecond

// Counts is what there is and what became of the rest.
type Counts struct {
	// Known connections have shown a valid token, Strangers have not.
	Known, Strangers int
	// Displaced connections of strangers were closed to make room, Idle ones of
	// others between two requests.
	Displaced, Idle uint64
	// Refused connections were closed at once: their address had too many, or
	// there was no room. Overdrawn is how many requests came by a connection
	// that was one too many for who sent it.
	Refused, Overdrawn uint64
	// Errors of accept.
	Errors uint64
}

// Gate counts the connections of a server, on all its listeners. It is safe for
// concurrent use.
type Gate struct {
	report func(Event)
	freed  chan struct{} // has one when there may be room

	mu        sync.Mutex
	bounds    Bounds
	counts    Counts
	strangers *list.List // of *Ticket, the oldest first
	idle      *list.List // of *Ticket with an owner, the longest idle first
	addresses map[netip.Addr]*list.List
	owners    map[string]int
	told      time.Time // when something was reported last
	untold    Event     // since then
}

// NewGate returns a gate. report, which may be nil, is told at most every ten
// seconds what had to be done.
func NewGate(bounds Bounds, report func(Event)) *Gate {
	return &Gate{
		report: report, freed: make(chan struct{}, 1), bounds: bounds,
		strangers: list.New(), idle: list.New(), addresses: map[netip.Addr]*list.List{}, owners: map[string]int{},
	}
}

// SetBounds changes what holds for connections that come from now on.
func (g *Gate) SetBounds(bounds Bounds) {
	g.mu.Lock()
	g.bounds = bounds
	g.mu.Unlock()
	g.signal()
}

// Counts returns what there is at this moment.
func (g *Gate) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

// enter makes room for a connection, and waits for it a moment if there are but
// young strangers. It returns nil if there is none; the caller closes the connection.
func (g *Gate) enter(conn net.Conn, closed <-chan struct{}) *Ticket {
	t := &Ticket{gate: g, conn: conn, address: source(conn.RemoteAddr())}
	for {
		wait, admitted, done := g.try(t, time.Now())
		if done {
			if admitted {
				return t
			}
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-g.freed:
		case <-closed:
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// try admits a connection, or refuses it, or says how long to wait.
func (g *Gate) try(t *Ticket, now time.Time) (wait time.Duration, admitted, done bool) {
	var close []net.Conn // once nothing is locked: it may take its time
	g.mu.Lock()
	defer func() {
		event, due := g.dueEvent(now)
		g.mu.Unlock()
		for _, conn := range close {
			_ = conn.Close()
		}
		if due && g.report != nil {
			g.report(event)
		}
	}()
	if !g.bounds.shared(t.address) {
		for same := g.addresses[t.address]; same != nil && same.Len() >= max(1, g.bounds.StrangersPerAddress); {
			oldest := same.Front().Value.(*Ticket)
			if now.Sub(oldest.since) < grace {
				g.refuse(t)
				return 0, false, true
			}
			close = append(close, g.displace(oldest))
		}
	}
	for g.counts.Strangers >= max(1, g.bounds.Strangers) || g.counts.Known+g.counts.Strangers >= max(1, g.bounds.Connections) {
		front := g.strangers.Front()
		if front != nil {
			oldest := front.Value.(*Ticket)
			if age := now.Sub(oldest.since); age < grace {
				return grace - age, false, false
			}
			close = append(close, g.displace(oldest))
			continue
		}
		if front = g.idle.Front(); front == nil {
			g.refuse(t)
			return 0, false, true
		}
		close = append(close, g.end(front.Value.(*Ticket)))
	}
	t.since = now
	t.inStrangers = g.strangers.PushBack(t)
	same := g.addresses[t.address]
	if same == nil {
		same = list.New()
		g.addresses[t.address] = same
	}
	t.inAddress = same.PushBack(t)
	g.counts.Strangers++
	return 0, true, true
}

// relieve closes connections of strangers when the process has no descriptors left.
func (g *Gate) relieve() {
	const some = 8
	var close []net.Conn
	g.mu.Lock()
	for range some {
		front := g.strangers.Front()
		if front == nil {
			break
		}
		close = append(close, g.displace(front.Value.(*Ticket)))
	}
	g.mu.Unlock()
	for _, conn := range close {
		_ = conn.Close()
	}
}

// The rest is called with mu held.

// displace takes a stranger off the books. The caller closes its connection.
func (g *Gate) displace(t *Ticket) net.Conn {
	g.counts.Displaced++
	g.untold.Displaced++
	g.untold.Address = t.address
	t.displaced = true
	g.remove(t)
	return t.conn
}

// end does the same with a connection that is idle.
func (g *Gate) end(t *Ticket) net.Conn {
	g.counts.Idle++
	g.untold.Idle++
	t.displaced = true
	g.remove(t)
	return t.conn
}

func (g *Gate) refuse(t *Ticket) {
	g.counts.Refused++
	g.untold.Refused++
	g.untold.Address = t.address
}

// remove takes a connection off the books.
func (g *Gate) remove(t *Ticket) {
	if t.gone {
		return
	}
	t.gone = true
	if t.inStrangers != nil {
		g.counts.Strangers--
		g.noStranger(t)
	} else {
		g.counts.Known--
	}
	g.setIdle(t, false)
	g.disown(t)
}

func (g *Gate) noStranger(t *Ticket) {
	g.strangers.Remove(t.inStrangers)
	same := g.addresses[t.address]
	same.Remove(t.inAddress)
	if same.Len() == 0 {
		delete(g.addresses, t.address)
	}
	t.inStrangers, t.inAddress = nil, nil
}

func (g *Gate) setIdle(t *Ticket, idle bool) {
	switch {
	case idle && t.inIdle == nil:
		t.inIdle = g.idle.PushBack(t)
	case !idle && t.inIdle != nil:
		g.idle.Remove(t.inIdle)
		t.inIdle = nil
	}
}

func (g *Gate) disown(t *Ticket) {
	if !t.owned {
		return
	}
	t.owned = false
	if g.owners[t.owner]--; g.owners[t.owner] == 0 {
		delete(g.owners, t.owner)
	}
}

func (g *Gate) signal() {
	select {
	case g.freed <- struct{}{}:
	default:
	}
}
