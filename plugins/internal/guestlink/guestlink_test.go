package guestlink_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("a secret that is no secret, as it is in a test")

// scope is where the pods of these tests are.
const scope = "default"

func authority(t testing.TB, scope string) ed25519.PrivateKey {
	t.Helper()
	k, err := guestlink.Authority(secret, scope)
	assert.NilError(t, err)
	return k
}

func listen(t *testing.T, scope, pod string) *guestlink.Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	public, err := guestlink.ParsePublic(guestlink.Public(authority(t, scope)))
	assert.NilError(t, err)
	l, err := guestlink.Listen(inner, public, pod)
	assert.NilError(t, err)
	return l
}

// newGuest listens as the guest of a pod does, and echoes.
func newGuest(t *testing.T, pod string) *guestlink.Listener {
	t.Helper()
	l := listen(t, scope, pod)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until the client has had enough
			})
		}
	})
	t.Cleanup(func() {
		assert.Check(t, l.Close())
		serving.Wait()
	})
	return l
}

// to connects to an address.
func to(addr net.Addr) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr.String())
	}
}

func checkEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte("ping"))
	assert.NilError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(conn, got)
	assert.NilError(t, err)
	assert.Equal(t, string(got), "ping")
}

func TestThePluginAndItsGuestKnowEachOther(t *testing.T) {
	guest := newGuest(t, "pod-1")
	d := guestlink.Dialer{Connect: to(guest.Addr()), Authority: authority(t, scope), Pod: "pod-1", Guest: guest.Fingerprint()}
	for range 2 { // the first stays open
		conn, err := d.Dial(t.Context())
		assert.NilError(t, err)
		t.Cleanup(func() { assert.Check(t, conn.Close()) })
		checkEcho(t, conn)
	}
}

func TestADialerSaysWhyThereIsNoConnection(t *testing.T) {
	guest, neighbour := newGuest(t, "pod-1"), newGuest(t, "pod-2")
	own := authority(t, scope)
	never := errors.New("there is no route")
	for name, c := range map[string]struct {
		connect   func(context.Context) (net.Conn, error)
		authority ed25519.PrivateKey
		pod       string
		guest     guestlink.Fingerprint
		want      error
	}{
		"nobody listens": {
			func(context.Context) (net.Conn, error) { return nil, never }, own, "pod-1", guest.Fingerprint(), never,
		},
		"and that is known by its kind": {
			func(context.Context) (net.Conn, error) { return nil, never }, own, "pod-1", guest.Fingerprint(), guestlink.ErrNoConnection,
		},
		"the connection breaks off":                 {to(server(t, "")), own, "pod-1", guest.Fingerprint(), guestlink.ErrNoConnection},
		"the address has become a neighbour's":      {to(neighbour.Addr()), own, "pod-1", guest.Fingerprint(), guestlink.ErrSomebodyElse},
		"somebody answers in plain text":            {to(server(t, "HTTP/1.1 400 Bad Request\r\n\r\n")), own, "pod-1", guest.Fingerprint(), guestlink.ErrSomebodyElse},
		"somebody answers with an alert":            {to(server(t, "\x15\x03\x03\x00\x02\x02\x46")), own, "pod-1", guest.Fingerprint(), guestlink.ErrSomebodyElse},
		"somebody answers with another certificate": {to(tlsServer(t, &tls.Config{})), own, "pod-1", guest.Fingerprint(), guestlink.ErrSomebodyElse},
		"somebody speaks TLS 1.2":                   {to(tlsServer(t, &tls.Config{MaxVersion: tls.VersionTLS12})), own, "pod-1", guest.Fingerprint(), guestlink.ErrSomebodyElse},
		"the credential is another pod's":           {to(guest.Addr()), own, "pod-2", guest.Fingerprint(), guestlink.ErrRefused},
		"the authority is that of another place":    {to(guest.Addr()), authority(t, "other"), "pod-1", guest.Fingerprint(), guestlink.ErrRefused},
		"the authority is that of another secret":   {to(guest.Addr()), ed25519.NewKeyFromSeed(make([]byte, 32)), "pod-1", guest.Fingerprint(), guestlink.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guestlink.Dialer{Connect: c.connect, Authority: c.authority, Pod: c.pod, Guest: c.guest}.Dial(t.Context())
			assert.ErrorIs(t, err, c.want)
			kinds := 0
			for _, kind := range []error{guestlink.ErrNoConnection, guestlink.ErrSomebodyElse, guestlink.ErrRefused} {
				if errors.Is(err, kind) {
					kinds++
				}
			}
			assert.Equal(t, kinds, 1, "%v", err)
		})
	}
	_, err := guestlink.Dialer{Connect: to(guest.Addr()), Authority: own, Pod: "pod-1", Guest: "nonsense"}.Dial(t.Context())
	assert.ErrorContains(t, err, "the fingerprint of the guest is no public key")
	_, err = guestlink.Dialer{Connect: to(guest.Addr()), Authority: own, Guest: guest.Fingerprint()}.Dial(t.Context())
	assert.ErrorContains(t, err, "the UID of the pod is missing")
}

func TestADialerWaitsForSilenceNoLongerThanItsContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // it has begun to speak
		_, _ = theirs.Read(make([]byte, 1))
		cancel(nil)
	}()
	connect := func(context.Context) (net.Conn, error) { return ours, nil }
	guest := guestlink.Fingerprint(guestlink.Public(authority(t, "guest")))
	_, err := guestlink.Dialer{Connect: connect, Authority: authority(t, scope), Pod: "p", Guest: guest}.Dial(ctx)
	assert.ErrorIs(t, err, guestlink.ErrNoConnection)
	assert.ErrorIs(t, err, context.Canceled)
}

// server says something to everybody and hangs up.
func server(t *testing.T, says string) net.Addr {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, says)
		// What is unread when it hangs up would cost the other side what was said.
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if says != "" {
			_, _ = io.Copy(io.Discard, conn)
		}
	})
}

func tlsServer(t *testing.T, config *tls.Config) net.Addr {
	t.Helper()
	config.Certificates = []tls.Certificate{certificate(t, "somebody", authority(t, "somebody"), nil)}
	return serve(t, func(conn net.Conn) {
		c := tls.Server(conn, config)
		_ = c.Handshake()
		_, _ = io.Copy(io.Discard, c)
	})
}

func serve(t *testing.T, each func(net.Conn)) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				each(conn)
			})
		}
	})
	t.Cleanup(func() {
		assert.Check(t, l.Close())
		serving.Wait()
	})
	return l.Addr()
}

// certificate is one with a name, for a key, by another certificate or by itself.
func certificate(t testing.TB, name string, k ed25519.PrivateKey, by *tls.Certificate) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}}
	parent, signer := template, k
	var chain [][]byte
	if by != nil {
		issuer, err := x509.ParseCertificate(by.Certificate[0])
		assert.NilError(t, err)
		parent, signer, chain = issuer, by.PrivateKey.(ed25519.PrivateKey), by.Certificate
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, k.Public(), signer)
	assert.NilError(t, err)
	return tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: k}
}

func freshKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	assert.NilError(t, err)
	return k
}

// Whoever has no credential reads not a byte but an alert, and is hung up on.
func TestAGuestSaysNothingToOthers(t *testing.T) {
	guest := newGuest(t, "pod-1")
	root := certificate(t, "authority", authority(t, scope), nil)
	own := certificate(t, "pod-1", freshKey(t), &root)
	// The certificate is the client's, and the private key is another.
	stolen := tls.Certificate{Certificate: own.Certificate, PrivateKey: freshKey(t)}
	// One whom the authority trusts with a pod signs for the next.
	handedOn := certificate(t, "pod-1", freshKey(t), &own)
	others := certificate(t, "pod-2", freshKey(t), &root)
	second := tls.Certificate{Certificate: [][]byte{others.Certificate[0], own.Certificate[0]}, PrivateKey: others.PrivateKey}
	with := func(c ...tls.Certificate) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(c) == 0 {
				return &tls.Certificate{}, nil
			}
			return &c[0], nil
		}}
	}
	old := with(own)
	old.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"no certificate":           {with(), "certificate required"},
		"another pod's":            {with(others), "bad certificate"},
		"one without a name":       {with(certificate(t, "", freshKey(t), &root)), "bad certificate"},
		"one by itself":            {with(certificate(t, "pod-1", freshKey(t), nil)), "bad certificate"},
		"one by its own issuer":    {with(handedOn), "bad certificate"},
		"this pod's as the second": {with(second), "bad certificate"},
		"a stolen certificate":     {with(stolen), "error decrypting message"},
		"TLS 1.2":                  {old, "protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := to(guest.Addr())(t.Context())
			assert.NilError(t, err)
			defer raw.Close()
			_, err = io.ReadAll(tls.Client(raw, c.config))
			assert.ErrorContains(t, err, c.want)
		})
	}
	for name, junk := range map[string]string{
		"an HTTP request":      "GET / HTTP/1.1\r\nHost: guest\r\n\r\n",
		"the preface of gRPC":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"zeros":                strings.Repeat("\x00", 1<<10),
		"a handshake too long": "\x16\x03\x01\x40\x00\x01\xff\xff\xff" + strings.Repeat("x", 1<<15),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := to(guest.Addr())(t.Context())
			assert.NilError(t, err)
			defer conn.Close()
			_, _ = io.WriteString(conn, junk)
			got, _ := io.ReadAll(conn) // it may be reset
			assert.Assert(t, len(got) <= 7, "nothing but an alert: %q", got)
		})
	}
}

// openFiles counts the descriptors of this process.
func openFiles(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	assert.NilError(t, err)
	return len(names)
}

// As those of user code might, 200 connections say nothing.
func TestThePluginGetsInWhileOthersTakeAllTheRoom(t *testing.T) {
	guest := newGuest(t, "pod-1")
	d := guestlink.Dialer{Connect: to(guest.Addr()), Authority: authority(t, scope), Pod: "pod-1", Guest: guest.Fingerprint()}
	before := openFiles(t)
	var idle []net.Conn
	for range 200 {
		conn, err := to(guest.Addr())(t.Context())
		assert.NilError(t, err)
		idle = append(idle, conn)
	}
	conn, err := d.Dial(t.Context()) // which gives up after HandshakeTimeout
	assert.NilError(t, err)
	checkEcho(t, conn)

	// Those that made room were hung up on.
	_ = idle[0].SetReadDeadline(time.Now().Add(time.Minute))
	_, err = idle[0].Read(make([]byte, 1))
	assert.Assert(t, !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)

	// All of them are in the end, by themselves.
	for _, c := range idle {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := c.Read(make([]byte, 1))
		assert.Assert(t, !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
		assert.NilError(t, c.Close())
	}
	checkEcho(t, conn)
	assert.NilError(t, conn.Close())
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := openFiles(t); n > before {
			return poll.Continue("%d descriptors are open and %d were", n, before)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// pipes is a listener whose connections are pipes, which virtual time knows.
type pipes struct {
	accepted chan net.Conn
	closed   context.Context
	close    context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) connect(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.accepted <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestAListenerThatClosesDoesNotWaitForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &pipes{accepted: make(chan net.Conn)}
		inner.closed, inner.close = context.WithCancel(t.Context())
		public, err := guestlink.ParsePublic(guestlink.Public(authority(t, scope)))
		assert.NilError(t, err)
		l, err := guestlink.Listen(inner, public, "p")
		assert.NilError(t, err)
		silent, err := inner.connect(t.Context())
		assert.NilError(t, err)
		defer silent.Close()
		// One has shown its credential, and is not accepted yet.
		conn, err := guestlink.Dialer{Connect: inner.connect, Authority: authority(t, scope), Pod: "p", Guest: l.Fingerprint()}.Dial(t.Context())
		assert.NilError(t, err)
		defer conn.Close()

		started := time.Now()
		assert.NilError(t, l.Close())
		assert.Equal(t, time.Since(started), time.Duration(0))
		_, err = l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		for _, c := range []net.Conn{silent, conn} {
			_, err = c.Read(make([]byte, 1))
			assert.Check(t, err != nil)
		}
	})
}

func TestAnAuthorityIsThatOfASecretAndAPlace(t *testing.T) {
	one := authority(t, "default")
	assert.DeepEqual(t, one, authority(t, "default"))
	assert.Assert(t, !one.Equal(authority(t, "other")))
	other, err := guestlink.Authority(append([]byte("x"), secret...), "default")
	assert.NilError(t, err)
	assert.Assert(t, !one.Equal(other))
	_, err = guestlink.Authority(secret[:31], "default")
	assert.ErrorContains(t, err, "has 31 bytes and needs 32")
	// Pods that run must not become strangers by a new version of the plugin.
	assert.Equal(t, guestlink.Public(one), "jn3SaExiUVHJ8UAlCcijnoE2aCSj115sCXOoNQ+wdQc")
}

func TestAGuestMustKnowItsPod(t *testing.T) {
	_, err := guestlink.Listen(nil, nil, "")
	assert.ErrorContains(t, err, "the UID of the pod is missing")
}

func TestAPublicKeyHasOneText(t *testing.T) {
	text := guestlink.Public(authority(t, "p"))
	public, err := guestlink.ParsePublic(text)
	assert.NilError(t, err)
	assert.Assert(t, public.Equal(authority(t, "p").Public()))
	for name, wrong := range map[string]string{
		"nothing": "", "padding": text + "=", "a line end": text + "\n", "a line end within": text[:9] + "\n" + text[9:],
		"a byte less": text[:42], "a byte more": text + "AA", "bits that count for nothing": text[:42] + "B",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := guestlink.ParsePublic(wrong)
			assert.Check(t, is.ErrorContains(err, "is no public key"))
		})
	}
}
