package guestlink

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// Why there is no connection, for errors.Is.
var (
	// ErrNoConnection means that nobody answered, or that the connection broke off before it
	// was known who did. It may work later.
	ErrNoConnection = errors.New("the guest cannot be reached")
	// ErrSomebodyElse means that somebody answered who is not the guest: its pod is gone, and
	// its address is another's now.
	ErrSomebodyElse = errors.New("somebody else answers in the guest's place")
	// ErrRefused means that the guest answered and does not take the credential: it was made
	// for another authority, or is in another pod.
	ErrRefused = errors.New("the guest refuses the credential")
)

// Dialer connects to the guest of one pod.
type Dialer struct {
	// Connect makes a connection on which TLS is spoken. Its deadlines are not used, but
	// closing it must end its calls.
	Connect func(ctx context.Context) (net.Conn, error)
	// Authority is the one that the pod was made with.
	Authority ed25519.PrivateKey
	// Pod is the UID of the pod.
	Pod string
	// Guest is who must answer.
	Guest Fingerprint
}

// Dial returns a connection on which both sides know each other. It takes no longer than
// HandshakeTimeout once there is a connection. Its error is ErrNoConnection, ErrSomebodyElse
// or ErrRefused, with more about it, or what is wrong with the Dialer.
func (d Dialer) Dial(ctx context.Context) (net.Conn, error) {
	guest, err := ParsePublic(string(d.Guest))
	if err != nil {
		return nil, fmt.Errorf("the fingerprint of the guest %w", err)
	}
	own, err := credential(d.Authority, d.Pod)
	if err != nil {
		return nil, err
	}
	raw, err := d.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoConnection, err)
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, clientConfig(own, guest))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, explainHandshake(ctx, err)
	}
	if err := readAccepted(ctx, conn); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

func clientConfig(own tls.Certificate, guest ed25519.PublicKey) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &own, nil // whatever authorities the other side names
		},
		InsecureSkipVerify: true, // of names and authorities; the key is verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			if !peerHas(state, guest) {
				return ErrSomebodyElse
			}
			return nil
		},
	}
}

// explainHandshake tells silence from an answer that is not the guest's.
func explainHandshake(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrSomebodyElse):
		return ErrSomebodyElse
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNoConnection, ctx.Err())
	case isBroken(err):
		return fmt.Errorf("%w: %w", ErrNoConnection, err)
	}
	return fmt.Errorf("%w: %w", ErrSomebodyElse, err)
}

// isBroken says whether an error is the connection's and not that of what came over it.
func isBroken(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network && !isAlert(err, remoteAlert) && !isAlert(err, localAlert) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}

// TLS reports alerts as errors of the network, by these operations. Their own type is not
// exported.
const (
	remoteAlert = "remote error"
	localAlert  = "local error"
)

func isAlert(err error, from string) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == from
}

// readAccepted waits until the guest has taken the credential: in TLS 1.3 a client's handshake ends
// before the server has looked at its certificate.
func readAccepted(ctx context.Context, conn *tls.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	var b [1]byte
	_, err := io.ReadFull(conn, b[:])
	switch {
	case isAlert(err, remoteAlert):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case !stop(): // the connection is closed, whatever was read
		return fmt.Errorf("%w: %w", ErrNoConnection, ctx.Err())
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNoConnection, err)
	case b[0] != accepted:
		return fmt.Errorf("%w: it speaks another version of the link", ErrRefused)
	}
	return nil
}
