package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secretValue = "s3cr3t-of-the-operator"

// outside is what there is beyond the gateway: names with addresses, and two servers that stand
// behind every address of the open Internet.
type outside struct {
	plain, secure *httptest.Server
	raw           net.Listener // echoes
	// connect is in the place of these if it is not nil.
	connect func(ctx context.Context, address string) (net.Conn, error)

	mu       sync.Mutex
	names    map[string][]string // answers, one after the other; the last again and again
	dialed   []string
	requests []string
}

const public = "93.184.215.14"

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{names: map[string][]string{}}
	o.plain = httptest.NewServer(o)
	t.Cleanup(o.plain.Close)
	o.secure = httptest.NewUnstartedServer(o)
	o.secure.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}}
	o.secure.EnableHTTP2 = true
	o.secure.StartTLS()
	t.Cleanup(o.secure.Close)
	var err error
	o.raw, err = net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for {
			conn, err := o.raw.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = o.raw.Close()
		echoes.Wait()
	})
	return o
}

// ServeHTTP says what it was asked, and echoes a WebSocket.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	line := fmt.Sprintf("%s %s%s %s auth=%s", r.Method, r.Host, r.URL.RequestURI(), body, r.Header.Get("Authorization"))
	o.mu.Lock()
	o.requests = append(o.requests, line)
	o.mu.Unlock()
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
		_ = conn.Close()
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	case r.URL.Path == "/slow":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/large":
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	default:
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, line)
	}
}

func (o *outside) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.requests...)
}

// LookupNetIP implements gateway.Resolver.
func (o *outside) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	host = strings.TrimSuffix(host, ".")
	answers := o.names[host]
	if len(answers) == 0 {
		if strings.HasSuffix(host, ".example.com") {
			answers = []string{public}
		} else {
			return nil, errors.New("no such host")
		}
	}
	if len(answers) > 1 {
		o.names[host] = answers[1:]
	}
	var list []netip.Addr
	for _, text := range strings.Fields(answers[0]) {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

// DialContext implements gateway.Dialer.
func (o *outside) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	o.mu.Lock()
	o.dialed = append(o.dialed, address)
	connect := o.connect
	o.mu.Unlock()
	if connect != nil {
		return connect(ctx, address)
	}
	to := o.plain.Listener.Addr()
	switch {
	case strings.HasSuffix(address, ":443"):
		to = o.secure.Listener.Addr()
	case strings.HasSuffix(address, ":5432"):
		to = o.raw.Addr()
	}
	return (&net.Dialer{}).DialContext(ctx, network, to.String())
}

func (o *outside) addresses() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.dialed...)
}

// theRules are those of most tests.
func theRules() sdk.NetworkPolicy {
	return sdk.NetworkPolicy{
		Rules: []sdk.NetworkRule{
			{Host: "open.example.com"},
			{Host: "*.sub.example.com"},
			{Host: "read.example.com", Methods: []string{"GET"}, Paths: []string{"/pub/*", "/one"}},
			{Host: "ws.example.com", Methods: []string{"GET"}, WebSocket: true},
			{Host: "db.example.com", Ports: []int{5432}, TCP: true},
			{Host: "key.example.com"},
			{Host: "inner.example.com", Private: true},
		},
		Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: secretValue, Hosts: []string{"key.example.com"}}},
	}
}

// scene is an instance with its way out.
type scene struct {
	*outside
	gateway  *gateway.Gateway
	instance *gateway.Instance
	roots    *x509.CertPool // that programs of the instance believe
}

func newScene(t *testing.T, p sdk.NetworkPolicy) *scene {
	t.Helper()
	s := &scene{outside: newOutside(t)}
	believed := x509.NewCertPool()
	believed.AddCert(s.secure.Certificate())
	// The certificate of the test's server is for example.com and what is below it.
	s.gateway = gateway.New(gateway.Options{Resolver: s, Dialer: s, Roots: believed})
	var err error
	s.instance, err = s.gateway.Instance("acme", "i-1", p)
	assert.NilError(t, err)
	t.Cleanup(s.instance.Close)
	own, err := s.instance.Certificates()
	assert.NilError(t, err)
	s.roots = x509.NewCertPool()
	s.roots.AddCert(s.secure.Certificate())
	assert.Assert(t, s.roots.AppendCertsFromPEM(own))
	return s
}

// proxy is a connection to the proxy.
func (s *scene) proxy(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.instance.ServeProxy(theirs)
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-served
	})
	assert.NilError(t, ours.SetDeadline(time.Now().Add(time.Minute)))
	return ours
}

// send writes text to the proxy, and returns all that it answers until it hangs up, or the
// first answer.
func (s *scene) send(t *testing.T, text string) (status int, body string) {
	t.Helper()
	return exchange(t, s.proxy(t), text)
}

func exchange(t *testing.T, conn net.Conn, text string) (status int, body string) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = io.WriteString(conn, text) })
	defer writing.Wait()
	defer conn.Close()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	content, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(content)
}

// through begins TLS to a host through the proxy, with another name in it if one is given.
func (s *scene) through(t *testing.T, target, name string, protocols ...string) (*tls.Conn, error) {
	t.Helper()
	conn := s.proxy(t)
	_, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	assert.NilError(t, err)
	r := bufio.NewReader(conn)
	answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // what follows is the tunnel
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	config := &tls.Config{ServerName: name, RootCAs: s.roots, NextProtos: protocols, InsecureSkipVerify: name == ""}
	if name != "" && !strings.HasSuffix(name, "example.com") {
		config.InsecureSkipVerify = true
	}
	secure := tls.Client(conn, config)
	return secure, secure.HandshakeContext(t.Context())
}

// reports are what was told, n of them.
func (s *scene) reports(t *testing.T, n int) []sdk.NetworkConnection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []sdk.NetworkConnection
	err := s.gateway.Follow(ctx, func(r sdk.NetworkReport) error {
		all = append(all, r.Connections...)
		if len(all) >= n {
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	return all
}

func TestTheRulesOfTLS(t *testing.T) {
	s := newScene(t, theRules())
	for name, test := range map[string]struct {
		target, sni string
		protocols   []string
		request     string // "" where there is no connection
		want        string
	}{
		"passed on":                           {"open.example.com:443", "open.example.com", nil, "GET /a HTTP/1.1\r\nHost: open.example.com\r\n\r\n", "GET open.example.com/a"},
		"HTTP/2 within what is passed on":     {"open.example.com:443", "open.example.com", []string{"h2"}, "", "h2"},
		"another name in it":                  {"open.example.com:443", "evil.example.com", nil, "", "refused"},
		"no name in it":                       {"open.example.com:443", "", nil, "", "refused"},
		"a host that is not allowed":          {"evil.example.com:443", "evil.example.com", nil, "", "refused"},
		"a port that is not allowed":          {"open.example.com:8443", "open.example.com", nil, "", "refused"},
		"an address":                          {public + ":443", "open.example.com", nil, "", "refused"},
		"read":                                {"read.example.com:443", "read.example.com", nil, "GET /pub/a HTTP/1.1\r\nHost: read.example.com\r\n\r\n", "GET read.example.com/pub/a"},
		"read, and not allowed":               {"read.example.com:443", "read.example.com", nil, "GET /secret HTTP/1.1\r\nHost: read.example.com\r\n\r\n", "403"},
		"read, with another method":           {"read.example.com:443", "read.example.com", nil, "POST /pub/a HTTP/1.1\r\nHost: read.example.com\r\nContent-Length: 0\r\n\r\n", "403"},
		"read, and its request is for others": {"read.example.com:443", "read.example.com", nil, "GET /pub/a HTTP/1.1\r\nHost: open.example.com\r\n\r\n", "403"},
		"read, and HTTP/2 is wanted":          {"read.example.com:443", "read.example.com", []string{"h2"}, "", "refused"},
		"a secret is put in":                  {"key.example.com:443", "key.example.com", nil, "GET /a HTTP/1.1\r\nHost: key.example.com\r\nAuthorization: Bearer sandbox-secret-key\r\n\r\n", "auth=Bearer " + strings.Repeat("*", len(secretValue))},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := s.through(t, test.target, test.sni, test.protocols...)
			if test.want == "refused" {
				assert.Assert(t, err != nil)
				return
			}
			assert.NilError(t, err)
			if test.want == "h2" {
				assert.Equal(t, conn.ConnectionState().NegotiatedProtocol, "h2")
				return
			}
			status, body := exchange(t, conn, test.request)
			assert.Check(t, is.Contains(fmt.Sprint(status, " ", body), test.want))
		})
	}
	assert.Check(t, is.Contains(strings.Join(s.seen(), "\n"), "auth=Bearer "+secretValue))
	for _, request := range s.seen() {
		assert.Check(t, !strings.Contains(request, secretValue) || strings.Contains(request, " key.example.com/"), request)
	}
}

func TestWhatANewPolicyDoesNotAllowIsCut(t *testing.T) {
	s := newScene(t, theRules())
	secure, err := s.through(t, "open.example.com:443", "open.example.com")
	assert.NilError(t, err)
	raw := s.proxy(t)
	_, err = io.WriteString(raw, "CONNECT db.example.com:5432 HTTP/1.0\r\n\r\n") // as Python 3.11 does
	assert.NilError(t, err)
	fromRaw := bufio.NewReader(raw)
	_, err = http.ReadResponse(fromRaw, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // what follows is the tunnel
	assert.NilError(t, err)
	_, err = io.WriteString(raw, "ping\n")
	assert.NilError(t, err)
	text, err := fromRaw.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, text, "ping\n")
	slow := s.proxy(t)
	_, err = io.WriteString(slow, "GET http://open.example.com/slow HTTP/1.1\r\nHost: open.example.com\r\n\r\n")
	assert.NilError(t, err)
	_, err = http.ReadResponse(bufio.NewReader(slow), nil) //nolint:bodyclose // its body does not end
	assert.NilError(t, err)

	assert.NilError(t, s.instance.SetPolicy(sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "db.example.com", Ports: []int{5432}, TCP: true}}}))
	_, err = io.ReadAll(secure)
	assert.Check(t, !errors.Is(err, os.ErrDeadlineExceeded), "it did not end")
	one := make([]byte, 1)
	_, err = slow.Read(one)
	assert.Check(t, err != nil)
	_, err = io.WriteString(raw, "still\n")
	assert.NilError(t, err)
	text, err = fromRaw.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, text, "still\n", "what is still allowed goes on")
	status, _ := s.send(t, "GET http://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\n\r\n")
	assert.Equal(t, status, http.StatusForbidden)
	cut := 0
	for _, c := range s.reports(t, 3) {
		if c.Verdict == sdk.NetworkCut {
			cut++
		}
	}
	assert.Equal(t, cut, 2)
}

func TestQuotasOfInstancesAndTenants(t *testing.T) {
	p := theRules()
	p.MaxConnections, p.TenantConnections, p.TenantBytes = 1, 2, 3<<20
	p.MaxBytes = 2 << 20
	s := newScene(t, p)
	open := func(i *gateway.Instance) (net.Conn, *bufio.Reader) {
		ours, theirs := net.Pipe()
		go i.ServeDirect(theirs, "db.example.com", 5432)
		assert.NilError(t, ours.SetDeadline(time.Now().Add(time.Minute)))
		_, _ = io.WriteString(ours, "ping\n")
		return ours, bufio.NewReader(ours)
	}
	first, from := open(s.instance)
	_, err := from.ReadString('\n')
	assert.NilError(t, err)
	second, from := open(s.instance)
	_, err = from.ReadString('\n')
	assert.ErrorIs(t, err, io.EOF, "one at once")
	assert.NilError(t, second.Close())
	var others []*gateway.Instance
	for n := range 2 {
		other, err := s.gateway.Instance("acme", fmt.Sprint("i-", n+2), p)
		assert.NilError(t, err)
		defer other.Close()
		others = append(others, other)
	}
	third, from := open(others[0])
	_, err = from.ReadString('\n')
	assert.NilError(t, err)
	fourth, from := open(others[1])
	_, err = from.ReadString('\n')
	assert.ErrorIs(t, err, io.EOF, "two of the tenant at once")
	assert.NilError(t, fourth.Close())
	assert.NilError(t, first.Close())
	assert.NilError(t, third.Close())
	settled := func(poll.LogT) poll.Result {
		status, _ := s.send(t, "GET http://open.example.com/ HTTP/1.1\r\nHost: open.example.com\r\n\r\n")
		return poll.Compare(is.Equal(status, http.StatusOK))
	}
	poll.WaitOn(t, settled, poll.WithTimeout(time.Minute))

	_, large := s.send(t, "GET http://open.example.com/large HTTP/1.1\r\nHost: open.example.com\r\n\r\n")
	assert.Equal(t, len(large), 1<<20)
	_, large = s.send(t, "GET http://open.example.com/large HTTP/1.1\r\nHost: open.example.com\r\n\r\n")
	assert.Check(t, len(large) < 1<<20, "it has received what it may")
	refused := func(poll.LogT) poll.Result { // the connection that was cut counts until it is closed
		status, body := s.send(t, get("open.example.com", "/"))
		return poll.Compare(is.Contains(fmt.Sprint(status, " ", body), "403 sandbox broker: this sandbox, or its tenant, has sent or received all that it may"))
	}
	poll.WaitOn(t, refused, poll.WithTimeout(time.Minute))
}

// Refusals cost an instance nothing. A few are told, and the rest is a number.
func TestARefusedRequestEndsTheConnectionWhereItSaysSo(t *testing.T) {
	s := newScene(t, theRules())
	for _, line := range []string{"GET http://elsewhere.example.com/", "GET nonsense", "CONNECT elsewhere.example.com:443"} {
		conn := s.proxy(t)
		_, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: elsewhere.example.com\r\nConnection: close\r\n\r\n")
		assert.NilError(t, err)
		said, err := io.ReadAll(conn)
		assert.NilError(t, err)
		assert.Check(t, is.Contains(string(said), "sandbox broker: "), line)
	}
}

func TestRefusalsWithoutEndAreCounted(t *testing.T) {
	s := newScene(t, theRules())
	conn := s.proxy(t)
	const all = 1000
	var wg sync.WaitGroup
	wg.Go(func() {
		for range all {
			_, _ = io.WriteString(conn, get("evil.example.com", "/"))
		}
	})
	r := bufio.NewReader(conn)
	for range all {
		answer, err := http.ReadResponse(r, nil)
		assert.NilError(t, err)
		_, _ = io.Copy(io.Discard, answer.Body)
		assert.NilError(t, answer.Body.Close())
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told, lost, counts := 0, 0, 0
	err := s.gateway.Follow(ctx, func(r sdk.NetworkReport) error {
		told, lost = told+len(r.Connections), lost+int(r.Lost)
		if r.Lost > 0 {
			counts++
		}
		if told+lost == all {
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, counts, 1)
	assert.Check(t, told < all/2, "%d are told", told)
}

// A policy that changes between CONNECT and what is said then is the one that counts.
func TestTLSIsNotPassedOnByAPolicyThatReadsIt(t *testing.T) {
	s := newScene(t, theRules())
	conn := s.proxy(t)
	_, err := io.WriteString(conn, "CONNECT open.example.com:443 HTTP/1.1\r\nHost: open.example.com:443\r\n\r\n")
	assert.NilError(t, err)
	_, err = http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // what follows is the tunnel
	assert.NilError(t, err)
	secure := tls.Client(&fragments{Conn: conn, first: func() {
		assert.Check(t, s.instance.SetPolicy(sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "open.example.com", Methods: []string{"GET"}}}}))
	}}, &tls.Config{ServerName: "open.example.com", RootCAs: s.roots})
	assert.Assert(t, secure.HandshakeContext(t.Context()) != nil)
	assert.Check(t, is.Len(s.addresses(), 0))
	told := s.reports(t, 1)
	assert.Equal(t, told[0].Verdict, sdk.NetworkRefused)
}

// fragments does something after the first byte that is written. A pipe's is read then.
type fragments struct {
	net.Conn
	first func()
}

// Write implements net.Conn.
func (f *fragments) Write(p []byte) (int, error) {
	if f.first == nil {
		return f.Conn.Write(p)
	}
	if n, err := f.Conn.Write(p[:1]); err != nil {
		return n, err
	}
	f.first()
	f.first = nil
	n, err := f.Conn.Write(p[1:])
	return n + 1, err
}

// A transport goes on connecting for a request that has ended.
func TestNothingIsConnectedToAnyMoreOnceItIsNotAllowed(t *testing.T) {
	s := newScene(t, theRules())
	dialling := make(chan struct{})
	var ended atomic.Bool
	s.connect = func(ctx context.Context, _ string) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		ended.Store(true)
		return nil, ctx.Err()
	}
	conn := s.proxy(t)
	_, err := io.WriteString(conn, get("open.example.com", "/"))
	assert.NilError(t, err)
	<-dialling
	assert.NilError(t, s.instance.SetPolicy(sdk.NetworkPolicy{}))
	assert.Check(t, ended.Load())
	assert.Equal(t, s.reports(t, 1)[0].Verdict, sdk.NetworkCut)
}

func TestWhatIsOnAPrivateNetworkIsCutWhenThatIsNotAllowedAnyMore(t *testing.T) {
	rules := func(private bool) sdk.NetworkPolicy {
		return sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "*.example.com", Ports: []int{80, 5432}, TCP: true, Private: private}}}
	}
	s := newScene(t, rules(true))
	s.names["inner.example.com"] = []string{"10.0.0.7"}
	open := func(host string) (net.Conn, *bufio.Reader) {
		ours, theirs := net.Pipe()
		go s.instance.ServeDirect(theirs, host, 5432)
		assert.NilError(t, ours.SetDeadline(time.Now().Add(time.Minute)))
		_, err := io.WriteString(ours, "ping\n")
		assert.NilError(t, err)
		from := bufio.NewReader(ours)
		text, err := from.ReadString('\n')
		assert.NilError(t, err)
		assert.Equal(t, text, "ping\n")
		return ours, from
	}
	inner, fromInner := open("inner.example.com")
	outer, fromOuter := open("outer.example.com")
	slow := s.proxy(t)
	_, err := io.WriteString(slow, get("inner.example.com", "/slow"))
	assert.NilError(t, err)
	_, err = http.ReadResponse(bufio.NewReader(slow), nil) //nolint:bodyclose // its body does not end
	assert.NilError(t, err)
	assert.NilError(t, s.instance.SetPolicy(rules(false)))
	_, err = fromInner.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
	_, err = slow.Read(make([]byte, 64))
	assert.Check(t, !errors.Is(err, os.ErrDeadlineExceeded), "it did not end")
	_, err = io.WriteString(outer, "still\n")
	assert.NilError(t, err)
	text, err := fromOuter.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, text, "still\n")
	for _, c := range s.reports(t, 2) {
		assert.Check(t, is.Equal(c.Host, "inner.example.com"))
		assert.Check(t, is.Equal(c.Verdict, sdk.NetworkCut), c.Reason)
	}
	assert.NilError(t, inner.Close())
	assert.NilError(t, outer.Close())
}
