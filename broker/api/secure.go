package api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

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
	config := &tls.Config{
		Certificates: []tls.Certificate{t.Certificate},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	}
	if t.ClientCAs != nil {
		config.ClientCAs, config.ClientAuth = t.ClientCAs, tls.RequireAndVerifyClientCert
	}
	s.encryption.Store(config)
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
