package guestclient

import (
	"context"
	"fmt"
	"regexp"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Network is the way out of a sandbox while it is open. Close it.
type Network struct {
	// Proxy is the address of the proxy inside the sandbox, and Certificates the path of the
	// file there with those to believe.
	Proxy, Certificates string
	// Nameless is why programs do not find hosts by their names, empty if they do.
	Nameless string

	client  *Client
	cancel  context.CancelFunc
	ended   chan struct{}
	running sync.WaitGroup
}

var (
	proxyAddress     = regexp.MustCompile(`^127\.0\.0\.1:[0-9]{1,5}$`)
	certificatesPath = regexp.MustCompile(`^/[a-z0-9/._-]{1,100}$`)
)

// Reachable are hosts and ports whose connections the guest brings for programs that ask for
// their names. What host may be is in sdk.NetworkRule.
type Reachable struct {
	Host  string
	Ports []int
}

func inGuestWords(reachable []Reachable) []*guestv1.Reachable {
	var all []*guestv1.Reachable
	for _, r := range reachable {
		one := &guestv1.Reachable{Host: r.Host}
		for _, port := range r.Ports {
			one.Ports = append(one.Ports, uint32(port))
		}
		all = append(all, one)
	}
	return all
}

// OpenNetwork has the guest listen for programs, and brings their connections to connector
// until the network is closed, or the guest has ended. ctx bounds the opening alone.
func (c *Client) OpenNetwork(ctx context.Context, certificates []byte, reachable []Reachable, connector Connector) (*Network, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Network{client: c, cancel: cancel, ended: make(chan struct{})}
	stop := context.AfterFunc(ctx, cancel)
	stream, err := c.network.Open(life, &guestv1.OpenRequest{Certificates: certificates, Reachable: inGuestWords(reachable)})
	var first *guestv1.OpenResponse
	if err == nil {
		first, err = stream.Recv()
	}
	opened := first.GetOpened()
	switch {
	case !stop():
		err = ctx.Err()
	case err != nil:
		err = wire.DecodeError(err)
	case !proxyAddress.MatchString(opened.GetProxy()) || !certificatesPath.MatchString(opened.GetCertificates()):
		err = sdk.Errorf(sdk.CodeUnavailable, "the guest does not say where its proxy is")
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open the network of a sandbox: %w", err)
	}
	n.Proxy, n.Certificates, n.Nameless = opened.GetProxy(), opened.GetCertificates(), opened.GetNameless()
	room := make(chan struct{}, maxTunnels)
	n.running.Go(func() {
		defer close(n.ended)
		defer cancel()
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			asked := event.GetConnect()
			if asked == nil {
				continue
			}
			select {
			case room <- struct{}{}:
				n.running.Go(func() {
					defer func() { <-room }()
					tunnel(life, asked, connector, c.network.Tunnel)
				})
			default:
				return // the guest asks for fewer: it is none of ours any more
			}
		}
	})
	return n, nil
}

// Allow says anew which hosts programs find by their names.
func (n *Network) Allow(ctx context.Context, reachable []Reachable) error {
	_, err := n.client.network.Allow(ctx, &guestv1.AllowRequest{Reachable: inGuestWords(reachable)})
	return wire.DecodeError(err)
}

// Ended is closed when the network is not open any more: it was closed, or the guest has let go
// of its connection.
func (n *Network) Ended() <-chan struct{} { return n.ended }

// Close ends it and all its connections.
func (n *Network) Close() {
	n.cancel()
	n.running.Wait()
}
