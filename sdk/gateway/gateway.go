package gateway

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds on what an instance can have of a gateway beside the connections of its policy.
const (
	// maxServed is how many connections of its own an instance has at once.
	maxServed     = 256
	dialTimeout   = 15 * time.Second
	helloTimeout  = 10 * time.Second
	headTimeout   = 15 * time.Second
	idleTimeout   = 2 * time.Minute
	answerTimeout = 10 * time.Minute // until an answer begins
	writeTimeout  = 5 * time.Minute  // for what the instance does not read
	// refusalsAtOnce of an instance, and one more each refusalEvery, are told; the rest are counted.
	// They cost it nothing, and each is a line in a log.
	refusalsAtOnce = 100
	refusalEvery   = time.Second
)

// Resolver finds the addresses of a host. net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to an address. *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options of a gateway. The zero value is that of production.
type Options struct {
	// Resolver and Dialer are those of this machine unless given.
	Resolver Resolver
	Dialer   Dialer
	// Roots are believed of hosts whose TLS is ended here; nil for those of this machine.
	Roots *x509.CertPool
}

// Gateway is what the instances of a provider share. Its methods may be called concurrently.
type Gateway struct {
	options Options
	reports reports
	counts  counts

	mu      sync.Mutex
	tenants map[string]*tenant
}

// tenant is what the instances of one have used together.
type tenant struct {
	instances   int // guarded by the gateway
	mu          sync.Mutex
	connections int
	day         int64 // since 1970
	bytes       [2]int64
}

// New makes a gateway.
func New(o Options) *Gateway {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Dialer == nil {
		o.Dialer = &net.Dialer{}
	}
	return &Gateway{options: o, reports: newReports(), tenants: map[string]*tenant{}}
}

// Follow implements sdk.NetworkGovernor's FollowNetwork.
func (g *Gateway) Follow(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return g.reports.follow(ctx, report)
}

// Instance makes the way out of an instance. Close it. The error is that of the policy.
func (g *Gateway) Instance(tenantName, instanceID string, p sdk.NetworkPolicy) (*Instance, error) {
	i := &Instance{gateway: g, id: instanceID, tenantName: tenantName, flights: map[*flight]bool{}, refusals: rate.NewLimiter(rate.Every(refusalEvery), refusalsAtOnce)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.transport = i.newTransport()
	if err := i.SetPolicy(p); err != nil {
		i.cancel()
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenants[tenantName]
	if t == nil {
		t = &tenant{}
		g.tenants[tenantName] = t
	}
	t.instances++
	i.tenant = t
	return i, nil
}

// leave forgets an instance. What a tenant without instances has used today is kept as long as
// the day lasts.
func (g *Gateway) leave(i *Instance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i.tenant.instances--
	for name, t := range g.tenants {
		if t.instances == 0 && !t.usedToday() {
			delete(g.tenants, name)
		}
	}
}

func today() int64 { return time.Now().Unix() / (24 * 60 * 60) }

func (t *tenant) usedToday() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connections > 0 || t.day == today() && t.bytes != [2]int64{}
}

// connect counts a connection, if there may be another one.
func (t *tenant) connect(most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most > 0 && t.connections >= most {
		return false
	}
	t.connections++
	return true
}

func (t *tenant) disconnect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections--
}

// use counts bytes of one way, and reports whether there may be so many.
func (t *tenant) use(way int, n, most int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if day := today(); day != t.day {
		t.day, t.bytes = day, [2]int64{}
	}
	t.bytes[way] += n
	return most <= 0 || t.bytes[way] <= most
}
