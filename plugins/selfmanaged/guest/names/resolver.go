package names

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/netutil"
)

const (
	// maxQuery bounds what is read of a query. One name and its options are less.
	maxQuery = 4096
	// maxAskers are connected to the resolver at once, each no longer than askTime silent.
	maxAskers = 16
	askTime   = 5 * time.Second
	// maxFailures in a row are the end of the resolver.
	maxFailures = 100
	// timeToLive is how many seconds a program may remember an address.
	timeToLive = 5
)

var errQuestions = errors.New("a query has one question")

// find is the address of a name, or why it has none.
type find func(name string) (netip.Addr, dnsmessage.RCode)

// resolver answers queries, over UDP and TCP at one address.
type resolver struct {
	find    find
	packets net.PacketConn
	streams net.Listener

	mu      sync.Mutex
	closed  bool
	askers  map[net.Conn]bool
	running sync.WaitGroup
}

func newResolver(address string, find find) (*resolver, error) {
	packets, err := net.ListenPacket("udp4", address)
	if err != nil {
		return nil, err
	}
	streams, err := net.Listen("tcp4", packets.LocalAddr().String())
	if err != nil {
		_ = packets.Close()
		return nil, err
	}
	return &resolver{find: find, packets: packets, streams: netutil.LimitListener(streams, maxAskers), askers: map[net.Conn]bool{}}, nil
}

// run answers until close.
func (r *resolver) run() {
	defer r.running.Wait()
	r.running.Go(r.serveStreams)
	r.servePackets()
	r.close()
}

// close ends run.
func (r *resolver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	_ = r.packets.Close()
	_ = r.streams.Close()
	for conn := range r.askers {
		_ = conn.Close()
	}
}

func (r *resolver) servePackets() {
	query := make([]byte, maxQuery)
	for failed := 0; failed < maxFailures; {
		n, from, err := r.packets.ReadFrom(query)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			failed++ // an asker that has gone may have refused its answer
			continue
		}
		failed = 0
		if reply := answer(query[:n], r.find); reply != nil {
			_, _ = r.packets.WriteTo(reply, from)
		}
	}
}

func (r *resolver) serveStreams() {
	for {
		conn, err := r.streams.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			_ = conn.Close()
			return
		}
		r.askers[conn] = true
		r.running.Go(func() { r.serveStream(conn) })
		r.mu.Unlock()
	}
}

// serveStream answers the queries of one connection, each behind its length.
func (r *resolver) serveStream(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		r.mu.Lock()
		delete(r.askers, conn)
		r.mu.Unlock()
	}()
	query := make([]byte, maxQuery)
	for {
		_ = conn.SetDeadline(time.Now().Add(askTime))
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQuery {
			return
		}
		if _, err := io.ReadFull(conn, query[:n]); err != nil {
			return
		}
		reply := answer(query[:n], r.find)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answer is the reply to a query, nil for what is none.
func answer(query []byte, find find) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil
	}
	reply := dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}
	if header.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeNotImplemented
		return build(reply, nil, netip.Addr{})
	}
	question, err := p.Question()
	if err == nil {
		if _, more := p.Question(); !errors.Is(more, dnsmessage.ErrSectionDone) {
			err = errQuestions
		}
	}
	if err != nil {
		reply.RCode = dnsmessage.RCodeFormatError
		return build(reply, nil, netip.Addr{})
	}
	if question.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeRefused
		return build(reply, &question, netip.Addr{})
	}
	var address netip.Addr
	address, reply.RCode = find(question.Name.String())
	if question.Type != dnsmessage.TypeA {
		address = netip.Addr{} // the name has nothing else
	}
	return build(reply, &question, address)
}

// build writes a reply. Its error is that of a name that the parser has read, so there is none.
func build(header dnsmessage.Header, question *dnsmessage.Question, address netip.Addr) []byte {
	b := dnsmessage.NewBuilder(nil, header)
	b.EnableCompression()
	if question != nil {
		if b.StartQuestions() != nil || b.Question(*question) != nil {
			return nil
		}
		if address.IsValid() {
			resource := dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: timeToLive}
			if b.StartAnswers() != nil || b.AResource(resource, dnsmessage.AResource{A: address.As4()}) != nil {
				return nil
			}
		}
	}
	reply, err := b.Finish()
	if err != nil {
		return nil
	}
	return reply
}
