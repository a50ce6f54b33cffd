package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/egress"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/names"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxOut is how many connections of its programs a sandbox brings to the plugin at once, which
// takes some more: it hears of the end of one later.
const maxOut = 120

// certificatesFile is where programs find whom to believe; only the guest may write there.
var certificatesFile = filepath.Join(RunDir, "certificates.pem")

// network brings connections of programs to the plugin, which reads them. It decides nothing.
type network struct {
	guestv1.UnimplementedNetworkServiceServer
	tunnels egress.Tunnels
	names   names.Names
	mu      sync.Mutex
	open    bool
	// address is where the proxy was last: programs that run go on to look for it there.
	address string
}

var _ guestv1.NetworkServiceServer = (*network)(nil)

// claim reports whether nobody else listens.
func (n *network) claim() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	free := !n.open
	n.open = true
	return free
}

func (n *network) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = false
}

func (n *network) Open(req *guestv1.OpenRequest, stream grpc.ServerStreamingServer[guestv1.OpenResponse]) error {
	if !n.claim() {
		return sdk.Errorf(sdk.CodeConflict, "the network of the sandbox is open already")
	}
	defer n.release()
	if err := replaceFile(certificatesFile, req.GetCertificates()); err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	listener, err := n.listen()
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "listen for programs: %w", err)
	}
	var carried sync.WaitGroup
	defer carried.Wait()
	defer n.names.Close()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	defer listener.Close()
	var sending sync.Mutex // a gRPC stream takes one sender at a time
	bring := func(ctx context.Context, conn net.Conn, host string, port uint16) {
		n.carry(ctx, conn, host, port, func(connect *guestv1.Connect) error {
			sending.Lock()
			defer sending.Unlock()
			return stream.Send(&guestv1.OpenResponse{Event: &guestv1.OpenResponse_Connect{Connect: connect}})
		})
	}
	opened := &guestv1.Opened{Proxy: listener.Addr().String(), Certificates: certificatesFile}
	room := make(chan struct{}, maxOut)
	// Nobody is told of a connection before of the opening.
	sending.Lock()
	if err := n.names.Open(namesRules(req.GetReachable()), bring, room); err != nil {
		opened.Nameless = err.Error()
	}
	err = stream.Send(&guestv1.OpenResponse{Event: &guestv1.OpenResponse_Opened{Opened: opened}})
	sending.Unlock()
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return ctx.Err()
		case err != nil:
			return sdk.Errorf(sdk.CodeUnavailable, "listen for programs: %w", err)
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			_ = conn.Close()
			return ctx.Err()
		}
		carried.Go(func() {
			defer func() { <-room }()
			bring(ctx, conn, "", 0)
		})
	}
}

// Allow implements guestv1.NetworkServiceServer.
func (n *network) Allow(_ context.Context, req *guestv1.AllowRequest) (*guestv1.AllowResponse, error) {
	if err := n.names.Allow(namesRules(req.GetReachable())); err != nil {
		return nil, sdk.Errorf(sdk.CodeConflict, "%w", err)
	}
	return &guestv1.AllowResponse{}, nil
}

// namesRules are what the plugin says. Ports that are none are left out.
func namesRules(reachable []*guestv1.Reachable) []names.Rule {
	var rules []names.Rule
	for _, r := range reachable {
		rule := names.Rule{Host: r.GetHost()}
		for _, port := range r.GetPorts() {
			if port > 0 && port <= math.MaxUint16 {
				rule.Ports = append(rule.Ports, uint16(port))
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// listen listens where it did the last time, if it can.
func (n *network) listen() (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.address != "" {
		if listener, err := net.Listen("tcp4", n.address); err == nil {
			return listener, nil
		}
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		n.address = listener.Addr().String()
	}
	return listener, err
}

// carry brings one connection to the plugin: to a host, or to a proxy.
func (n *network) carry(ctx context.Context, conn net.Conn, host string, port uint16, ask func(*guestv1.Connect) error) {
	defer conn.Close()
	out, err := n.tunnels.Dial(ctx, host, port, ask)
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = out.Close()
	})()
	var up sync.WaitGroup
	defer up.Wait()
	up.Go(func() {
		_, _ = io.Copy(out, conn)
		_ = out.Close()
	})
	_, _ = io.Copy(conn, out)
	_ = conn.Close()
	_ = out.Close()
}

func (n *network) Tunnel(stream grpc.BidiStreamingServer[guestv1.TunnelRequest, guestv1.TunnelResponse]) error {
	return n.tunnels.Serve(stream)
}

// replaceFile writes a file that programs may be reading.
func replaceFile(path string, content []byte) error {
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	return nil
}
