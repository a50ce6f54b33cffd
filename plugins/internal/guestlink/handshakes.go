package guestlink

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
)

// handshakes bounds how many handshakes there are at once. Where there is no room for
// another, the oldest of the peer that has most makes room: whoever takes all the room takes
// it from itself, and one who does not dawdle is not the oldest.
type handshakes struct {
	most int

	mu     sync.Mutex
	count  int
	byPeer map[netip.Addr]*list.List // of context.CancelFunc, the oldest first
}

func newHandshakes(most int) *handshakes {
	return &handshakes{most: most, byPeer: map[netip.Addr]*list.List{}}
}

// begin counts a handshake, which cancel ends, until done is called.
func (h *handshakes) begin(conn net.Conn, cancel context.CancelFunc) (done func()) {
	peer := peerOf(conn)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= h.most {
		h.makeRoom()
	}
	if h.byPeer[peer] == nil {
		h.byPeer[peer] = list.New()
	}
	own := h.byPeer[peer].PushBack(cancel)
	h.count++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.remove(peer, own)
	}
}

// makeRoom ends the oldest handshake of the peer that has most. The caller holds mu.
func (h *handshakes) makeRoom() {
	var from netip.Addr
	most := 0
	for peer, all := range h.byPeer {
		if all.Len() > most {
			from, most = peer, all.Len()
		}
	}
	oldest := h.byPeer[from].Front()
	oldest.Value.(context.CancelFunc)()
	h.remove(from, oldest)
}

// remove may be called again for one that was removed. The caller holds mu.
func (h *handshakes) remove(peer netip.Addr, own *list.Element) {
	all := h.byPeer[peer]
	if all == nil {
		return
	}
	before := all.Len()
	all.Remove(own) // does nothing if another list has it, or none
	h.count -= before - all.Len()
	if all.Len() == 0 {
		delete(h.byPeer, peer)
	}
}

// peerOf is the address that a peer is counted under. A program of this machine has many to
// choose from, so all of those are one, the zero value; so are peers without an address.
func peerOf(conn net.Conn) netip.Addr {
	remote, local := address(conn.RemoteAddr()), address(conn.LocalAddr())
	if remote.IsLoopback() || local.IsLoopback() || remote == local {
		return netip.Addr{}
	}
	return remote
}

func address(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}
