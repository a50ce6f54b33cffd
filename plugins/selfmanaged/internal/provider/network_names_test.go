package provider

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

// talker speaks first, as databases do, and then says what it is told.
func talker(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "hello\n")
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	return listener.Addr().(*net.TCPAddr).Port
}

// proxyless is what unsets all that tells of a proxy, for Python and for Bash.
const (
	proxyless      = "import os\nfor name in [n for n in os.environ if 'proxy' in n.lower()]: del os.environ[name]\n"
	proxylessShell = "unset HTTP_PROXY http_proxy HTTPS_PROXY https_proxy NO_PROXY no_proxy NODE_USE_ENV_PROXY\n"
)

func TestProgramsThatKnowOfNoProxyFindNames(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testProgramsThatKnowOfNoProxyFindNames)
	t.Run("docker without gVisor", func(t *testing.T) {
		t.Parallel()
		engine := dockerengine.Find(t)
		testProgramsThatKnowOfNoProxyFindNames(t, func(t *testing.T, given map[string]any) testProvider {
			t.Helper()
			all := map[string]any{"docker_runtime": "runc", "pool_size": 0}
			maps.Copy(all, given)
			return onDocker(engine)(t, all)
		})
	})
}

func testProgramsThatKnowOfNoProxyFindNames(t *testing.T, newProvider makeProvider) {
	plain, raw := server(t), talker(t)
	secure, certificate := secureServer(t)
	believed := x509.NewCertPool()
	believed.AddCert(certificate)
	p := newProvider(t, nil)
	p.gateway = gateway.New(gateway.Options{Resolver: here{}, Roots: believed}) // nobody has used it
	made, err := p.Create(t.Context(), sdk.CreateRequest{
		Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"},
		Network: &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{
			{Host: "*.example.com", Ports: []int{plain}, Methods: []string{"GET"}, Paths: []string{"/a/*"}, Private: true},
			{Host: "read.example.com", Ports: []int{secure}, Methods: []string{"GET"}, Private: true},
			{Host: "example.com", Ports: []int{secure}, Private: true},
			{Host: "db.example.com", Ports: []int{raw}, TCP: true, Private: true},
		}},
	})
	assert.NilError(t, err)
	bash := func(code string) string {
		t.Helper()
		got := run(t, p, made.ID, sdk.Bash, proxylessShell+code)
		return got.stdout + got.stderr
	}
	python := func(code string) string {
		t.Helper()
		got := run(t, p, made.ID, sdk.Python, proxyless+code)
		return got.stdout + got.stderr
	}

	// A name that is allowed has one address of loopback, and nothing else.
	assert.Equal(t, python(`
import socket
print(sorted({a[4][0].rsplit(".", 1)[0] for a in socket.getaddrinfo("any.example.com", 80)}))
for name in ("elsewhere.example.org", "xn--", "a.b.c"):
    try:
        print(socket.getaddrinfo(name, 80))
    except socket.gaierror as e:
        print(e.errno == socket.EAI_NONAME)
try:
    socket.create_connection(("any.example.com", 81), 5)
except OSError as e:
    print(type(e).__name__)
`), "['127.64.0']\nTrue\nTrue\nTrue\nConnectionRefusedError\n")

	// Plain HTTP is read.
	at := "http://any.example.com:" + strconv.Itoa(plain)
	assert.Equal(t, bash("curl -sS "+at+"/a/b"), "GET /a/b ")
	assert.Equal(t, bash("curl -sS --noproxy '*' "+at+"/a/b"), "GET /a/b ")
	assert.Check(t, is.Contains(bash("curl -sS -d x "+at+"/a/b"), "sandbox broker: "))
	assert.Check(t, is.Contains(bash("curl -sS "+at+"/b"), "sandbox broker: "))
	assert.Check(t, is.Contains(bash("curl -sS -H 'Host: db.example.com' "+at+"/a/b"), "sandbox broker: "))
	assert.Equal(t, python(fmt.Sprintf(`
import http.client
c = http.client.HTTPConnection("any.example.com", %d, timeout=20)
for path in ("/a/1", "/b", "/a/2"):
    c.request("GET", path)
    r = c.getresponse()
    print(r.status, r.read().decode().partition(":")[0])
`, plain)), "200 GET /a/1 \n403 sandbox broker\n200 GET /a/2 \n")

	// TLS is ended where a rule needs it, and passed on where none does.
	talk := func(name, context string) string {
		return python(fmt.Sprintf(`
import socket, ssl
context = %s
try:
    with context.wrap_socket(socket.create_connection(("%s", %d), 20), server_hostname="%[2]s") as s:
        s.sendall(b"GET /c HTTP/1.1\r\nHost: %[2]s:%[3]d\r\nConnection: close\r\n\r\n")
        print(b"".join(iter(lambda: s.recv(4096), b"")).rpartition(b"\r\n\r\n")[2].decode().strip())
except ssl.SSLError as e:
    print(e.reason)
`, context, name, secure))
	}
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	assert.Equal(t, talk("read.example.com", "ssl.create_default_context()"), "GET /c\n")
	assert.Equal(t, talk("example.com", "ssl.create_default_context()"), "CERTIFICATE_VERIFY_FAILED\n")
	assert.Equal(t, talk("example.com", "ssl.create_default_context(cadata="+strconv.Quote(own)+")"), "GET /c\n")
	assert.Equal(t, bash("curl -sS https://read.example.com:"+strconv.Itoa(secure)+"/d"), "GET /d  ")

	// Other protocols are spoken where a rule says so.
	assert.Equal(t, bash(fmt.Sprintf("exec 3<>/dev/tcp/db.example.com/%d; read -r line <&3; echo $line; echo again >&3; read -r line <&3; echo $line", raw)), "hello\nagain\n")
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

// What the machine has of other programs is tried there.
func TestProgramsOfTheMachineFindNames(t *testing.T) {
	var asked sync.Map
	port := portOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path, true)
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 4)+"\trefs/heads/main\n")
	})))
	raw := talker(t)
	p := newProvider(t, map[string]any{"rootfs": "host"})
	p.gateway = gateway.New(gateway.Options{Resolver: here{}}) // nobody has used it
	made, err := p.Create(t.Context(), sdk.CreateRequest{
		Template: templatePython, Labels: map[string]string{sdk.LabelTenant: "acme"},
		Network: &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{
			{Host: "*", Ports: []int{port}, Methods: []string{"GET"}, Private: true},
			{Host: "*", Ports: []int{raw}, TCP: true, Private: true},
		}},
	})
	assert.NilError(t, err)
	for program, command := range map[string]struct{ code, want, debianPackage string }{
		"node":        {fmt.Sprintf(`node -e 'fetch("http://a.example.com:%d/node").then(r => r.text()).then(console.log, console.log)'`, port), "refs/heads/main", "nodejs"},
		"git":         {fmt.Sprintf("git ls-remote http://b.example.com:%d/repository", port), "refs/heads/main", "git"},
		"wget":        {fmt.Sprintf("wget -qO- http://c.example.com:%d/wget", port), "refs/heads/main", "wget"},
		"ssh-keyscan": {fmt.Sprintf("ssh-keyscan -t ed25519 -T 2 -p %d d.example.com 2>&1", raw), "SSH-2.0-OpenSSH-keyscan", "openssh-client"},
	} {
		t.Run(program, func(t *testing.T) {
			binaries.Needs(t, program, command.debianPackage)
			got := run(t, p, made.ID, sdk.Bash, proxylessShell+command.code)
			assert.Check(t, is.Contains(got.stdout, command.want), got.stderr)
		})
	}
	assert.NilError(t, p.Destroy(t.Context(), made.ID))
}

// What is listened for follows the policy, also where that changed while nobody could be told.
func TestNamesFollowThePolicy(t *testing.T) {
	port := server(t)
	p := newProvider(t, nil)
	p.gateway = gateway.New(gateway.Options{Resolver: here{}}) // nobody has used it
	policy := func(hosts ...string) sdk.NetworkPolicy {
		var all sdk.NetworkPolicy
		for _, host := range hosts {
			all.Rules = append(all.Rules, sdk.NetworkRule{Host: host, Ports: []int{port}, Private: true})
		}
		return all
	}
	none := create(t, p, templatePython)
	found := func(id string) string {
		t.Helper()
		return run(t, p, id, sdk.Python, proxyless+fmt.Sprintf(`
import socket, urllib.request
found = ""
for name in "abc":
    try:
        found += urllib.request.urlopen("http://%%s.example.com:%d/%%s" %% (name, name), timeout=20).read().decode()[5]
    except OSError:
        pass
print(found)
`, port)).stdout
	}
	set := func(hosts ...string) {
		t.Helper()
		assert.NilError(t, p.SetNetwork(t.Context(), none, policy(hosts...)))
	}
	assert.Equal(t, found(none), "\n")
	set("a.example.com")
	assert.Equal(t, found(none), "a\n")
	set("*.example.com")
	assert.Equal(t, found(none), "abc\n")
	set()
	assert.Equal(t, found(none), "\n")
	set("b.example.com")
	assert.NilError(t, p.Pause(t.Context(), none))
	set("a.example.com", "c.example.com")
	assert.NilError(t, p.Resume(t.Context(), none))
	assert.Equal(t, found(none), "ac\n")
	assert.NilError(t, p.Destroy(t.Context(), none))
}

// A copy has the names of its own policy, and the original those that it had.
func TestCopiesFindTheNamesOfTheirOwnPolicy(t *testing.T) {
	tier.Full(t)
	port := server(t)
	needsSnapshots(t)
	p := newProvider(t, nil)
	p.gateway = gateway.New(gateway.Options{Resolver: here{}}) // nobody has used it
	policy := func(host string) *sdk.NetworkPolicy {
		return &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: host, Ports: []int{port}, Private: true}}}
	}
	labels := map[string]string{sdk.LabelTenant: "acme"}
	original, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: labels, Network: policy("*.example.com")})
	assert.NilError(t, err)
	found := func(id, names string) string {
		t.Helper()
		return run(t, p, id, sdk.Bash, proxylessShell+fmt.Sprintf(`for name in %s; do curl -s http://$name.example.com:%d/$name; done`, names, port)).stdout
	}
	assert.Equal(t, found(original.ID, "a b"), "GET /a GET /b ")
	taken := snapshot(t, p, original.ID, forFork)
	narrow := goOn(t, p, taken, func(req *sdk.CreateRequest) { req.Labels, req.Network = labels, policy("b.example.com") })
	none := goOn(t, p, taken)
	assert.Equal(t, found(narrow, "a b c"), "GET /b ")
	assert.Equal(t, found(none, "a b"), "")
	poll.WaitOn(t, func(poll.LogT) poll.Result { // it opens its network again
		if got := found(original.ID, "a c"); got != "GET /a GET /c " {
			return poll.Continue("the original finds %q", got)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	for _, id := range []string{original.ID, narrow, none} {
		assert.NilError(t, p.Destroy(t.Context(), id))
	}
}
