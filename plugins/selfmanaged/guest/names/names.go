package names

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// Address is where the resolver listens. /etc/resolv.conf says so to programs, and those that
// find no such file look there.
const Address = "127.0.0.1:53"

// Bounds on what code can make the guest keep.
const (
	// maxNames have addresses at once, and maxListeners is how many ports there are of all of
	// them. The name that was asked for least lately makes room.
	maxNames     = 256
	maxListeners = 512
	// maxPorts of one name have listeners.
	maxPorts = 64
)

// The addresses that are given to names, one after the other, so that none has soon another
// meaning: 127.64.0.0/10 without its first and last.
const (
	firstAddress = 127<<24 | 64<<16 | 1
	addresses    = 1<<22 - 2
)

// Rule says which ports are worth a listener for a host, or for those of a pattern.
type Rule struct {
	Host  string
	Ports []uint16
}

// Serve carries a connection of a program that takes it for one to a host and port. It closes
// it, at the latest when ctx ends.
type Serve func(ctx context.Context, conn net.Conn, host string, port uint16)

// Names are the addresses of names. They keep their meaning when the resolver is closed and
// opened again. The zero value is ready.
type Names struct {
	// Resolver is where the resolver listens; Address unless set.
	Resolver string

	mu      sync.Mutex
	known   map[string]*entry
	given   uint32 // addresses, ever
	asked   uint64 // queries, ever
	open    bool
	rules   []Rule
	serve   Serve
	room    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	listens int
	asks    *resolver // nil as long as nobody answers
	running sync.WaitGroup
}

// entry is a name with an address.
type entry struct {
	name      string
	address   netip.Addr
	last      uint64 // the query that asked for it
	listeners map[uint16]net.Listener
}

// Open has programs find what the rules name until Close. Each connection has a token in room
// as long as it lasts. The error says that nobody answers queries; Allow tries that again.
func (n *Names) Open(rules []Rule, serve Serve, room chan struct{}) error {
	n.mu.Lock()
	n.open, n.serve, n.room = true, serve, room
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.mu.Unlock()
	return n.Allow(rules)
}

// Allow puts other rules in force: what they do not name has no listener any more when it
// returns.
func (n *Names) Allow(rules []Rule) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.open {
		return nil
	}
	n.rules = rules
	for name, e := range n.known {
		ports := n.ports(name)
		if len(ports) == 0 {
			n.forget(e)
			continue
		}
		n.makeRoom(e, len(ports))
		_ = n.listen(e, ports) // who asks for the name again is told
	}
	if n.asks != nil {
		return nil
	}
	address := n.Resolver
	if address == "" {
		address = Address
	}
	asks, err := newResolver(address, n.find)
	if err != nil {
		return fmt.Errorf("answer for names: %w", err)
	}
	n.asks = asks
	n.running.Go(func() {
		asks.run()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.asks == asks { // it has ended by itself
			n.asks = nil
		}
	})
	return nil
}

// Close ends the resolver, all listeners and connections, and returns when they have ended.
func (n *Names) Close() {
	n.mu.Lock()
	if !n.open {
		n.mu.Unlock()
		return
	}
	n.open, n.rules = false, nil
	if n.asks != nil {
		n.asks.close()
		n.asks = nil
	}
	for _, e := range n.known {
		n.shut(e)
	}
	n.cancel()
	n.mu.Unlock()
	n.running.Wait()
}

// find is the address of a name, or why it has none.
func (n *Names) find(text string) (netip.Addr, dnsmessage.RCode) {
	name, ok := networkpolicy.Host(text)
	n.mu.Lock()
	defer n.mu.Unlock()
	ports := n.ports(name)
	switch {
	case !n.open:
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	case !ok || len(ports) == 0:
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	e := n.known[name]
	if e == nil {
		e = &entry{name: strings.Clone(name), address: n.next(), listeners: map[uint16]net.Listener{}}
		if n.known == nil {
			n.known = map[string]*entry{}
		}
		n.known[e.name] = e
	}
	n.asked++
	e.last = n.asked
	n.makeRoom(e, len(ports))
	if err := n.listen(e, ports); err != nil {
		return netip.Addr{}, dnsmessage.RCodeServerFailure
	}
	return e.address, dnsmessage.RCodeSuccess
}

// next is an address that no name has. The caller holds mu.
func (n *Names) next() netip.Addr {
	for {
		a := uint32(firstAddress) + n.given%addresses
		n.given++
		address := netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
		taken := false
		for _, e := range n.known {
			taken = taken || e.address == address
		}
		if !taken {
			return address
		}
	}
}

// ports are those at which a name is worth listeners. The caller holds mu.
func (n *Names) ports(name string) []uint16 {
	var ports []uint16
	for _, r := range n.rules {
		if networkpolicy.Covers(r.Host, name) {
			ports = append(ports, r.Ports...)
		}
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	return ports[:min(len(ports), maxPorts)]
}

// makeRoom forgets other names until there is room for one. The caller holds mu.
func (n *Names) makeRoom(e *entry, ports int) {
	for len(n.known) > maxNames || n.listens-len(e.listeners)+ports > maxListeners {
		var oldest *entry
		for _, other := range n.known {
			if other != e && (oldest == nil || other.last < oldest.last) {
				oldest = other
			}
		}
		if oldest == nil {
			return
		}
		n.forget(oldest)
	}
}

// forget takes the address from a name. What is connected stays so. The caller holds mu.
func (n *Names) forget(e *entry) {
	n.shut(e)
	delete(n.known, e.name)
}

// shut closes the listeners of a name. The caller holds mu.
func (n *Names) shut(e *entry) {
	for port, l := range e.listeners {
		_ = l.Close()
		delete(e.listeners, port)
		n.listens--
	}
}

// listen has a name listened for at these ports, and at all of them or none: at a port that
// somebody else has, its clients would talk to that one. The caller holds mu.
func (n *Names) listen(e *entry, ports []uint16) error {
	for port, l := range e.listeners {
		if !slices.Contains(ports, port) {
			_ = l.Close()
			delete(e.listeners, port)
			n.listens--
		}
	}
	for _, port := range ports {
		if e.listeners[port] != nil {
			continue
		}
		l, err := net.Listen("tcp4", netip.AddrPortFrom(e.address, port).String())
		if err != nil {
			n.shut(e)
			return err
		}
		e.listeners[port] = l
		n.listens++
		ctx, serve, room := n.ctx, n.serve, n.room
		n.running.Go(func() {
			n.accept(ctx, l, room, func(conn net.Conn) { serve(ctx, conn, e.name, port) })
			n.mu.Lock()
			defer n.mu.Unlock()
			if e.listeners[port] == l { // so has it
				n.shut(e)
			}
		})
	}
	return nil
}

// accept serves what connects to a listener until that is closed.
func (n *Names) accept(ctx context.Context, l net.Listener, room chan struct{}, serve func(net.Conn)) {
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			_ = conn.Close()
			return
		}
		n.running.Go(func() {
			defer func() { <-room }()
			serve(conn)
		})
	}
}
