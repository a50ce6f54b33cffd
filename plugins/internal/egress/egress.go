package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Bounds on one installation.
const (
	// MaxConns is how many connections it has at once.
	MaxConns = 32
	// MaxDials is how many it has altogether.
	MaxDials    = 4096
	dialTimeout = 15 * time.Second
)

// Resolver finds the addresses of a host. net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to an address. *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options say what may be reached.
type Options struct {
	// Indexes are reached whatever their address, at the port of the URL.
	Indexes []*url.URL
	// Hosts are reached at ports 80 and 443: names, and *.name for all below it.
	Hosts []string
	// MaxBytes is how much an installation may receive, and send.
	MaxBytes int64
	// Internal are hosts that no network knows: their connections are made here.
	Internal map[string]Dialer

	Resolver Resolver
	Dialer   Dialer
	Logger   hclog.Logger

	indexes []endpoint
}

// Egress is the way out for the sandboxes of one provider.
type Egress struct{ options Options }

// New makes the way out.
func New(o Options) *Egress {
	for _, index := range o.Indexes {
		host, _ := canonical(index.Hostname())
		o.indexes = append(o.indexes, endpoint{host, PortOf(index)})
	}
	return &Egress{o}
}

// PortOf is the port of an http or https URL; 0 if it has none that is valid.
func PortOf(u *url.URL) uint16 {
	if u.Port() == "" {
		if u.Scheme == "http" {
			return 80
		}
		return 443
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(port)
}

// Session is the way out of one installation. tenant and instance are for the log.
func (e *Egress) Session(tenant, instance string) *Session {
	return &Session{options: e.options, logger: e.options.Logger.With("tenant", tenant, "instance", instance)}
}

// Session counts what one installation uses. Its methods may be called
// concurrently.
type Session struct {
	options Options
	logger  hclog.Logger

	conns, dials   atomic.Int64
	received, sent atomic.Int64
}

// Connect makes a connection for an installer. Its error is fit to be read in the
// sandbox. Whatever comes of it is in the log: at once if it is refused, else when
// it ends.
func (s *Session) Connect(ctx context.Context, host string, port uint16) (net.Conn, error) {
	conn, err := s.connect(ctx, host, port)
	if err != nil {
		// The host is the sandbox's word, so it is quoted and cut.
		s.logger.Warn("package tunnel", "verdict", "refused", "reason", err.Error(), "host", fmt.Sprintf("%.253q", host), "port", port)
		return nil, err
	}
	return conn, nil
}

func (s *Session) connect(ctx context.Context, host string, port uint16) (net.Conn, error) {
	name, ok := canonical(host)
	if !ok {
		return nil, errors.New("that is no host")
	}
	internal := s.options.Internal[name]
	allowed, index := s.options.allowed(name, port)
	switch {
	case internal == nil && !allowed:
		return nil, fmt.Errorf("the operator does not allow packages from %s port %d", name, port)
	case s.dials.Add(1) > MaxDials:
		return nil, fmt.Errorf("an installation makes at most %d connections", MaxDials)
	case s.received.Load() >= s.options.MaxBytes:
		return nil, s.tooMuch()
	}
	if s.conns.Add(1) > MaxConns {
		s.conns.Add(-1)
		return nil, fmt.Errorf("an installation has at most %d connections at once", MaxConns)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var raw net.Conn
	var err error
	if internal != nil {
		raw, err = internal.DialContext(ctx, "tcp", name)
	} else {
		raw, err = s.dial(ctx, name, port, index)
	}
	if err != nil {
		s.conns.Add(-1)
		return nil, err
	}
	return &conn{Conn: raw, session: s, host: name, port: port, began: time.Now()}, nil
}

// dial resolves a host and connects to the address that was looked at: a name
// that leads elsewhere a moment later leads nowhere.
func (s *Session) dial(ctx context.Context, name string, port uint16, index bool) (net.Conn, error) {
	literal, err := netip.ParseAddr(name)
	addresses := []netip.Addr{literal}
	if err != nil {
		if addresses, err = s.options.Resolver.LookupNetIP(ctx, "ip", name); err != nil {
			return nil, fmt.Errorf("the address of %s cannot be found", name)
		}
	}
	refused := fmt.Errorf("the address of %s cannot be found", name)
	for _, address := range addresses {
		// An operator who writes down an address means that address.
		if !open(address) && (!index || !literal.IsValid() && !mayBeIndex(address)) {
			refused = fmt.Errorf("%s is not on the open Internet", name)
			continue
		}
		conn, err := s.options.Dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address.Unmap(), port).String())
		if err == nil {
			return conn, nil
		}
		s.logger.Debug("package tunnel", "host", name, "port", port, "error", err)
		refused = fmt.Errorf("%s port %d cannot be reached", name, port)
	}
	return nil, refused
}

func (s *Session) tooMuch() error {
	return fmt.Errorf("an installation may receive, and send, %d bytes", s.options.MaxBytes)
}
