package peer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/peer/peertest"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/lateend"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// another is an ID that an instance could have.
const another = "acme:s:aaaaaaaaaaaaaaaaaaaa"

// everything is a directory by which a peer has all that there is.
type everything struct{ peer.Peer }

func (e *everything) OwnerOf(context.Context, string, string) (peer.Peer, bool, error) {
	return e.Peer, true, nil
}

func (e *everything) OwnerOfNamed(context.Context, string) (peer.Peer, bool, error) {
	return e.Peer, true, nil
}

func (e *everything) OwnerOfSession(context.Context, string, string) (peer.Peer, bool, error) {
	return e.Peer, true, nil
}

func (e *everything) OwnerOfSnapshot(context.Context, string, string) (peer.Peer, bool, error) {
	return e.Peer, true, nil
}

func (e *everything) OwnerOfVolume(context.Context, string, string) (peer.Peer, bool, error) {
	return e.Peer, true, nil
}

func (e *everything) Peers(context.Context) ([]peer.Peer, error) { return []peer.Peer{e.Peer}, nil }

func (e *everything) Away(context.Context, string, string) ([]peer.Record, error) { return nil, nil }

func TestACallIsPassedOnOnce(t *testing.T) {
	f := startOwner(t)
	authority := certtest.NewAuthority(t)
	identity := &peer.Identity{Certificate: authority.Issue("any").TLS(t), Authorities: authority.Pool()}
	of := [2]*everything{{}, {}}
	var brokers [2]*peertest.Broker
	for i := range brokers {
		brokers[i] = peertest.Start(t, of[i], f.opts, instancetest.Catalog{&instancetest.Provider{Name: "first"}})
		brokers[i].Forwarder.SetIdentity(identity)
	}
	for i, b := range brokers {
		of[1-i].Peer = peertest.Owner{Server: b.Server, Service: b.Service}.Listen(t, authority)
	}
	for path, body := range map[string]string{
		"/api/v1/instances/" + another + "/execute": `{"language":"python","code":"x"}`,
		"/api/v1/execute":   `{"language":"python","code":"x","session_id":"s"}`,
		"/api/v1/instances": `{"session_id":"s"}`,
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			before := strings.Count(f.log.String(), " request: ")
			f.do(brokers[0].Address, http.MethodPost, path, body, "Accept: "+accept).unavailable()
			assert.Equal(t, strings.Count(f.log.String(), " request: ")-before, 2, "it is asked for once at each")
		}
	}
	resp, err := f.client.Do(f.request(t.Context(), brokers[0].Address, http.MethodPut, "/api/v1/instances/"+another+"/files/content?path=x", "content"))
	assert.NilError(t, err)
	assert.NilError(t, resp.Body.Close())
	assert.Equal(t, resp.StatusCode, http.StatusServiceUnavailable)
}

func TestAPeerThatIsGone(t *testing.T) {
	f := startOwner(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	authority := certtest.NewAuthority(t)
	b := peertest.Start(t, &everything{peer.Peer{ID: "gone", Address: listener.Addr().String()}}, f.opts, instancetest.Catalog{&instancetest.Provider{Name: "first"}})
	at := "/api/v1/instances/" + another
	f.do(b.Address, http.MethodGet, at, "").unavailable() // it has no identity yet
	b.Forwarder.SetIdentity(&peer.Identity{Certificate: authority.Issue("any").TLS(t), Authorities: authority.Pool()})
	f.do(b.Address, http.MethodGet, at, "").unavailable()
	f.do(b.Address, http.MethodPost, at+"/execute", `{"language":"python","code":"x"}`).unavailable()
	p := f.do(b.Address, http.MethodPost, at+"/execute", `{"language":"python","code":"x"}`, "Accept: text/event-stream").unavailable()
	assert.Assert(t, !strings.Contains(p.Detail, "127.0.0.1") && !strings.Contains(p.Detail, "gone"), p.Detail)
	assert.Assert(t, is.Contains(f.log.String(), "connection refused"), "the operator is told")
}

func TestNobodyButPeersComesIn(t *testing.T) {
	f := start(t)
	id := f.create()
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	address := f.owner.Listen(t, authority).Address
	good := authority.Issue("peer").TLS(t)
	ask := func(config *tls.Config) (string, error) {
		config.RootCAs = authority.Pool()
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /api/v1/instances/"+id+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n"+peer.HeaderXBrokerHop+": remote=1.2.3.4%3A5&scheme=http\r\nConnection: close\r\n\r\n")
		if err != nil {
			return "", err
		}
		answer, err := io.ReadAll(conn)
		return string(answer), err
	}
	for name, config := range map[string]*tls.Config{
		"without a certificate":         {},
		"with one of another authority": {Certificates: []tls.Certificate{stranger.Issue("peer").TLS(t)}},
		"with an older version of TLS":  {Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12},
	} {
		answer, err := ask(config)
		assert.Check(t, err != nil, name)
		assert.Check(t, is.Equal(answer, ""), name)
	}
	answer, err := ask(&tls.Config{Certificates: []tls.Certificate{good}})
	assert.NilError(t, err)
	assert.Assert(t, is.Contains(answer, "HTTP/1.1 200"))

	plain, err := net.Dial("tcp", address)
	assert.NilError(t, err)
	defer plain.Close()
	_, err = io.WriteString(plain, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	assert.NilError(t, err)
	text, _ := io.ReadAll(plain)
	assert.Check(t, !strings.Contains(string(text), "200"), "%s", text)

	// One that is not told with a certificate what it is to ask for is asked for nothing.
	f.second.Forwarder.SetIdentity(&peer.Identity{Certificate: stranger.Issue("peer").TLS(t), Authorities: stranger.Pool()})
	f.do(f.second.Address, http.MethodGet, "/api/v1/instances/"+id, "").unavailable()
	f.owner.Server.ForPeers().SetTLS(nil)
	_, err = ask(&tls.Config{Certificates: []tls.Certificate{good}})
	assert.Assert(t, err != nil, "nobody is let in any more")
}

func TestWhatAClientSaysOfAHopIsNotBelieved(t *testing.T) {
	f := start(t)
	at := "/api/v1/instances/" + f.create() + "/execute"
	for _, address := range []string{f.first, f.second.Address} {
		f.do(address, http.MethodPost, at, `{"language":"python","code":"x"}`, peer.HeaderXBrokerHop+": remote=1.2.3.4%3A5&scheme=https&door=e2b&inside=e2b").wants(http.StatusOK)
		got := f.box.lastOrigin()
		assert.Assert(t, strings.HasPrefix(got.Remote, "127.0.0.1:"), got.Remote)
		assert.Equal(t, got.FrontDoor, "")
	}
}

func TestAnAnswerThatBreaksOff(t *testing.T) {
	authority := certtest.NewAuthority(t)
	for name, c := range map[string]struct {
		owner func(conn net.Conn)
		body  string
		err   string
	}{
		"before it begins": {func(net.Conn) {}, "", "broke off the answer"},
		"in the middle": {
			func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf") }, "half", "broke off the answer",
		},
		"that is no answer": {func(conn net.Conn) { _, _ = io.WriteString(conn, "hello\r\n\r\n") }, "", "broke off the answer"},
		"not at all":        {func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{authority.Issue("owner").TLS(t)}})
			assert.NilError(t, err)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					c.owner(conn)
				}
			}()
			f := peer.NewForwarder("second", nil)
			f.SetIdentity(&peer.Identity{Certificate: authority.Issue("second").TLS(t), Authorities: authority.Pool()})
			defer func() {
				f.Close()
				assert.Check(t, listener.Close())
				<-ended
			}()
			w := httptest.NewRecorder()
			w.Header().Set("X-Request-Id", "before")
			r := httptest.NewRequest(http.MethodPost, "/x", strings.NewReader("body"))
			r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{})) // as a server has it
			err = f.Forward(w, r, peer.Peer{ID: "owner", Address: listener.Addr().String()}, peer.Call{Target: "/x?", RequestID: "r", Hop: peer.Hop{Remote: "a:1", Scheme: "http"}})
			if c.err == "" {
				assert.NilError(t, err)
				assert.Equal(t, w.Header().Get("X"), "y")
				return
			}
			assert.ErrorContains(t, err, c.err)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
			assert.Equal(t, w.Body.String(), c.body)
		})
	}
}

func TestAHopIsReadAsItWasWritten(t *testing.T) {
	for _, hop := range []peer.Hop{
		{Remote: "127.0.0.1:1", Scheme: "http"},
		{From: "a b", Remote: "[::1]:1", Scheme: "https", Door: "e2b", Inside: "mcp", Placed: true},
	} {
		got, err := peer.ParseHop(hop.String())
		assert.NilError(t, err)
		assert.DeepEqual(t, got, hop)
	}
	for _, text := range []string{"", "%zz", "remote=x", "scheme=http", "remote=x&scheme=ftp"} {
		_, err := peer.ParseHop(text)
		assert.Check(t, err != nil, text)
	}
}

func TestARequestMayEndAfterTheAnswerHasBegun(t *testing.T) {
	authority, late := certtest.NewAuthority(t), lateend.New()
	owner := httptest.NewUnstartedServer(http.HandlerFunc(late.Origin))
	owner.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Issue("owner").TLS(t)}}
	owner.StartTLS()
	defer owner.Close()
	f := peer.NewForwarder("second", nil)
	f.SetIdentity(&peer.Identity{Certificate: authority.Issue("second").TLS(t), Authorities: authority.Pool()})
	defer f.Close()
	front := httptest.NewServer(late.Front(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := peer.Peer{ID: "owner", Address: owner.Listener.Addr().String()}
		assert.Check(t, f.Forward(w, r, to, peer.Call{Target: "/x", RequestID: "r", Hop: peer.Hop{Remote: "a:1", Scheme: "http"}}))
	})))
	defer front.Close()
	late.Ask(t, front.Client(), front.URL)
}
