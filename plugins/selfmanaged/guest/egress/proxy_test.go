package egress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/lateend"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct connects to this machine and to nothing else.
func direct(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if host != "127.0.0.1" {
		return nil, &egress.RefusedError{Reason: "not there"}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// through is a client of a proxy, with the password or another.
func through(t *testing.T, proxy *egress.Proxy, password string, server *httptest.Server) *http.Client {
	t.Helper()
	address, err := url.Parse(proxy.URL())
	assert.NilError(t, err)
	if password != "" {
		address.User = url.UserPassword("installer", password)
	}
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(address)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTheProxyCarriesBothKinds(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Check(t, is.Equal(r.Header.Get("Proxy-Authorization"), ""), "the password is the proxy's")
		_, _ = io.WriteString(w, "hello "+r.URL.Path)
	})
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			server := start(handler)
			defer server.Close()
			proxy, err := egress.StartProxy(direct)
			assert.NilError(t, err)
			client := through(t, proxy, "", server)
			resp, err := client.Get(server.URL + "/x")
			assert.NilError(t, err)
			text, err := io.ReadAll(resp.Body)
			assert.NilError(t, err)
			assert.NilError(t, resp.Body.Close())
			assert.Equal(t, string(text), "hello /x")

			elsewhere := strings.Replace(server.URL, "127.0.0.1", "elsewhere.test", 1)
			resp, err = client.Get(elsewhere)
			if name == "http" {
				assert.NilError(t, err)
				assert.Check(t, is.Equal(resp.StatusCode, http.StatusForbidden))
				assert.NilError(t, resp.Body.Close())
			} else {
				assert.ErrorContains(t, err, "Forbidden")
			}
			proxy.Close()
			address, err := url.Parse(proxy.URL())
			assert.NilError(t, err)
			_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address.Host)
			assert.ErrorContains(t, err, "refused")
		})
	}
}

func TestTheProxyDoesNothingWithoutThePassword(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("reached") }))
	defer server.Close()
	proxy, err := egress.StartProxy(direct)
	assert.NilError(t, err)
	defer proxy.Close()
	client := through(t, proxy, "guess", server)
	resp, err := client.Get(server.URL)
	assert.NilError(t, err)
	assert.NilError(t, resp.Body.Close())
	assert.Equal(t, resp.StatusCode, http.StatusProxyAuthRequired)
	client.CloseIdleConnections()
}

func TestTheProxyEndsWhatItCarries(t *testing.T) {
	arrived, left := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	}))
	defer server.Close()
	proxy, err := egress.StartProxy(direct)
	assert.NilError(t, err)
	client := through(t, proxy, "", server)
	done := make(chan int, 1)
	go func() {
		resp, err := client.Get(server.URL)
		if err != nil {
			done <- 0
			return
		}
		_ = resp.Body.Close()
		done <- resp.StatusCode
	}()
	<-arrived
	proxy.Close()
	<-left
	assert.Check(t, <-done != http.StatusOK)
}

func TestARequestMayEndAfterTheAnswerHasBegun(t *testing.T) {
	late := lateend.New()
	server := httptest.NewServer(http.HandlerFunc(late.Origin))
	defer server.Close()
	proxy, err := egress.StartProxy(direct)
	assert.NilError(t, err)
	defer proxy.Close()
	front := httptest.NewServer(late.Front(proxy))
	defer front.Close()
	address, err := url.Parse(proxy.URL())
	assert.NilError(t, err)
	address.Host = front.Listener.Addr().String()
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address)}}
	defer client.CloseIdleConnections()
	late.Ask(t, client, server.URL)
}
