// Package netpolicy keeps the one network policy of a provider block: it makes it, makes it
// again where somebody removes it, and removes it when nobody needs it. What the policy
// allows, and which pods it is for, is the provider's matter; whether the cluster's network
// enforces it nobody here knows.
package netpolicy

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	networkingv1client "k8s.io/client-go/kubernetes/typed/networking/v1"
)

// annotationHolder is the process that made the policy as it is, or took it over: that one
// alone removes it.
const annotationHolder = "sandbox-broker.io/holder"

// Options of a Keeper.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Name is the policy's, which is this owner's alone.
	Name string
	// Labels are the policy's, by which it is known to be this owner's.
	Labels map[string]string
	// Holder is this process.
	Holder string
	Spec   networkingv1.NetworkPolicySpec
}

// Keeper keeps a policy.
type Keeper struct {
	o        Options
	policies networkingv1client.NetworkPolicyInterface
}

// Take makes the policy, or takes over the one of an earlier process of the same owner.
func Take(ctx context.Context, o Options) (*Keeper, error) {
	k := &Keeper{o: o, policies: o.Client.NetworkingV1().NetworkPolicies(o.Namespace)}
	return k, k.write(ctx, func(*networkingv1.NetworkPolicy) bool { return true })
}

// Ensure makes the policy again if somebody has removed or changed it. One that a later
// process has taken over stays as that one wants it.
func (k *Keeper) Ensure(ctx context.Context) error {
	return k.write(ctx, func(found *networkingv1.NetworkPolicy) bool { return found.Annotations[annotationHolder] == k.o.Holder })
}

// attempts are how often a write is tried that another one comes before.
const attempts = 5

// write makes the policy, or changes the one that is there if it may be changed.
func (k *Keeper) write(ctx context.Context, may func(*networkingv1.NetworkPolicy) bool) (err error) {
	for range attempts {
		var found *networkingv1.NetworkPolicy
		found, err = k.policies.Get(ctx, k.o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = k.policies.Create(ctx, k.policy(metav1.ObjectMeta{Name: k.o.Name}), metav1.CreateOptions{})
		case err != nil:
			return err
		case !k.ours(found):
			return fmt.Errorf("the network policy %s is somebody else's", k.o.Name)
		case !may(found):
			return nil
		default:
			_, err = k.policies.Update(ctx, k.policy(found.ObjectMeta), metav1.UpdateOptions{})
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

// policy is the policy as it shall be, in the place of that one. An update that changes
// nothing writes nothing.
func (k *Keeper) policy(meta metav1.ObjectMeta) *networkingv1.NetworkPolicy {
	meta = *meta.DeepCopy()
	for name, value := range k.o.Labels {
		metav1.SetMetaDataLabel(&meta, name, value)
	}
	metav1.SetMetaDataAnnotation(&meta, annotationHolder, k.o.Holder)
	return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: *k.o.Spec.DeepCopy()}
}

func (k *Keeper) ours(found *networkingv1.NetworkPolicy) bool {
	for name, value := range k.o.Labels {
		if found.Labels[name] != value {
			return false
		}
	}
	return true
}

// Release removes the policy, unless it is in use or a later process has taken it over, also
// at this moment.
func (k *Keeper) Release(ctx context.Context, inUse func(context.Context) (bool, error)) error {
	found, err := k.policies.Get(ctx, k.o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case !k.ours(found) || found.Annotations[annotationHolder] != k.o.Holder:
		return nil
	}
	// Read before the pods: who takes the policy over writes it, and makes pods after that.
	if used, err := inUse(ctx); err != nil || used {
		return err
	}
	unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID, ResourceVersion: &found.ResourceVersion}}
	err = k.policies.Delete(ctx, k.o.Name, unchanged)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
