package guestlink

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// HandshakeTimeout bounds what passes before both sides know each other.
	HandshakeTimeout = 5 * time.Second
	// maxHandshakes is how many of them there may be at once: each has a descriptor, a
	// goroutine and up to some 64 KiB.
	maxHandshakes = 64
	// maxAcceptPause is the longest pause before another connection is accepted after one
	// could not be, as without free descriptors.
	maxAcceptPause = time.Second
)

// accepted is what the guest says first, when it has taken the client's credential. Another version
// of the link would say another byte.
const accepted = '1'

// errNotTheClient is why a handshake fails; the other side sees a bad certificate.
var errNotTheClient = errors.New("the peer has no credential for this pod")

// Listener accepts connections of the one client, whoever else there is. It implements
// net.Listener.
type Listener struct {
	inner       net.Listener
	config      *tls.Config
	fingerprint Fingerprint

	authenticated chan net.Conn
	handshakes    *handshakes
	closing       context.Context
	close         context.CancelFunc
	running       sync.WaitGroup
}

var _ net.Listener = (*Listener)(nil)

// Listen makes a key for this listener and accepts the connections of inner, which it takes
// over, for a client to which the authority has given a credential for the pod of this UID.
// Close ends it.
func Listen(inner net.Listener, authority ed25519.PublicKey, pod string) (*Listener, error) {
	if pod == "" {
		return nil, errNoPod
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	own, err := certificate(private)
	if err != nil {
		return nil, err
	}
	l := &Listener{
		inner: inner,
		config: &tls.Config{
			MinVersion:             tls.VersionTLS13,
			Certificates:           []tls.Certificate{own},
			SessionTicketsDisabled: true,
			ClientAuth:             tls.RequireAnyClientCert,
			VerifyConnection: func(state tls.ConnectionState) error {
				if !peerMayUse(state, authority, pod) {
					return errNotTheClient
				}
				return nil
			},
		},
		fingerprint:   Fingerprint(encodePublic(public)),
		authenticated: make(chan net.Conn),
		handshakes:    newHandshakes(maxHandshakes),
	}
	l.closing, l.close = context.WithCancel(context.Background())
	l.running.Go(l.acceptAll)
	return l, nil
}

// Fingerprint is who the client must expect.
func (l *Listener) Fingerprint() Fingerprint { return l.fingerprint }

// Accept returns a connection whose client has proven its right. A handshake that takes long
// holds up nobody.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.authenticated:
		return conn, nil
	case <-l.closing.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes and returns when nothing of them is left. Connections that Accept
// has returned go on.
func (l *Listener) Close() error {
	l.close()
	err := l.inner.Close()
	l.running.Wait()
	return err
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// acceptAll accepts connections until the listener is closed.
func (l *Listener) acceptAll() {
	pause := time.Duration(0)
	for {
		conn, err := l.inner.Accept()
		switch {
		case err == nil:
			pause = 0
			l.running.Go(func() { l.authenticate(conn) })
		case l.closing.Err() != nil, errors.Is(err, net.ErrClosed):
			return
		default:
			pause = min(2*pause+5*time.Millisecond, maxAcceptPause)
			select {
			case <-time.After(pause):
			case <-l.closing.Done():
				return
			}
		}
	}
}

// authenticate hands the connection on once its client has proven its right, and closes that
// of anybody else without a word.
func (l *Listener) authenticate(raw net.Conn) {
	ctx, cancel := context.WithTimeout(l.closing, HandshakeTimeout)
	defer cancel()
	done := l.handshakes.begin(raw, cancel)
	conn := tls.Server(raw, l.config)
	err := conn.HandshakeContext(ctx)
	if err == nil {
		err = sayAccepted(ctx, conn)
	}
	done()
	if err != nil {
		_ = raw.Close()
		return
	}
	select {
	case l.authenticated <- conn:
	case <-l.closing.Done():
		_ = raw.Close()
	}
}

// sayAccepted tells the client that its credential was taken, which TLS 1.3 does not.
func sayAccepted(ctx context.Context, conn *tls.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	_, err := conn.Write([]byte{accepted})
	if !stop() { // the connection is closed
		return ctx.Err()
	}
	return err
}
