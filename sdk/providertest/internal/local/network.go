package local

import (
	"context"
	"net"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
)

var _ sdk.NetworkGovernor = (*Provider)(nil)

// network is the proxy that the programs of an instance are told of. Nothing keeps them from
// going around it, as nothing here keeps them from anything.
type network struct {
	out      *gateway.Instance
	listener net.Listener
	serving  sync.WaitGroup
}

// openNetwork begins a network that leads nowhere, which SetNetwork changes.
func (p *Provider) openNetwork(i *instance) error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	out, err := p.gateway.Instance(i.Labels[sdk.LabelTenant], i.ID, sdk.NetworkPolicy{})
	if err != nil {
		return err
	}
	n := &network{out: out, listener: listener}
	i.network = n
	n.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			n.serving.Go(func() { out.ServeProxy(conn) })
		}
	})
	return nil
}

func (n *network) close() {
	if n == nil {
		return
	}
	_ = n.listener.Close()
	n.out.Close()
	n.serving.Wait()
}

func (n *network) environment() map[string]string {
	if n == nil {
		return nil
	}
	proxy := "http://" + n.listener.Addr().String()
	return map[string]string{"http_proxy": proxy, "https_proxy": proxy, "no_proxy": "localhost,127.0.0.1"}
}

// SetNetwork implements sdk.NetworkGovernor.
func (p *Provider) SetNetwork(_ context.Context, instanceID string, policy sdk.NetworkPolicy) error {
	i, err := p.find(instanceID)
	if err != nil {
		return err
	}
	return i.setNetwork(policy)
}

func (i *instance) setNetwork(policy sdk.NetworkPolicy) error {
	if i.network == nil {
		return sdk.Errorf(sdk.CodeUnavailable, "there is no proxy")
	}
	return i.network.out.SetPolicy(policy)
}

// FollowNetwork implements sdk.NetworkGovernor.
func (p *Provider) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return p.gateway.Follow(ctx, report)
}
