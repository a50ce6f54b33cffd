// Package link is the network between processes of a test: a TCP proxy that a test cuts and
// heals, for all who connect or for one of them, without either end being told, or with resets.
package link

import (
	"net"
	"sync"
	"time"
)

// Cut is what is wrong with a link.
type Cut int

const (
	// Open links carry everything.
	Open Cut = iota
	// Reset links break connections and refuse others.
	Reset
	// Stalled links carry nothing, and tell nobody. What was sent meanwhile arrives when they
	// are open again, as TCP would send it again.
	Stalled
	// Mute links carry what is asked, and no answer.
	Mute
)

// Link leads from an address of its own to a target.
type Link struct {
	listener net.Listener
	source   func(net.Addr) string
	wg       sync.WaitGroup

	mu      sync.Mutex
	target  string
	cuts    map[string]Cut
	changed chan struct{} // closed with each change
	pairs   map[*pair]struct{}
	closed  bool
}

// pair is one connection on both sides.
type pair struct {
	source string
	dead   chan struct{}
	once   sync.Once
	mu     sync.Mutex
	ends   []net.Conn
}

// everyone is the source that a cut for all has.
const everyone = ""

// Listen opens a link at a free port of 127.0.0.1. source names who connects, by its address;
// nil where all are the same.
func Listen(target string, source func(net.Addr) string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if source == nil {
		source = func(net.Addr) string { return everyone }
	}
	l := &Link{listener: listener, source: source, target: target, cuts: map[string]Cut{}, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	l.wg.Go(l.accept)
	return l, nil
}

// Address is where it listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Cut changes what is wrong for all who connect.
func (l *Link) Cut(how Cut) { l.CutFrom(everyone, how) }

// CutFrom changes what is wrong for one of those who connect.
func (l *Link) CutFrom(source string, how Cut) {
	l.mu.Lock()
	l.cuts[source] = how
	l.tell()
	var broken []*pair
	for p := range l.pairs {
		if how == Reset && (source == everyone || p.source == source) {
			broken = append(broken, p)
		}
	}
	l.mu.Unlock()
	for _, p := range broken {
		p.end()
	}
}

// Lead has the link lead to another target from now on, and breaks the connections that there
// are.
func (l *Link) Lead(target string) {
	l.mu.Lock()
	l.target = target
	l.mu.Unlock()
	l.breakAll()
}

// Close ends the link and its connections.
func (l *Link) Close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.tell()
	l.mu.Unlock()
	l.breakAll()
	l.wg.Wait()
}

func (l *Link) breakAll() {
	l.mu.Lock()
	var all []*pair
	for p := range l.pairs {
		all = append(all, p)
	}
	l.mu.Unlock()
	for _, p := range all {
		p.end()
	}
}

// tell wakes who waits for a change. The caller holds mu.
func (l *Link) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // it is closed
		}
		l.wg.Go(func() { l.serve(client) })
	}
}

// dialTimeout bounds a connection to the target.
const dialTimeout = 5 * time.Second

func (l *Link) serve(client net.Conn) {
	p := &pair{source: l.source(client.RemoteAddr()), dead: make(chan struct{})}
	p.add(client)
	defer p.end()
	l.mu.Lock()
	if l.closed || l.worst(p.source) == Reset {
		l.mu.Unlock()
		return
	}
	l.pairs[p] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.pairs, p)
		l.mu.Unlock()
	}()
	if !l.await(p, false) {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		return
	}
	p.add(server)
	var both sync.WaitGroup
	both.Go(func() { l.carry(p, server, client, false) })
	both.Go(func() { l.carry(p, client, server, true) })
	both.Wait()
}

// carry carries one direction, until that ends or the pair does.
func (l *Link) carry(p *pair, to, from net.Conn, answers bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.await(p, answers) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				p.end()
				return
			}
		}
		if err != nil {
			if half, ok := to.(*net.TCPConn); ok && half.CloseWrite() == nil {
				return
			}
			p.end()
			return
		}
	}
}

// await waits until the link carries what comes next of a pair. It returns false for one that
// has ended.
func (l *Link) await(p *pair, answers bool) bool {
	for {
		l.mu.Lock()
		changed, cut := l.changed, l.worst(p.source)
		l.mu.Unlock()
		select {
		case <-p.dead:
			return false
		default:
		}
		if cut != Stalled && (cut != Mute || !answers) {
			return true
		}
		select {
		case <-changed:
		case <-p.dead:
			return false
		}
	}
}

// worst is what is wrong for a source. The caller holds mu.
func (l *Link) worst(source string) Cut {
	if all := l.cuts[everyone]; all != Open {
		return all
	}
	return l.cuts[source]
}

func (p *pair) add(end net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, end)
	select {
	case <-p.dead:
		_ = end.Close()
	default:
	}
}

// end breaks both connections with a reset.
func (p *pair) end() {
	p.once.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(p.dead)
		for _, end := range p.ends {
			if tcp, ok := end.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = end.Close()
		}
	})
}
