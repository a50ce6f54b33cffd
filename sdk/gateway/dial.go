package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// outside is a connection to a host, which counts. It is under way, for new policies, from before
// its name is resolved until it is closed: a transport goes on connecting for a request that has
// ended, and keeps connections that no request has.
type outside struct {
	net.Conn
	instance *Instance
	flight   *flight
	forsake  func() bool // takes it out of what ends with the instance; nil before it is
	once     sync.Once
}

// dial connects to a host that the policy allows. Its errors are refusals, or errCut.
func (i *Instance) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	p := i.policy.Load()
	if _, err := p.route(host, port); err != nil {
		return nil, err
	}
	if err := i.mayDial(p); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(i.ctx, cancel)()
	f := &flight{cut: cancel}
	f.allowed = func(p *policy) bool {
		way, err := p.route(host, port)
		return err == nil && (way.private || !f.private)
	}
	if !i.begin(f) {
		i.disconnect()
		return nil, errCut
	}
	raw, err := i.connect(ctx, f, host, port)
	if err != nil {
		i.end(f)
		i.disconnect()
		return nil, err
	}
	o := &outside{Conn: raw, instance: i, flight: f}
	end := func() { _ = o.Close() }
	if !i.proceed(f, func() { f.cut, o.forsake = end, context.AfterFunc(i.ctx, end) }) {
		_ = o.Close()
		return nil, errCut
	}
	return o, nil
}

func (i *Instance) disconnect() {
	i.connections.Add(-1)
	i.tenant.disconnect()
}

// mayDial counts a connection if the quotas have room for it. Idle ones that are kept for the
// next request make room.
func (i *Instance) mayDial(p *policy) error {
	most := cmp.Or(p.MaxConnections, networkpolicy.UsualConnections)
	for tried := false; ; tried = true {
		if i.connections.Add(1) > int64(most) {
			i.connections.Add(-1)
			if !tried {
				i.transport.CloseIdleConnections()
				continue
			}
			return refusef("this sandbox may have %d connections at once", most)
		}
		if !i.tenant.connect(p.TenantConnections) {
			i.connections.Add(-1)
			if !tried {
				i.transport.CloseIdleConnections()
				continue
			}
			return refusef("the sandboxes of this tenant may have %d connections at once", p.TenantConnections)
		}
		break
	}
	if !i.use(up, 0) || !i.use(down, 0) {
		i.connections.Add(-1)
		i.tenant.disconnect()
		return refusal("this sandbox, or its tenant, has sent or received all that it may")
	}
	return nil
}

// use counts bytes, and reports whether there may be so many.
func (i *Instance) use(way int, n int64) bool {
	p := i.policy.Load()
	most := cmp.Or(p.MaxBytes, networkpolicy.UsualBytes)
	own := i.bytes[way].Add(n) <= most
	return i.tenant.use(way, n, p.TenantBytes) && own
}

// connect resolves a host and connects to the address that was looked at: a name that leads
// elsewhere a moment later leads nowhere. The policy is asked again before each of these steps.
func (i *Instance) connect(ctx context.Context, f *flight, host string, port uint16) (net.Conn, error) {
	literal, err := netip.ParseAddr(host)
	addresses := []netip.Addr{literal}
	if err != nil {
		// With the dot at its end no domain of this machine is tried behind it.
		if addresses, err = i.gateway.options.Resolver.LookupNetIP(ctx, "ip", host+"."); err != nil {
			return nil, unreachable("the address of " + host + " cannot be found")
		}
	}
	var refused error = unreachable("the address of " + host + " cannot be found")
	for _, address := range addresses {
		open := Open(address)
		way, err := i.policy.Load().route(host, port)
		if err != nil {
			return nil, errCut
		}
		if !open && (!way.private || !Private(address)) {
			refused = refusef("%s is not on the open Internet", host)
			continue
		}
		if !i.proceed(f, func() { f.private = !open }) {
			return nil, errCut
		}
		conn, err := i.gateway.options.Dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address.Unmap(), port).String())
		if err == nil {
			return conn, nil
		}
		refused = unreachable(fmt.Sprintf("%s port %d cannot be reached", host, port))
	}
	return nil, refused
}

// Read counts what arrives.
func (o *outside) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if !o.instance.use(down, int64(n)) || o.flight.was.Load() {
		return 0, errCut
	}
	return n, err
}

// Write counts what is sent, before it is.
func (o *outside) Write(p []byte) (int, error) {
	if o.flight.was.Load() || !o.instance.use(up, int64(len(p))) {
		return 0, errCut
	}
	n, err := o.Conn.Write(p)
	if err != nil && o.flight.was.Load() {
		err = errCut
	}
	return n, err
}

// Close ends the connection.
func (o *outside) Close() error {
	err := o.Conn.Close()
	o.once.Do(func() {
		if o.forsake != nil {
			o.forsake()
		}
		o.instance.end(o.flight)
		o.instance.disconnect()
	})
	return err
}

// newTransport sends requests that were read, over connections of this instance alone.
func (i *Instance) newTransport() *http.Transport {
	open := func(ctx context.Context, address string) (net.Conn, string, error) {
		host, port, err := split(address)
		if err != nil {
			return nil, "", err
		}
		conn, err := i.dial(ctx, host, port)
		return conn, host, err
	}
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, _, err := open(ctx, address)
			return conn, err
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, host, err := open(ctx, address)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			secure := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: i.gateway.options.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
			if err := secure.HandshakeContext(ctx); err != nil {
				_ = conn.Close()
				if errors.Is(err, errCut) {
					return nil, err
				}
				return nil, unreachable(host + " has no TLS that this machine trusts: " + bounded(err.Error()))
			}
			return secure, nil
		},
		DisableCompression: true, MaxResponseHeaderBytes: 256 << 10, MaxIdleConnsPerHost: 4, MaxIdleConns: 16,
		IdleConnTimeout: idleTimeout, ResponseHeaderTimeout: answerTimeout,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, // no HTTP/2
	}
}

// split is net.SplitHostPort for what a transport dials.
func split(address string) (host string, port uint16, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, refusal("that is no host and port")
	}
	n, err := strconv.ParseUint(service, 10, 16)
	name, ok := networkpolicy.Host(host)
	if err != nil || n == 0 || !ok || service != strconv.FormatUint(n, 10) {
		return "", 0, refusal("that is no host and port")
	}
	return name, uint16(n), nil
}
