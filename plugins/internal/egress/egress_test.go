package egress_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network resolves names as it is told, and answers every connection with the
// address that was dialled.
type network struct {
	mu     sync.Mutex
	names  map[string][]string // answers, one after the other; the last again and again
	dialed []string
	greet  string
}

func (n *network) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers := n.names[host]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	if len(answers) > 1 {
		n.names[host] = answers[1:]
	}
	var list []netip.Addr
	for _, text := range strings.Fields(answers[0]) {
		list = append(list, netip.MustParseAddr(text))
	}
	return list, nil
}

func (n *network) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	n.mu.Unlock()
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.WriteString(ours, n.greet)
		_ = ours.Close()
	}()
	return theirs, nil
}

// session is the way out with an index at a public name, one at a private name
// and one at an address.
func session(n *network, log io.Writer, most int64) *egress.Session {
	var indexes []*url.URL
	for _, text := range []string{"https://packages.example.com/simple/", "http://devpi.corp:3141/root/", "http://127.0.0.1:8081/", "http://169.254.7.7/"} {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		indexes = append(indexes, u)
	}
	return egress.New(egress.Options{
		Indexes: indexes, Hosts: []string{"files.example.com", "*.cdn.example.com"}, MaxBytes: most,
		Resolver: n, Dialer: n, Logger: hclog.New(&hclog.LoggerOptions{Output: log, JSONFormat: true}),
	}).Session("acme", "i1")
}

func TestOnlyHostsOnTheListAreReached(t *testing.T) {
	const public = "93.184.215.14"
	for name, test := range map[string]struct {
		host    string
		port    uint16
		address string // that the name has
		dialed  string // empty if nothing is
	}{
		"the index":                                 {"packages.example.com", 443, public, public + ":443"},
		"in other letters, and with a dot":          {"Packages.Example.COM.", 443, public, public + ":443"},
		"the index at another port":                 {"packages.example.com", 80, public, ""},
		"an index on a private network":             {"devpi.corp", 3141, "10.1.2.3", "10.1.2.3:3141"},
		"its host at another port":                  {"devpi.corp", 22, "10.1.2.3", ""},
		"an index on this machine":                  {"127.0.0.1", 8081, "", "127.0.0.1:8081"},
		"the same, in disguise, is another host":    {"::ffff:127.0.0.1", 8081, "", ""},
		"an index at an address whatever it is":     {"169.254.7.7", 80, "", "169.254.7.7:80"},
		"an index that leads to metadata":           {"devpi.corp", 3141, "169.254.169.254", ""},
		"a host":                                    {"files.example.com", 443, public, public + ":443"},
		"a host without encryption":                 {"files.example.com", 80, public, public + ":80"},
		"a host at another port":                    {"files.example.com", 22, public, ""},
		"below a pattern":                           {"a.b.cdn.example.com", 443, public, public + ":443"},
		"the pattern itself":                        {"cdn.example.com", 443, public, ""},
		"only looks like it":                        {"evilcdn.example.com", 443, public, ""},
		"something else":                            {"example.com", 443, public, ""},
		"an address":                                {public, 443, "", ""},
		"a host at a private address":               {"files.example.com", 443, "10.0.0.1", ""},
		"a host at loopback":                        {"files.example.com", 443, "127.0.0.1", ""},
		"a host at metadata":                        {"files.example.com", 443, "169.254.169.254", ""},
		"a host at metadata in IPv6":                {"files.example.com", 443, "fd00:ec2::254", ""},
		"a host at IPv4 in IPv6":                    {"files.example.com", 443, "::ffff:10.0.0.1", ""},
		"a host behind NAT64":                       {"files.example.com", 443, "64:ff9b::a00:1", ""},
		"a host in 6to4":                            {"files.example.com", 443, "2002:a00:1::", ""},
		"a host nowhere":                            {"files.example.com", 443, "0.0.0.0", ""},
		"a host in shared addresses":                {"files.example.com", 443, "100.100.100.200", ""},
		"a host at both is reached at the open one": {"files.example.com", 443, "192.168.0.1 " + public, public + ":443"},
		"an unknown one":                            {"files.example.com", 443, "", ""},
		"no host":                                   {"files.example.com\r\nX: y", 443, public, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &network{names: map[string][]string{}}
			if test.address != "" {
				n.names[strings.TrimSuffix(strings.ToLower(test.host), ".")] = []string{test.address}
			}
			conn, err := session(n, io.Discard, 1000).Connect(t.Context(), test.host, test.port)
			if test.dialed == "" {
				assert.Check(t, is.ErrorContains(err, ""))
				assert.Check(t, is.Len(n.dialed, 0))
				return
			}
			assert.NilError(t, err)
			assert.Check(t, is.DeepEqual(n.dialed, []string{test.dialed}))
			_, _ = io.Copy(io.Discard, conn)
			assert.NilError(t, conn.Close())
		})
	}
}

// The address that is dialled is the one that was looked at.
func TestANameThatIsBoundAnewLeadsNowhere(t *testing.T) {
	n := &network{names: map[string][]string{"files.example.com": {"93.184.215.14", "127.0.0.1"}}}
	s := session(n, io.Discard, 1000)
	conn, err := s.Connect(t.Context(), "files.example.com", 443)
	assert.NilError(t, err)
	_, _ = io.Copy(io.Discard, conn)
	assert.NilError(t, conn.Close())
	_, err = s.Connect(t.Context(), "files.example.com", 443)
	assert.ErrorContains(t, err, "not on the open Internet")
	assert.DeepEqual(t, n.dialed, []string{"93.184.215.14:443"})
}

func TestEachUseIsLoggedAndBounded(t *testing.T) {
	var log bytes.Buffer
	n := &network{names: map[string][]string{"packages.example.com": {"93.184.215.14"}}, greet: strings.Repeat("x", 100)}
	s := session(n, &log, 150)
	for i, want := range []int{100, 0} {
		conn, err := s.Connect(t.Context(), "packages.example.com", 443)
		assert.NilError(t, err)
		got, err := io.ReadAll(conn)
		if i == 1 {
			assert.ErrorContains(t, err, "150 bytes")
		}
		assert.Check(t, is.Len(got, want))
		assert.NilError(t, conn.Close())
	}
	_, err := s.Connect(t.Context(), "packages.example.com", 443)
	assert.ErrorContains(t, err, "150 bytes")
	_, err = s.Connect(t.Context(), "evil.example", 443)
	assert.ErrorContains(t, err, "evil.example")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	assert.Assert(t, is.Len(lines, 4))
	for i, want := range []string{`"verdict":"allowed"`, `"verdict":"cut off"`, `"verdict":"refused"`, `"host":"\"evil.example\""`} {
		assert.Check(t, is.Contains(lines[i], want))
		assert.Check(t, is.Contains(lines[i], `"tenant":"acme"`))
		assert.Check(t, is.Contains(lines[i], `"instance":"i1"`))
	}
	assert.Check(t, is.Contains(lines[0], `"received":100`))
}

func TestAnInstallationHasSoManyConnectionsAtOnce(t *testing.T) {
	n := &network{names: map[string][]string{"packages.example.com": {"93.184.215.14"}}}
	s := session(n, io.Discard, 1000)
	var conns []net.Conn
	for range egress.MaxConns {
		conn, err := s.Connect(t.Context(), "packages.example.com", 443)
		assert.NilError(t, err)
		conns = append(conns, conn)
	}
	_, err := s.Connect(t.Context(), "packages.example.com", 443)
	assert.ErrorContains(t, err, "at once")
	for _, conn := range conns {
		_, _ = io.Copy(io.Discard, conn)
		assert.NilError(t, conn.Close())
	}
	conn, err := s.Connect(t.Context(), "packages.example.com", 443)
	assert.NilError(t, err)
	_, _ = io.Copy(io.Discard, conn)
	assert.NilError(t, conn.Close())
}

func TestPatternsOfHosts(t *testing.T) {
	for text, valid := range map[string]bool{
		"files.packages.example.com": true, "*.example.com": true, "a-b.example.com": true,
		"": false, "*": false, "*.": false, "*.com": false, "localhost": false, "a.*.com": false, "*example.com": false,
		"Example.com": false, "example.com.": false, "example.com:80": false, "http://example.com": false, "10.0.0.1": false, "::1": false, "a..b": false,
	} {
		assert.Check(t, is.Equal(egress.ValidPattern(text), valid), text)
	}
}
