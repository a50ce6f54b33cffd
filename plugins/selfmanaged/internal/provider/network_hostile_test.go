package provider

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// secretOfTheTest is what no program may see.
const secretOfTheTest = "hunter2-of-the-test"

// Every program of the corpus about a network with an allow-list ends as it must, and what is not
// allowed was asked nothing.
func TestHostileProgramsFindNoOtherWayOut(t *testing.T) {
	tier.Full(t)
	programs, err := hostile.Programs()
	assert.NilError(t, err)
	var shut atomic.Int64
	open := openServer(t, &shut)
	forbidden := portOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		shut.Add(1)
		_, _ = io.WriteString(w, "of the shut one")
	})))
	secure := httptest.NewTLSServer(http.HandlerFunc(reflect))
	believed := x509.NewCertPool()
	believed.AddCert(secure.Certificate())
	securePort := portOf(t, secure)

	p := newProvider(t, nil)
	asked := &asked{}
	p.gateway = gateway.New(gateway.Options{Resolver: asked, Roots: believed}) // nobody has used it
	made, err := p.Create(t.Context(), sdk.CreateRequest{
		Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"},
		Network: &sdk.NetworkPolicy{
			Rules: []sdk.NetworkRule{
				{Host: "open.example.com", Ports: []int{open}, Methods: []string{"GET"}, Paths: []string{"/open/*"}, Private: true},
				{Host: "*.wide.example.com", Ports: []int{open}, Methods: []string{"GET"}, Paths: []string{"/open/*"}, Private: true},
				{Host: "read.example.com", Ports: []int{securePort}, Methods: []string{"GET"}, Private: true},
				{Host: "other.example.com", Ports: []int{securePort}, Private: true},
			},
			Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: "Bearer " + secretOfTheTest, Hosts: []string{"read.example.com"}}},
		},
	})
	assert.NilError(t, err)
	env := map[string]string{
		"HERE": fmt.Sprintf("open.example.com:%d", open), "SHUT": fmt.Sprintf("shut.example.com:%d", forbidden), "SECURE": fmt.Sprint(securePort),
	}
	ran := 0
	for _, program := range programs {
		if program.Theme != "ways_out" {
			continue
		}
		ran++
		t.Run(program.Name, func(t *testing.T) {
			s := &hostileScene{p: p, program: program, original: made.ID}
			o := s.execute(t, program.Steps[0], made.ID, env)
			s.check(t, program.Steps[0], o)
			t.Logf("%s", o.stdout)
			assert.Check(t, !strings.Contains(o.stdout+o.stderr, secretOfTheTest), "the secret is seen")
			assert.Check(t, is.Equal(shut.Load(), int64(0)), "what is not allowed was asked")
			assert.Check(t, !asked.leaked.Load(), "a query has left the sandbox")
			assert.Check(t, is.Equal(s.shell(t, made.ID, "curl -sS --noproxy '' http://"+env["HERE"]+"/open/alive"), "GET /open/alive"))
		})
	}
	assert.Check(t, asked.any.Load())
	assert.Check(t, ran >= 18, "%d programs", ran)
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

// asked is here, and remembers whether it was asked for a name that nothing was connected to.
type asked struct {
	here
	any, leaked atomic.Bool
}

// LookupNetIP implements gateway.Resolver.
func (a *asked) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	a.any.Store(true)
	if strings.Contains(host, "leak") {
		a.leaked.Store(true)
	}
	return a.here.LookupNetIP(ctx, network, host)
}

// portOf is the port of this machine at which a server is.
func portOf(t *testing.T, s *httptest.Server) int {
	t.Helper()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	assert.NilError(t, err)
	port, err := net.LookupPort("tcp", u.Port())
	assert.NilError(t, err)
	return port
}

// openServer is what programs may ask for some paths. For others it counts as shut.
func openServer(t *testing.T, shut *atomic.Int64) int {
	t.Helper()
	return portOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/open/") || strings.Contains(r.URL.Path, "..") {
			shut.Add(1)
			_, _ = io.WriteString(w, "of the shut one")
			return
		}
		switch what := strings.TrimPrefix(r.URL.Path, "/open/"); what {
		case "host":
			_, _ = io.WriteString(w, r.Host)
		case "authorization":
			_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		case "redirect-shut":
			http.Redirect(w, r, "http://shut.example.com/", http.StatusFound)
		case "redirect-method":
			http.Redirect(w, r, "/shut", http.StatusTemporaryRedirect)
		case "redirect-metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		case "redirect-file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
		}
	})))
}

// reflect says what authorization it was given, in several ways.
func reflect(w http.ResponseWriter, r *http.Request) {
	given := r.Header.Get("Authorization")
	switch r.URL.Path {
	case "/reflect":
		_, _ = io.WriteString(w, given)
	case "/reflect-header":
		w.Header().Set("X-Reflected", given)
	case "/reflect-slowly":
		for _, letter := range given {
			_, _ = io.WriteString(w, string(letter))
			_ = http.NewResponseController(w).Flush()
		}
	case "/reflect-zipped":
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		_, _ = io.WriteString(zipped, given)
		_ = zipped.Close()
	default:
		_, _ = fmt.Fprintf(w, "a key of %d letters, and %q", len(given), r.Header.Get("X-Key"))
	}
}
