package admission

import (
	"container/list"
	"net"
	"net/netip"
	"time"
)

// Ticket stands for a connection that was let in. Its methods may be called on nil,
// which stands for a connection that nobody counts.
type Ticket struct {
	gate    *Gate
	conn    net.Conn
	address netip.Addr
	since   time.Time

	// The rest is guarded by the gate's mu.

	inStrangers, inAddress, inIdle *list.Element // nil when not in that list
	owner                          string
	owned                          bool
	gone, displaced                bool
}

// Trust says that a valid token was shown: the connection is no longer a stranger's.
func (t *Ticket) Trust() {
	if t == nil {
		return
	}
	t.gate.mu.Lock()
	fresh := !t.gone && t.inStrangers != nil
	if fresh {
		t.trust()
	}
	t.gate.mu.Unlock()
	if fresh {
		t.gate.signal()
	}
}

func (t *Ticket) trust() {
	t.gate.noStranger(t)
	t.gate.counts.Strangers--
	t.gate.counts.Known++
}

// Own does the same and says whose token it was. It reports false when the owner has
// as many connections as it may, this one not among them. One that is used for
// several owners, as by a proxy, belongs to the last.
func (t *Ticket) Own(owner string) bool {
	if t == nil {
		return true
	}
	t.Trust()
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	switch {
	case t.gone, t.owned && t.owner == owner:
		return true
	case t.gate.owners[owner] >= max(1, t.gate.bounds.PerOwner):
		t.gate.counts.Overdrawn++
		t.gate.untold.Overdrawn++
		t.gate.untold.Owner = owner
		return false
	}
	t.gate.disown(t)
	t.owner, t.owned = owner, true
	t.gate.owners[owner]++
	return true
}

// SetIdle says whether nothing is going on: such a connection may be closed for
// others.
func (t *Ticket) SetIdle(idle bool) {
	if t == nil {
		return
	}
	t.gate.mu.Lock()
	if !t.gone && (t.inStrangers == nil || !idle) {
		t.gate.setIdle(t, idle)
	}
	t.gate.mu.Unlock()
	if idle {
		t.gate.signal()
	}
}

// Displaced reports whether the gate has closed the connection.
func (t *Ticket) Displaced() bool {
	if t == nil {
		return false
	}
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	return t.displaced
}

// Leave says that the connection is closed. More than once is as good as once.
func (t *Ticket) Leave() {
	if t == nil {
		return
	}
	t.gate.mu.Lock()
	t.gate.remove(t)
	t.gate.mu.Unlock()
	t.gate.signal()
}
