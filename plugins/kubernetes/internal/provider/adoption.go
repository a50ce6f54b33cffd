package provider

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Plain pods are adopted. Claims are not: agent-sandbox's controller writes the labels of their
// pods, and would write those of the dead broker again.
var _ sdk.Adopter = (*Provider)(nil)

// adopted is about the instances of other brokers.
type adopted struct {
	// confining is held by who adopts, and alone by who removes the network policy.
	confining sync.RWMutex

	mu sync.Mutex
	// released are instances that other brokers have by now, whatever they carry.
	released map[string]bool
	// said is what the operator was told.
	said map[string]bool
}

func (a *adopted) isReleased(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.released[id]
}

func (a *adopted) setReleased(id string, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released == nil {
		a.released = map[string]bool{}
	}
	if is {
		a.released[id] = true
	} else {
		delete(a.released, id)
	}
}

// isNew says whether the operator was not told something before.
func (a *adopted) isNew(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil {
		a.said = map[string]bool{}
	}
	before := a.said[what]
	a.said[what] = true
	return !before
}

// ListOf implements sdk.Adopter. What could not go on here is not listed.
func (p *Provider) ListOf(ctx context.Context, brokerID string) ([]sdk.Instance, error) {
	found, err := p.store.TakenBy(ctx, pods.OwnerOf(brokerID, p.label))
	if err != nil {
		return nil, explainAPI(ctx, err, sdk.CodeUnavailable, "list the pods of another broker")
	}
	var all []sdk.Instance
	for _, pod := range found {
		if why := p.maker.cannotServe(pod); why != nil {
			if p.adopted.isNew(brokerID + " " + why.Error()) {
				p.logger.Warn("instances of a dead broker cannot be adopted", "broker", brokerID, "reason", why)
			}
			continue
		}
		all = append(all, p.described(pods.Described(pod, pod.Name, string(pod.UID))))
	}
	return all, nil
}

// cannotServe says why another broker's instance would be of no use here, or be confined by
// nothing; nil if there is no such reason.
func (m *maker) cannotServe(pod *corev1.Pod) error {
	if _, ok := m.keys.of(pods.Described(pod, pod.Name, string(pod.UID)).Authority); !ok {
		return errors.New("they were made with another secret: give these brokers the same one in the setting secret")
	}
	if m.ahead != nil { // it may have no right to change pods
		return errors.New("they are plain pods, and agent-sandbox makes those of this broker: give these brokers the same mode")
	}
	if m.policy == nil && !isWithoutNetwork(pod) {
		return errors.New("they have the network of their pods, for which this broker keeps no policy: give these brokers the same network")
	}
	return nil
}

// isWithoutNetwork says whether the guest of a pod gives what it starts a network that leads
// nowhere.
func isWithoutNetwork(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == pods.ContainerName && slices.Contains(c.Env, corev1.EnvVar{Name: guest.NetworkVariable, Value: guest.NetworkNone})
	})
}

// adoptTime bounds an adoption, for which the end of the provider waits.
const adoptTime = 10 * time.Second

// Adopt implements sdk.Adopter.
func (p *Provider) Adopt(ctx context.Context, instanceID, brokerID string) error {
	if !nameForm20.MatchString(instanceID) {
		return errNoInstance
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	// The policy is there before the pod is this broker's, and stays from then on.
	p.adopted.confining.RLock()
	defer p.adopted.confining.RUnlock()
	if p.life.Err() != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "the provider is being closed")
	}
	adopted, err := p.store.Adopt(ctx, instanceID, pods.OwnerOf(brokerID, p.label), p.brokerID, func(pod *corev1.Pod) error {
		if why := p.maker.cannotServe(pod); why != nil {
			return sdk.Errorf(sdk.CodeNotFound, "the instance cannot be adopted: %w", why)
		}
		if p.maker.policy != nil {
			return p.maker.policy.Ensure(ctx)
		}
		return nil
	})
	switch {
	case err != nil:
		return explainAPI(ctx, err, sdk.CodeUnavailable, "adopt the pod")
	case !adopted:
		return errNoInstance
	}
	p.adopted.setReleased(instanceID, false)
	return nil
}

// Release implements sdk.Adopter. The new owner may not have written to the pod yet.
func (p *Provider) Release(_ context.Context, instanceID string) error {
	p.adopted.setReleased(instanceID, true)
	if i := p.take(instanceID); i != nil {
		i.end(&pods.Ending{Asked: true, Reason: "Deleted"}) // here, for whoever waits for it
		p.maker.forget(i.sandbox)
		if i.pooled {
			p.release()
		}
	}
	return nil
}

// leasePause is how often it is seen whether the lease was renewed.
const leasePause = 200 * time.Millisecond

// awaitLease waits until the lease holds that ctx has, and returns false if ctx ends before. The
// provider ends nothing by itself without the lease of its broker, for it may be another one's by
// then. The plugin of a broker that is well may not have heard of a renewal for a moment.
func awaitLease(ctx context.Context) bool {
	for sdk.LeaseOf(ctx).Held() != nil {
		select {
		case <-time.After(leasePause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
