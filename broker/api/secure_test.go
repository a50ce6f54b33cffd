package api_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// encrypted sends the requests of a fixture by HTTPS.
type encrypted struct{ *http.Transport }

func (e encrypted) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "https"
	return e.Transport.RoundTrip(r)
}

// encrypt turns TLS on, for new connections of the server and for the client.
func (f *fixture) encrypt(a *certtest.Authority) {
	f.t.Helper()
	f.server.SetTLS(&api.TLS{Certificate: a.Issue("broker").TLS(f.t)})
	f.client.CloseIdleConnections()
	f.client = &http.Client{
		Timeout:   2 * time.Minute,
		Transport: encrypted{&http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool()}}},
	}
}

// dialTLS opens a connection.
func (f *fixture) dialTLS(config *tls.Config) (*tls.Conn, error) {
	return tls.DialWithDialer(&net.Dialer{Timeout: 2 * time.Minute}, "tcp", f.address, config)
}

// firstAnswer is the status line of an answer to a small request, or why there is
// none. With TLS 1.3 a server refuses a client's certificate only then.
func firstAnswer(conn *tls.Conn) (string, error) {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func TestEverythingWorksOverTLS(t *testing.T) {
	f, id := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-Proto"))
	})
	f.encrypt(certtest.NewAuthority(t))
	f.answers(sdk.ExecuteResult{Status: sdk.StatusSucceeded}, "out\n", "")

	resp := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`).wants(http.StatusOK)
	assert.Equal(t, resp.Proto, "HTTP/1.1")
	events := f.do(http.MethodPost, "/api/v1/execute", `{"code":"1","language":"python"}`, "Accept: text/event-stream").wants(http.StatusOK)
	assert.Check(t, is.Contains(events.text, "event: done"))
	f.do(http.MethodPost, "/api/v1/execute", `{"code":"`+strings.Repeat("x", 4*maxBody)+`"}`).problem(http.StatusRequestEntityTooLarge, "SB010")

	preview := f.makePreview(id, `{}`)
	assert.Check(t, strings.HasPrefix(preview.URL, "https://"+f.address+"/preview/"), preview.URL)
	assert.Equal(t, f.do(http.MethodGet, preview.Path, "").wants(http.StatusOK).text, "https")
	assert.Equal(t, f.do(http.MethodGet, "/api/v1/instances/"+id+"/ports/8000/", "").wants(http.StatusOK).text, "https")
}

func TestAWebSocketGoesThroughTLS(t *testing.T) {
	f, id := startPorts(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if !assert.Check(t, err) {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, rw)
	})
	authority := certtest.NewAuthority(t)
	f.encrypt(authority)
	conn, err := f.dialTLS(&tls.Config{RootCAs: authority.Pool()})
	assert.NilError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /api/v1/instances/%s/ports/8000/ws HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", id)
	assert.NilError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	assert.NilError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, resp.StatusCode, http.StatusSwitchingProtocols)
	sent := strings.Repeat("hello\n", 1<<16) // many records
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := io.WriteString(conn, sent)
		assert.Check(t, err)
	})
	got := make([]byte, len(sent))
	_, err = io.ReadFull(r, got)
	assert.NilError(t, err)
	sending.Wait()
	assert.Assert(t, string(got) == sent)
}

func TestACertificateIsReplacedAndConnectionsLiveOn(t *testing.T) {
	f, authority := start(t), certtest.NewAuthority(t)
	reused := func() (reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		resp, err := f.client.Do(f.request(ctx, http.MethodGet, "/healthz", ""))
		assert.NilError(t, err)
		read(t, resp).wants(http.StatusOK)
		return reused
	}
	shown := func() string {
		t.Helper()
		conn, err := f.dialTLS(&tls.Config{RootCAs: authority.Pool()})
		assert.NilError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	f.server.SetTLS(&api.TLS{Certificate: authority.Issue("one").TLS(t)})
	assert.Check(t, reused(), "the connection from before TLS")
	assert.Equal(t, shown(), "one")
	f.encrypt(authority)
	assert.Check(t, !reused())
	f.server.SetTLS(&api.TLS{Certificate: authority.Issue("two").TLS(t)})
	assert.Check(t, reused(), "the connection from before the change")
	assert.Equal(t, shown(), "two")
	f.server.SetTLS(nil)
	assert.Check(t, reused())
	_, err := f.dialTLS(&tls.Config{RootCAs: authority.Pool()})
	assert.ErrorContains(t, err, "does not look like a TLS handshake")
}

func TestWhomTheServerSpeaksTLSWith(t *testing.T) {
	f, authority := start(t), certtest.NewAuthority(t)
	f.encrypt(authority)
	for name, c := range map[string]struct {
		config  *tls.Config
		refused string
	}{
		"one who speaks HTTP/2 too":           {&tls.Config{NextProtos: []string{"h2", "http/1.1"}}, ""},
		"one who speaks nothing but TLS 1.2":  {&tls.Config{MaxVersion: tls.VersionTLS12}, ""},
		"one who does not say what he speaks": {&tls.Config{}, ""},
		"one who speaks nothing but HTTP/2":   {&tls.Config{NextProtos: []string{"h2"}}, "no application protocol"},
		"one who speaks no more than TLS 1.1": {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "protocol version not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.RootCAs = authority.Pool()
			conn, err := f.dialTLS(c.config)
			if c.refused != "" {
				assert.ErrorContains(t, err, c.refused)
				return
			}
			assert.NilError(t, err)
			defer conn.Close()
			line, err := firstAnswer(conn)
			assert.NilError(t, err)
			assert.Equal(t, line, "HTTP/1.1 200 OK\r\n")
		})
	}
}

func TestClientsShowCertificatesWhereTheyMust(t *testing.T) {
	f, authority, other := start(t), certtest.NewAuthority(t), certtest.NewAuthority(t)
	f.server.SetTLS(&api.TLS{Certificate: authority.Issue("broker").TLS(t), ClientCAs: other.Pool()})
	f.client.CloseIdleConnections()
	ask := func(pairs ...tls.Certificate) (string, error) {
		conn, err := f.dialTLS(&tls.Config{RootCAs: authority.Pool(), Certificates: pairs})
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return firstAnswer(conn)
	}
	line, err := ask(other.Issue("client").TLS(t))
	assert.NilError(t, err)
	assert.Equal(t, line, "HTTP/1.1 200 OK\r\n")
	_, err = ask()
	assert.ErrorContains(t, err, "certificate required")
	_, err = ask(authority.Issue("client of another").TLS(t))
	assert.Check(t, err != nil)
}

func TestWhoSpeaksHTTPIsToldToSpeakHTTPS(t *testing.T) {
	f := start(t)
	f.encrypt(certtest.NewAuthority(t))
	for name, request := range map[string]string{
		"without a body": "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\n\r\n",
		"with a body":    "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000),
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := f.dial()
			_, err := io.WriteString(conn, request)
			assert.NilError(t, err)
			resp := f.receive(r).wants(http.StatusBadRequest)
			assert.Check(t, is.Contains(resp.text, "https://"))
		})
	}
	t.Run("not who speaks neither", func(t *testing.T) {
		conn, r := f.dial()
		_, err := io.WriteString(conn, "\x16\x03\x01\x00\x07garbage")
		assert.NilError(t, err)
		text, err := io.ReadAll(r)
		assert.Check(t, err == nil || !errors.Is(err, context.DeadlineExceeded))
		assert.Check(t, !bytes.Contains(text, []byte("HTTP")))
	})
}

// A client that goes leaves bytes behind on the connection: the end of TLS, or
// another request.
func TestAClientsGoingIsNoticedBehindWhatItHasSent(t *testing.T) {
	authority := certtest.NewAuthority(t)
	for name, open := range map[string]func(f *fixture) net.Conn{
		"over TLS": func(f *fixture) net.Conn {
			f.encrypt(authority)
			conn, err := f.dialTLS(&tls.Config{RootCAs: authority.Pool()})
			assert.NilError(t, err)
			return conn
		},
		"after another request": func(f *fixture) net.Conn {
			conn, _ := f.dial()
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			f.provider.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
				close(begun)
				<-ctx.Done()
				close(ended)
				return sdk.ExecuteResult{}, ctx.Err()
			}
			conn := open(f)
			body := `{"code":"1","language":"python","timeout":25}`
			_, err := fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme-token\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			assert.NilError(t, err)
			<-begun
			_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			assert.NilError(t, err)
			assert.NilError(t, conn.Close())
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				select {
				case <-ended:
					return poll.Success()
				default:
					return poll.Continue("the execution goes on")
				}
			}, poll.WithTimeout(2*time.Minute))
		})
	}
}
