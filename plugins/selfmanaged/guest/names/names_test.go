package names_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/names"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tell says to a program to which host it is connected, and then what it says.
func tell(ctx context.Context, conn net.Conn, host string, port uint16) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = fmt.Fprintf(conn, "%s:%d\n", host, port)
	_, _ = io.Copy(conn, conn)
}

// freeAddress is one of loopback at whose port nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	packets, err := net.ListenPacket("udp4", "127.1.2.3:0") // no connection of others begins there
	assert.NilError(t, err)
	defer packets.Close()
	return packets.LocalAddr().String()
}

// opened are names with a resolver at an address of this machine.
func opened(t *testing.T, room int, rules ...names.Rule) (n *names.Names, asking *net.Resolver) {
	t.Helper()
	n = &names.Names{Resolver: freeAddress(t)}
	assert.NilError(t, n.Open(rules, tell, make(chan struct{}, room)))
	t.Cleanup(n.Close)
	return n, asker(n.Resolver, "udp")
}

func asker(address, network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

// lookUp is the address of a name. The dot keeps the machine's own domains away.
func lookUp(t *testing.T, asking *net.Resolver, name string) netip.Addr {
	t.Helper()
	found, err := asking.LookupNetIP(t.Context(), "ip", name+".")
	assert.NilError(t, err)
	assert.Assert(t, is.Len(found, 1))
	return found[0].Unmap()
}

func notFound(t *testing.T, asking *net.Resolver, name string) {
	t.Helper()
	_, err := asking.LookupNetIP(t.Context(), "ip", name+".")
	failed, ok := errors.AsType[*net.DNSError](err)
	assert.Check(t, ok && failed.IsNotFound, "%s: %v", name, err)
}

// freePort is one at which nobody listens at any address.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	assert.NilError(t, err)
	defer listener.Close()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

func dial(t *testing.T, address netip.Addr, port uint16) (net.Conn, error) {
	t.Helper()
	return (&net.Dialer{}).DialContext(t.Context(), "tcp", netip.AddrPortFrom(address, port).String())
}

// reached is where a connection to an address leads.
func reached(t *testing.T, address netip.Addr, port uint16) string {
	t.Helper()
	conn, err := dial(t, address, port)
	assert.NilError(t, err)
	defer conn.Close()
	var host string
	_, err = fmt.Fscanln(conn, &host)
	assert.NilError(t, err)
	return host
}

func refused(t *testing.T, address netip.Addr, port uint16) {
	t.Helper()
	_, err := dial(t, address, port)
	assert.ErrorContains(t, err, "refused")
}

func TestANameHasAnAddressThatLeadsToIt(t *testing.T) {
	one, other := freePort(t), freePort(t)
	n, udp := opened(t, 4, names.Rule{Host: "*.example.com", Ports: []uint16{one}}, names.Rule{Host: "a.example.com", Ports: []uint16{one, other}})
	for network, asking := range map[string]*net.Resolver{"udp": udp, "tcp": asker(n.Resolver, "tcp")} {
		t.Run(network, func(t *testing.T) {
			a, b := lookUp(t, asking, "a.example.com"), lookUp(t, asking, "B.Example.com")
			assert.Check(t, netip.MustParsePrefix("127.64.0.0/10").Contains(a) && a != b)
			assert.Equal(t, reached(t, a, one), fmt.Sprintf("a.example.com:%d", one))
			assert.Equal(t, reached(t, a, other), fmt.Sprintf("a.example.com:%d", other))
			assert.Equal(t, reached(t, b, one), fmt.Sprintf("b.example.com:%d", one))
			refused(t, b, other)
			assert.Equal(t, lookUp(t, asking, "a.example.com"), a)
			for _, name := range []string{"example.com", "example.org", "aexample.com", "10.0.0.1", "-.example.com"} {
				notFound(t, asking, name)
			}
			texts, err := asking.LookupTXT(t.Context(), "a.example.com.")
			assert.Check(t, err != nil && len(texts) == 0)
		})
	}
}

func TestAddressesFollowTheRules(t *testing.T) {
	one, other := freePort(t), freePort(t)
	n, asking := opened(t, 4, names.Rule{Host: "a.example.com", Ports: []uint16{one}}, names.Rule{Host: "b.example.com", Ports: []uint16{one}})
	a, b := lookUp(t, asking, "a.example.com"), lookUp(t, asking, "b.example.com")
	conn, err := dial(t, b, one)
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, n.Allow([]names.Rule{{Host: "a.example.com", Ports: []uint16{other}}}))
	refused(t, a, one)
	refused(t, b, one)
	assert.Equal(t, reached(t, a, other), fmt.Sprintf("a.example.com:%d", other), "who remembers the address is there")
	notFound(t, asking, "b.example.com")
	assert.NilError(t, n.Allow(nil))
	refused(t, a, other)
	notFound(t, asking, "a.example.com")

	// What a closed one had stays what it was when it is opened again, as after a snapshot.
	assert.NilError(t, n.Allow([]names.Rule{{Host: "a.example.com", Ports: []uint16{one}}}))
	a = lookUp(t, asking, "a.example.com")
	n.Close()
	_, err = io.ReadAll(conn)
	assert.NilError(t, err, "what was connected has ended")
	refused(t, a, one)
	assert.NilError(t, n.Open([]names.Rule{{Host: "*", Ports: []uint16{one}}}, tell, make(chan struct{}, 1)))
	assert.Equal(t, reached(t, a, one), fmt.Sprintf("a.example.com:%d", one))
	assert.Check(t, lookUp(t, asking, "b.example.com") != b, "no address gets another meaning soon")
}

func TestManyNamesTakeLittle(t *testing.T) {
	ports := []uint16{freePort(t)}
	many := make([]uint16, 1000)
	for n := range many {
		many[n] = uint16(20000 + n)
	}
	n, asking := opened(t, 4, names.Rule{Host: "*.example.com", Ports: ports}, names.Rule{Host: "*.wide.example.org", Ports: many})
	first := lookUp(t, asking, "first.example.com")
	seen := map[netip.Addr]bool{first: true}
	var last netip.Addr
	for k := range 3000 {
		last = lookUp(t, asking, fmt.Sprintf("n%d.example.com", k))
		assert.Assert(t, !seen[last])
		seen[last] = true
	}
	refused(t, first, ports[0])
	assert.Equal(t, reached(t, last, ports[0]), fmt.Sprintf("n2999.example.com:%d", ports[0]))
	assert.Equal(t, n.Listeners(), 256)
	for k := range 20 {
		lookUp(t, asking, fmt.Sprintf("n%d.wide.example.org", k))
		assert.Assert(t, n.Listeners() <= 512)
	}
	assert.Equal(t, n.Listeners(), 512)
	// Rules that widen what is known are bounded like queries.
	assert.NilError(t, n.Allow([]names.Rule{{Host: "*", Ports: many}}))
	assert.Assert(t, n.Listeners() <= 512)
	assert.NilError(t, n.Allow(nil))
	assert.Equal(t, n.Listeners(), 0)
}

func TestCodeThatHasAPortKeepsTheNameFromItself(t *testing.T) {
	free, taken := freePort(t), freePort(t)
	thief, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", taken))
	assert.NilError(t, err)
	n, asking := opened(t, 4, names.Rule{Host: "a.example.com", Ports: []uint16{free, taken}}, names.Rule{Host: "b.example.com", Ports: []uint16{free}})
	_, err = asking.LookupNetIP(t.Context(), "ip", "a.example.com.")
	failed, ok := errors.AsType[*net.DNSError](err)
	assert.Check(t, ok && !failed.IsNotFound, "%v", err)
	assert.Equal(t, n.Listeners(), 0, "all of them or none")
	b := lookUp(t, asking, "b.example.com")
	assert.Equal(t, reached(t, b, free), fmt.Sprintf("b.example.com:%d", free))
	assert.NilError(t, thief.Close())
	a := lookUp(t, asking, "a.example.com")
	assert.Equal(t, reached(t, a, taken), fmt.Sprintf("a.example.com:%d", taken))
}

func TestAResolverWhosePortIsTakenComesWhenItIsFree(t *testing.T) {
	for _, network := range []string{"udp4", "tcp4"} {
		t.Run(network, func(t *testing.T) {
			port := freePort(t)
			n := &names.Names{Resolver: freeAddress(t)}
			var thief io.Closer
			var err error
			if network == "udp4" {
				thief, err = net.ListenPacket(network, n.Resolver)
			} else {
				thief, err = net.Listen(network, n.Resolver)
			}
			assert.NilError(t, err)
			rules := []names.Rule{{Host: "a.example.com", Ports: []uint16{port}}}
			assert.ErrorContains(t, n.Open(rules, tell, make(chan struct{}, 1)), "in use")
			defer n.Close()
			assert.ErrorContains(t, n.Allow(rules), "in use")
			assert.NilError(t, thief.Close())
			assert.NilError(t, n.Allow(rules))
			assert.Equal(t, reached(t, lookUp(t, asker(n.Resolver, "udp"), "a.example.com"), port), fmt.Sprintf("a.example.com:%d", port))
		})
	}
}

func TestConnectionsWaitForRoom(t *testing.T) {
	port := freePort(t)
	_, asking := opened(t, 2, names.Rule{Host: "*", Ports: []uint16{port}})
	a := lookUp(t, asking, "a.example.com")
	var conns []net.Conn
	for range 3 {
		conn, err := dial(t, a, port)
		assert.NilError(t, err)
		defer conn.Close()
		conns = append(conns, conn)
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	told := make(chan int, 3)
	for k, conn := range conns {
		wait.Go(func() {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
				told <- k
			}
		})
	}
	served := <-told + <-told
	waiting := 3 - served // of 0, 1 and 2
	select {
	case k := <-told:
		t.Errorf("%d is served too", k)
	default:
	}
	for k, conn := range conns {
		if k != waiting {
			assert.NilError(t, conn.Close())
		}
	}
	assert.Equal(t, <-told, waiting)
}

func TestIdleAskersDoNotSilenceTheResolver(t *testing.T) {
	n, asking := opened(t, 1, names.Rule{Host: "*", Ports: []uint16{freePort(t)}})
	for range 40 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", n.Resolver)
		assert.NilError(t, err)
		defer conn.Close()
	}
	lookUp(t, asking, "a.example.com")
	n.Close()
}

// Whoever asks while all changes gets an answer or none, and nothing is left.
func TestAllAtOnce(t *testing.T) {
	port := freePort(t)
	rules := []names.Rule{{Host: "*.example.com", Ports: []uint16{port}}}
	n, asking := opened(t, 8, rules...)
	var stop atomic.Bool
	var asks sync.WaitGroup
	var answered sync.Map
	for k := range 4 {
		asks.Go(func() {
			for j := 0; !stop.Load(); j++ {
				found, err := asking.LookupNetIP(t.Context(), "ip", fmt.Sprintf("n%d.example.com.", (j*4+k)%300))
				if err != nil || len(found) == 0 {
					continue
				}
				answered.Store(k, true)
				if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", netip.AddrPortFrom(found[0].Unmap(), port).String()); err == nil {
					_ = conn.Close()
				}
			}
		})
	}
	for range 20 {
		assert.Check(t, n.Allow(nil))
		assert.Check(t, n.Allow(rules))
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for k := range 4 {
			if _, ok := answered.Load(k); !ok {
				return poll.Continue("not all had an answer")
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	stop.Store(true)
	asks.Wait()
	n.Close()
	assert.Equal(t, n.Listeners(), 0)
}
