package provider

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// server answers what it is asked, at a port of this machine.
func server(t *testing.T) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(text))
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	assert.NilError(t, err)
	port, err := strconv.Atoi(u.Port())
	assert.NilError(t, err)
	assert.Assert(t, netip.MustParseAddr(u.Hostname()).IsLoopback())
	return port
}

// fetch is a program that says what it gets of an address.
func fetch(address string) string {
	return `
import urllib.request, urllib.error
try:
    print(urllib.request.urlopen("` + address + `", timeout=20).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
except Exception as e:
    print(type(e).__name__, e)
`
}

func TestASandboxReachesWhatItsPolicyNames(t *testing.T) {
	inTheGuest(t, testASandboxReachesWhatItsPolicyNames)
}

func testASandboxReachesWhatItsPolicyNames(t *testing.T, newProvider makeProvider) {
	port := server(t)
	address := "http://127.0.0.1:" + strconv.Itoa(port)
	p := newProvider(t, nil)
	none := create(t, p, templatePython)
	assert.Check(t, is.Contains(run(t, p, none, sdk.Python, fetch(address)).stdout, "URLError"), "without a policy there is nothing")
	policy := sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "127.0.0.1", Ports: []int{port}, Paths: []string{"/a/*"}, Private: true}}}
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"}, Network: &policy})
	assert.NilError(t, err)
	unset := `import os; os.environ["NO_PROXY"] = os.environ["no_proxy"] = ""` + "\n"
	assert.Equal(t, run(t, p, made.ID, sdk.Python, unset+fetch(address+"/a/b")).stdout, "GET /a/b \n")
	assert.Check(t, is.Contains(run(t, p, made.ID, sdk.Python, unset+fetch(address+"/b")).stdout, "403 sandbox broker: "))
	assert.Check(t, is.Contains(run(t, p, made.ID, sdk.Python, fetch("http://elsewhere.example.com/")).stdout, "403 sandbox broker: "))
	got := run(t, p, made.ID, sdk.Bash, "curl -sS --noproxy '' -d 'some body' "+address+"/a/c")
	assert.Equal(t, got.stdout, "POST /a/c some body", got.stderr)

	// What is known of it is told, in the order in which it happened.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var verdicts []sdk.NetworkVerdict
	err = p.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
		for _, c := range r.Connections {
			assert.Check(t, is.Equal(c.InstanceID, made.ID))
			verdicts = append(verdicts, c.Verdict)
		}
		if len(verdicts) == 4 {
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.DeepEqual(t, verdicts, []sdk.NetworkVerdict{sdk.NetworkAllowed, sdk.NetworkRefused, sdk.NetworkRefused, sdk.NetworkAllowed})

	assert.NilError(t, p.SetNetwork(t.Context(), made.ID, sdk.NetworkPolicy{}))
	assert.Check(t, is.Contains(run(t, p, made.ID, sdk.Python, unset+fetch(address+"/a/b")).stdout, "403 sandbox broker: "))
	assert.NilError(t, p.SetNetwork(t.Context(), none, policy))
	assert.Equal(t, run(t, p, none, sdk.Python, unset+fetch(address+"/a/b")).stdout, "GET /a/b \n", "one that had none gets one")
	assert.NilError(t, p.Destroy(t.Context(), none))
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

// here has every name be this machine's.
type here struct{}

func (here) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// secureServer is server over TLS, with a certificate for example.com and what is below it that
// nobody believes. It says too what authorization it was given, in letters that are apart.
func secureServer(t *testing.T) (port int, certificate *x509.Certificate) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+strings.Join(strings.Split(authorization, ""), ".")+" "+authorization)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	assert.NilError(t, err)
	port, err = strconv.Atoi(u.Port())
	assert.NilError(t, err)
	return port, s.Certificate()
}

func TestTLSOfASandboxIsEndedWhereARuleNeedsIt(t *testing.T) {
	inTheGuest(t, testTLSOfASandboxIsEndedWhereARuleNeedsIt)
}

func testTLSOfASandboxIsEndedWhereARuleNeedsIt(t *testing.T, newProvider makeProvider) {
	port, certificate := secureServer(t)
	believed := x509.NewCertPool()
	believed.AddCert(certificate)
	p := newProvider(t, nil)
	p.gateway = gateway.New(gateway.Options{Resolver: here{}, Roots: believed}) // nobody has used it
	made, err := p.Create(t.Context(), sdk.CreateRequest{
		Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"},
		Network: &sdk.NetworkPolicy{
			Rules: []sdk.NetworkRule{
				{Host: "read.example.com", Ports: []int{port}, Methods: []string{"GET"}, Private: true},
				{Host: "example.com", Ports: []int{port}, Private: true},
			},
			Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: "Bearer hunter2", Hosts: []string{"read.example.com"}}},
		},
	})
	assert.NilError(t, err)
	ended, passed := "https://read.example.com:"+strconv.Itoa(port), "https://example.com:"+strconv.Itoa(port)

	// Programs believe the authority of the instance, and what they send is read.
	assert.Equal(t, run(t, p, made.ID, sdk.Python, fetch(ended+"/a")).stdout, "GET /a  \n")
	post := strings.ReplaceAll(fetch(ended+"/a"), `timeout=20`, `data=b"x", timeout=20`)
	assert.Check(t, is.Contains(run(t, p, made.ID, sdk.Python, post).stdout, "403 sandbox broker: "))
	// The secret gets there, and neither the code nor its environment ever has it.
	got := run(t, p, made.ID, sdk.Bash, "curl -sS -H 'Authorization: sandbox-secret-key' "+ended+"/b; env")
	assert.Assert(t, is.Contains(got.stdout, "GET /b B.e.a.r.e.r. .h.u.n.t.e.r.2 "), got.stderr)
	assert.Check(t, !strings.Contains(got.stdout, "hunter2"), got.stdout)

	// Where no rule needs it the program sees the server's own certificate.
	assert.Check(t, is.Contains(run(t, p, made.ID, sdk.Python, fetch(passed)).stdout, "CERTIFICATE_VERIFY_FAILED"))
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	believing := strings.ReplaceAll(fetch(passed+"/c"), `timeout=20`, "timeout=20, context=__import__('ssl').create_default_context(cadata="+strconv.Quote(own)+")")
	assert.Equal(t, run(t, p, made.ID, sdk.Python, believing).stdout, "GET /c  \n")
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

// deaf resolves nothing, and hears of no end, until it is released.
type deaf struct{ asked, released chan struct{} }

// LookupNetIP implements gateway.Resolver.
func (d deaf) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	close(d.asked)
	<-d.released
	return nil, context.Canceled
}

func TestASandboxEndsThoughAConnectionOfItDoesNot(t *testing.T) {
	p := newProvider(t, nil)
	names := deaf{make(chan struct{}), make(chan struct{})}
	p.gateway = gateway.New(gateway.Options{Resolver: names}) // nobody has used it
	p.instances.patience = time.Millisecond
	made, err := p.Create(t.Context(), sdk.CreateRequest{
		Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"},
		Network: &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "db.example.com", Ports: []int{5432}, TCP: true}}},
	})
	assert.NilError(t, err)
	i, err := p.instances.find(made.ID)
	assert.NilError(t, err)
	out, _ := i.network.current()
	ours, theirs := net.Pipe()
	defer ours.Close()
	var serving sync.WaitGroup
	serving.Go(func() { out.ServeDirect(theirs, "db.example.com", 5432) })
	defer serving.Wait()
	defer close(names.released)
	<-names.asked
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
	<-i.sandbox().Exited()
}
