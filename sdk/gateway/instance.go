package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// Instance is the way out of one instance. Its methods may be called concurrently.
type Instance struct {
	gateway    *Gateway
	id         string
	tenantName string
	tenant     *tenant
	transport  *http.Transport
	authority  authority
	refusals   *rate.Limiter // that are told

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	policy      atomic.Pointer[policy]
	connections atomic.Int64
	bytes       [2]atomic.Int64

	mu      sync.Mutex
	closed  bool
	served  int
	flights map[*flight]bool
}

// The ways of bytes.
const (
	up = iota
	down
)

// flight is something under way that a new policy may not allow.
type flight struct {
	allowed func(*policy) bool // called with the lock of the instance held
	cut     func()             // changes only before it was cut off
	private bool               // it leads to a private address; guarded by the instance
	was     atomic.Bool        // cut off
	ended   chan struct{}
}

// cutPatience bounds the wait for what is cut off. It ends at once unless this process is
// starved.
const cutPatience = 10 * time.Second

// SetPolicy puts another policy in force. When it returns, what that does not allow is cut off.
// The error is what is wrong with the policy.
func (i *Instance) SetPolicy(p sdk.NetworkPolicy) error {
	if err := networkpolicy.Validate(p); err != nil {
		return err
	}
	next := &policy{p}
	i.mu.Lock()
	i.policy.Store(next)
	var cut []*flight
	for f := range i.flights {
		if !f.allowed(next) {
			f.was.Store(true)
			cut = append(cut, f)
		}
	}
	i.mu.Unlock()
	for _, f := range cut {
		f.cut()
	}
	i.transport.CloseIdleConnections()
	late := time.NewTimer(cutPatience)
	defer late.Stop()
	for _, f := range cut {
		select {
		case <-f.ended:
		case <-late.C:
			return sdk.Errorf(sdk.CodeUnavailable, "what the policy does not allow any more has not ended yet")
		}
	}
	return nil
}

// Close ends all connections of the instance, and returns when they have ended.
func (i *Instance) Close() {
	i.mu.Lock()
	first := !i.closed
	i.closed = true
	i.mu.Unlock()
	i.cancel()
	i.transport.CloseIdleConnections()
	i.running.Wait()
	i.transport.CloseIdleConnections()
	if first {
		i.gateway.leave(i)
	}
}

// Certificates are the authority that programs of the instance must believe where TLS is ended
// here, in PEM.
func (i *Instance) Certificates() ([]byte, error) { return i.authority.certificate() }

// enter counts a connection that is served; false if it cannot be. Who enters leaves.
func (i *Instance) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || i.served >= maxServed {
		return false
	}
	i.served++
	i.running.Add(1)
	return true
}

func (i *Instance) leave() {
	i.mu.Lock()
	i.served--
	i.mu.Unlock()
	i.running.Done()
}

// begin notes what is under way, unless the policy of this moment does not allow it. Whoever
// begins ends it.
func (i *Instance) begin(f *flight) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || !f.allowed(i.policy.Load()) {
		return false
	}
	f.ended = make(chan struct{})
	i.flights[f] = true
	return true
}

// proceed changes what is under way, and reports whether it may go on.
func (i *Instance) proceed(f *flight, change func()) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || f.was.Load() {
		return false
	}
	change()
	return f.allowed(i.policy.Load())
}

func (i *Instance) end(f *flight) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.flights, f)
	close(f.ended)
}

// report tells what became of something.
func (i *Instance) report(c sdk.NetworkConnection) {
	c.InstanceID, c.Host, c.Method, c.Reason = i.id, bounded(c.Host), bounded(c.Method), bounded(c.Reason)
	c.Duration = time.Since(c.Began)
	i.gateway.counts.add(c)
	if c.Verdict == sdk.NetworkRefused && !i.refusals.Allow() {
		i.gateway.reports.lose()
		return
	}
	i.gateway.reports.add(i.tenantName, c)
}

// ServeProxy serves a connection of a program that takes this for an HTTP proxy, and closes it.
func (i *Instance) ServeProxy(conn net.Conn) { i.serve(conn, "", 0) }

// ServeDirect serves a connection of a program that wanted a host and port, and closes it.
func (i *Instance) ServeDirect(conn net.Conn, host string, port uint16) { i.serve(conn, host, port) }

func (i *Instance) serve(conn net.Conn, host string, port uint16) {
	defer conn.Close()
	if !i.enter() {
		return
	}
	defer i.leave()
	defer context.AfterFunc(i.ctx, func() { _ = conn.Close() })()
	c := newClient(i, conn)
	if host == "" {
		c.proxy()
		return
	}
	began := time.Now()
	name, ok := networkpolicy.Host(host)
	err := refusef("%.80q is no host", host)
	if ok {
		_, err = i.policy.Load().route(name, port)
	}
	if err != nil {
		i.report(sdk.NetworkConnection{Host: host, Port: int(port), Protocol: "tcp", Verdict: sdk.NetworkRefused, Reason: err.Error(), Began: began})
		return
	}
	c.connected(name, port)
}

// errCut is the end of what a quota or a new policy has ended.
var errCut = errors.New("the network of this sandbox does not allow it any more")
