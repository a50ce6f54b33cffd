package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/gateway"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

var _ sdk.NetworkGovernor = (*Provider)(nil)

// SetNetwork implements sdk.NetworkGovernor.
func (p *Provider) SetNetwork(ctx context.Context, instanceID string, policy sdk.NetworkPolicy) error {
	i, err := p.instances.find(instanceID)
	if err != nil {
		return err
	}
	return i.setNetwork(ctx, p.gateway, policy)
}

// FollowNetwork implements sdk.NetworkGovernor.
func (p *Provider) FollowNetwork(ctx context.Context, report func(sdk.NetworkReport) error) error {
	return p.gateway.Follow(ctx, report)
}

// network is the way out of one instance. The zero value is none.
type network struct {
	changing sync.Mutex

	mu     sync.Mutex // of what follows
	ended  bool
	out    *gateway.Instance    // nil for none
	opened *guestclient.Network // nil for none
	policy *sdk.NetworkPolicy   // in force; nil for none
	told   *sdk.NetworkPolicy   // the one that the guest listens for
}

// environment is what programs need to know of it.
func (n *network) environment() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opened == nil {
		return nil
	}
	return gateway.Environment(n.opened.Proxy, n.opened.Certificates)
}

// current is the way out that there is, nil for none; ended says that there will be none.
func (n *network) current() (out *gateway.Instance, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out, n.ended
}

// keep makes a way out of a sandbox the instance's, unless that has ended or is not in it any
// more. told is the policy that it was opened with.
func (n *network) keep(of *sandbox, out *gateway.Instance, opened *guestclient.Network, told *sdk.NetworkPolicy) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended || of.left.Load() {
		return false
	}
	n.out, n.opened, n.told = out, opened, told
	return true
}

// decide notes the policy that is in force now.
func (n *network) decide(policy *sdk.NetworkPolicy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.policy = policy
}

func (n *network) decided() *sdk.NetworkPolicy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.policy
}

// untold is the policy in force, if the guest listens for another one.
func (n *network) untold() (*guestclient.Network, *sdk.NetworkPolicy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opened == nil || n.policy == n.told {
		return nil, nil
	}
	return n.opened, n.policy
}

// tell notes which policy the guest listens for, where that is still the way out.
func (n *network) tell(opened *guestclient.Network, policy *sdk.NetworkPolicy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opened == opened {
		n.told = policy
	}
}

// close ends all connections of the instance.
func (n *network) close() {
	n.mu.Lock()
	n.ended = true
	out, opened := n.out, n.opened
	n.mu.Unlock()
	closeBoth(out, opened)
}

// pause ends the connections of an instance whose sandbox ends. Its policy stays.
func (n *network) pause() {
	n.mu.Lock()
	opened := n.opened
	n.mu.Unlock()
	closeBoth(nil, opened)
}

func closeBoth(out *gateway.Instance, opened *guestclient.Network) {
	if out != nil {
		out.Close()
	}
	if opened != nil {
		opened.Close()
	}
}

// connections hands the connections that come out of a sandbox to the gateway.
type connections struct{ out *gateway.Instance }

// Connect implements guestclient.Connector.
func (c connections) Connect(_ context.Context, host string, port uint16) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if host == "" {
		go c.out.ServeProxy(theirs)
	} else {
		go c.out.ServeDirect(theirs, host, port)
	}
	return ours, nil
}

// setNetwork puts a policy in force. The first one with rules opens the network. After that the
// guest decides nothing and is only told, so that what is paused, or does not answer, is cut off
// too.
func (i *instance) setNetwork(ctx context.Context, from *gateway.Gateway, policy sdk.NetworkPolicy) error {
	i.network.changing.Lock()
	defer i.network.changing.Unlock()
	out, ended := i.network.current()
	switch {
	case ended:
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	case out != nil:
		if err := networkpolicy.Validate(policy); err != nil {
			return err
		}
		err := out.SetPolicy(policy)
		i.network.decide(&policy)
		i.tellNetwork(ctx)
		return err
	case len(policy.Rules) == 0:
		return networkpolicy.Validate(policy)
	}
	done, err := i.use()
	if err != nil {
		return err
	}
	defer done()
	tenant, id := i.Owner()
	if out, err = from.Instance(tenant, id, policy); err != nil {
		return err
	}
	s := i.sandbox()
	opened, err := s.openNetwork(ctx, out, &policy, i.logger)
	if err != nil {
		out.Close()
		return err
	}
	i.network.decide(&policy)
	if !i.network.keep(s, out, opened, &policy) {
		closeBoth(out, opened)
		return sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	go i.keepOpen(s, out, opened)
	return nil
}

// reopenAfter is the pause between the tries to open a network again.
const reopenAfter = 200 * time.Millisecond

// keepOpen opens the network again when the guest has let go of its connection, as it does for a
// snapshot. Its policy, and what it has used, stay. It ends with the sandbox. opened is nil for
// one that is not open yet.
func (i *instance) keepOpen(s *sandbox, out *gateway.Instance, opened *guestclient.Network) {
	for {
		if opened != nil {
			select {
			case <-opened.Ended():
			case <-s.Exited():
				return
			}
			opened.Close()
		}
		pause := time.NewTimer(reopenAfter)
		select {
		case <-pause.C:
		case <-s.Exited():
			pause.Stop()
			return
		}
		if _, ended := i.network.current(); ended {
			return
		}
		policy := i.network.decided()
		again, err := s.openNetwork(context.Background(), out, policy, i.logger)
		if err != nil {
			i.logger.Debug("the network of an instance is not open again yet", "instance", i.ID, "error", err)
			continue
		}
		if !i.network.keep(s, out, again, policy) {
			again.Close()
			return
		}
		opened = again
		i.catchUpNetwork(context.Background())
	}
}

// reopenNetwork opens the network of an instance that is in another sandbox than before, if it
// has one.
func (i *instance) reopenNetwork(ctx context.Context) {
	i.network.changing.Lock()
	defer i.network.changing.Unlock()
	out, ended := i.network.current()
	if out == nil || ended {
		return
	}
	s, policy := i.sandbox(), i.network.decided()
	opened, err := s.openNetwork(ctx, out, policy, i.logger)
	switch {
	case err != nil:
		i.logger.Debug("the network of an instance is not open again yet", "instance", i.ID, "error", err)
		opened = nil
	case !i.network.keep(s, out, opened, policy):
		opened.Close()
		return
	}
	go i.keepOpen(s, out, opened)
}

// catchUpNetwork tells the guest of a policy that was put in force when it could not be told.
func (i *instance) catchUpNetwork(ctx context.Context) {
	i.network.changing.Lock()
	defer i.network.changing.Unlock()
	i.tellNetwork(ctx)
}

// tellNetwork has the guest listen for the policy in force, unless it is paused or does so
// already. Its caller holds changing.
func (i *instance) tellNetwork(ctx context.Context) {
	opened, policy := i.network.untold()
	if opened == nil {
		return
	}
	done, err := i.use()
	if err != nil {
		return
	}
	defer done()
	bounded, cancel := context.WithTimeoutCause(ctx, guestcalls.AnswerBound, guestcalls.ErrNoAnswer)
	defer cancel()
	if err := opened.Allow(bounded, reachable(policy)); err != nil {
		i.logger.Debug("programs of an instance do not find what its network allows by its name", "instance", i.ID, "error", err)
		return
	}
	i.network.tell(opened, policy)
}

// reachable are the names of a policy that programs can find. To an address of another machine
// no program comes without a proxy: a sandbox has no route.
func reachable(policy *sdk.NetworkPolicy) []guestclient.Reachable {
	var all []guestclient.Reachable
	for _, r := range policy.Rules {
		if _, err := netip.ParseAddr(r.Host); err != nil {
			all = append(all, guestclient.Reachable{Host: r.Host, Ports: networkpolicy.Ports(r)})
		}
	}
	return all
}

// openNetwork has the guest bring connections of its programs.
func (s *sandbox) openNetwork(ctx context.Context, out *gateway.Instance, policy *sdk.NetworkPolicy, logger hclog.Logger) (*guestclient.Network, error) {
	own, err := out.Certificates()
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, guestcalls.AnswerBound, guestcalls.ErrNoAnswer)
	defer cancel()
	opened, err := s.guest.OpenNetwork(bounded, append(append([]byte{}, gateway.SystemRoots()...), own...), reachable(policy), connections{out})
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	if err == nil && opened.Nameless != "" {
		logger.Debug("programs of a sandbox do not find what its network allows by its name", "sandbox", s.ID, "error", fmt.Sprintf("%.200q", opened.Nameless))
	}
	return opened, err
}

// withNetwork adds what programs need to know of the network to an environment.
func (i *instance) withNetwork(env map[string]string) map[string]string {
	all := i.network.environment()
	if all == nil {
		return env
	}
	maps.Copy(all, env)
	return all
}
