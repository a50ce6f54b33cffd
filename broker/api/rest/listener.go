package rest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/api/handover"
)

// A body may be refused before it was read. Closing the connection then would reset it while the client is still writing, and the client would
// see that instead of the 413. So such a connection lingers: the answer is
// sent, then what the client still has is read and thrown away, up to these
// bounds.
const (
	lingerBytes = 64 << 20
	lingerTime  = 5 * time.Second
)

// An answer is written in pieces, and a client that takes none of one for so long
// has lost interest: its connection ends, and what runs for it.
const (
	writePiece = 64 << 10
	writeStall = time.Minute
)

// patientListener makes connections that can linger and that wait for slow
// readers, but not for ever.
type patientListener struct {
	net.Listener
	stall  time.Duration
	closed sync.Once
	// encryption holds nil for plain HTTP; it may be nil itself. Where connections come
	// secretly or not at all, it holds nil for these.
	encryption *atomic.Pointer[tls.Config]
	secretly   bool
}

// Close closes the listener once. fasthttp keeps all that it ever had, and closes
// them at its end.
func (l *patientListener) Close() (err error) {
	l.closed.Do(func() { err = l.Listener.Close() })
	return err
}

func (l *patientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	for err == nil && l.secretly && l.encryption.Load() == nil {
		_ = conn.Close()
		conn, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err // unwrapped: fasthttp looks into it
	}
	var ticket *admission.Ticket // nil where nobody counts
	socket := conn
	if admitted, ok := conn.(*admission.Conn); ok {
		socket, ticket = admitted.Conn, admitted.Ticket
	}
	tcp, ok := socket.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	patient := &patientConn{TCPConn: tcp, stall: l.stall, ticket: ticket}
	if l.encryption != nil {
		if config := l.encryption.Load(); config != nil {
			return newSecureConn(patient, config), nil
		}
	}
	return patient, nil
}

type patientConn struct {
	*net.TCPConn
	stall  time.Duration
	linger atomic.Bool
	ticket *admission.Ticket

	mu    sync.Mutex
	bound bool // somebody else has set a deadline for writing
}

var _ handover.Lingerer = (*patientConn)(nil)

// Linger makes the connection drain when it is closed.
func (c *patientConn) Linger() { c.linger.Store(true) }

// Write writes piece by piece, each with a deadline of its own. A deadline for all
// of an answer would cut long ones.
func (c *patientConn) Write(p []byte) (int, error) {
	written := 0
	for {
		if err := c.allow(); err != nil {
			return written, err
		}
		n, err := c.TCPConn.Write(p[written:min(len(p), written+writePiece)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// allow gives the next piece its time, unless somebody else has.
func (c *patientConn) allow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bound {
		return nil
	}
	if err := c.TCPConn.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	return nil
}

// SetWriteDeadline implements net.Conn. The zero time brings back our own.
func (c *patientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = !t.IsZero()
	return c.TCPConn.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn. It is how fasthttp tells the connection what
// headerReceived has found out: see tokenTimeout.
func (c *patientConn) SetReadDeadline(t time.Time) error {
	if left := time.Until(t); left > readTimeout && left <= tokenTimeout {
		c.ticket.Trust()
	}
	return c.TCPConn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *patientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// ReadFrom keeps io.Copy from going around Write.
func (c *patientConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// Close closes the connection, in its own time if it lingers.
func (c *patientConn) Close() error {
	defer c.ticket.Leave()
	if c.linger.Swap(false) {
		if err := c.drain(); err != nil {
			_ = c.TCPConn.Close()
			return err
		}
	}
	return c.TCPConn.Close()
}

func (c *patientConn) drain() error {
	if err := c.CloseWrite(); err != nil {
		return fmt.Errorf("half-close: %w", err)
	}
	if err := c.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	_, _ = io.CopyN(io.Discard, c.TCPConn, lingerBytes) // it ends as it ends
	return nil
}

// TLS is what the server identifies itself with.
type TLS struct {
	// Certificate with its chain and private key.
	Certificate tls.Certificate
	// ClientCAs have signed the certificates that clients must show; nil when
	// clients need none.
	ClientCAs *x509.CertPool
}

// SetTLS encrypts the connections that come from now on, or not, with nil. Those
// that there are stay as they are. A session that was begun with another
// certificate cannot be resumed: each has keys of its own.
func (s *Server) SetTLS(t *TLS) {
	if t == nil {
		s.encryption.Store(nil)
		return
	}
	s.encryption.Store(encryption(t))
}

func encryption(t *TLS) *tls.Config {
	config := &tls.Config{
		Certificates: []tls.Certificate{t.Certificate},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	}
	if t.ClientCAs != nil {
		config.ClientCAs, config.ClientAuth = t.ClientCAs, tls.RequireAndVerifyClientCert
	}
	return config
}

// secureConn is TLS on a patientConn. fasthttp begins the handshake, in the
// goroutine of the connection and within the time that a request has to arrive.
type secureConn struct {
	*tls.Conn
	socket *patientConn
}

func newSecureConn(socket *patientConn, config *tls.Config) *secureConn {
	return &secureConn{Conn: tls.Server(socket, config), socket: socket}
}

// admitted returns the ticket of a connection of ours; nil where nobody counts.
func admitted(conn net.Conn) *admission.Ticket {
	switch c := conn.(type) {
	case *patientConn:
		return c.ticket
	case *secureConn:
		return c.socket.ticket
	default:
		return nil
	}
}

// Linger makes the connection drain when it is closed.
func (c *secureConn) Linger() { c.socket.Linger() }

// plainAnswer is for who speaks HTTP without TLS, as net/http says it.
const plainAnswer = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +

	"This is an HTTPS server: write https:// in front of its address.\n"

// Handshake tells who does not speak TLS but HTTP.
func (c *secureConn) Handshake() error {
	err := c.Conn.Handshake()
	if wrong, ok := errors.AsType[tls.RecordHeaderError](err); ok && wrong.Conn != nil && looksLikeHTTP(wrong.RecordHeader[:]) {
		c.socket.Linger()
		_, _ = io.WriteString(wrong.Conn, plainAnswer) // it may be gone
	}
	return err
}

// looksLikeHTTP reports whether the first bytes are those of a method.
func looksLikeHTTP(begin []byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE"} {
		if bytes.HasPrefix(begin, []byte(method)) {
			return true
		}
	}
	return false
}
