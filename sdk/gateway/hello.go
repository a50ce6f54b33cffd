package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// maxHello bounds the beginning of TLS, which may come in several records.
const maxHello = 64 << 10

// extensionECH is the TLS extension that hides which host is meant.
const extensionECH = 0xfe0d

// hello is what a client says when it begins TLS.
type hello struct {
	host   string // "" for none
	hidden bool   // it may mean another host
	text   []byte // as it came
}

var errSeen = errors.New("seen")

// readHello reads the beginning of TLS with the parser of crypto/tls, and answers nothing.
func readHello(r io.Reader) (hello, error) {
	var h hello
	found := false
	seen := &recorder{from: io.LimitReader(r, maxHello)}
	err := tls.Server(seen, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		found = true
		h.host, h.hidden = info.ServerName, slices.Contains(info.Extensions, extensionECH)
		return nil, errSeen
	}}).HandshakeContext(context.Background())
	if !found {
		return hello{}, err
	}
	h.text = seen.text.Bytes()
	return h, nil
}

// recorder is a connection that can be read, and remembers what was.
type recorder struct {
	from io.Reader
	text bytes.Buffer
}

// Read implements net.Conn.
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.text.Write(p[:n])
	return n, err
}

// Write implements net.Conn: the alert that there is no handshake is of no use to anybody.
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

// Close implements net.Conn.
func (*recorder) Close() error { return nil }

// LocalAddr implements net.Conn.
func (*recorder) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (*recorder) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn. Those of the connection itself hold.
func (*recorder) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*recorder) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*recorder) SetWriteDeadline(time.Time) error { return nil }

// replayed is a connection of which something was read already.
type replayed struct {
	net.Conn
	reader io.Reader
}

// Read reads that again, and then the connection.
func (r *replayed) Read(p []byte) (int, error) { return r.reader.Read(p) }
