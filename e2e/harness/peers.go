package harness

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

// StartPeers starts brokers on a database of their own, one of each configuration, which pass
// calls on to each other. settings are further ones of their block peers.
func StartPeers(t testing.TB, o Options, settings string, configs ...string) []*Broker {
	t.Helper()
	authority := certtest.NewAuthority(t)
	o.Database = postgres.Start(t).Database()
	all := make([]*Broker, len(configs))
	for n, config := range configs {
		pair := authority.Issue("127.0.0.1")
		o.Config = config + `peers {
  listen    = "127.0.0.1:0"
  cert_file = "peer/certificate.pem"
  key_file  = "peer/key.pem"
  ca_file   = "peer/ca.pem"
` + settings + `}
`
		o.Prepare = func(dir string) {
			dir = filepath.Join(dir, "peer")
			assert.NilError(t, os.Mkdir(dir, 0o700))
			for name, content := range map[string][]byte{"certificate.pem": pair.Certificate, "key.pem": pair.Key, "ca.pem": authority.PEM} {
				assert.NilError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
			}
		}
		all[n] = Start(t, o)
	}
	return all
}

// Balance returns the URL of a load balancer in front of brokers: each request goes to the next
// of them, whatever it is about.
func Balance(t testing.TB, brokers []*Broker) string {
	t.Helper()
	targets := make([]*url.URL, len(brokers))
	for n, b := range brokers {
		target, err := url.Parse(b.URL)
		assert.NilError(t, err)
		targets[n] = target
	}
	var count atomic.Uint64
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(targets[count.Add(1)%uint64(len(targets))])
			r.Out.Host = r.In.Host // as balancers are told to: links are made of it
		},
		FlushInterval: -1, // each piece of a stream as it comes
		Transport:     transport,
	}
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // the body may end after the answer has begun
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		balancer.CloseClientConnections()
		balancer.Close()
		transport.CloseIdleConnections()
	})
	return balancer.URL
}
