package netpolicy_test

import (
	"context"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/netpolicy"
)

// An API server compares versions, which this fake does not: that is seen on a cluster.

const name = "policy"

func options(client kubernetes.Interface, holder string, egress int) netpolicy.Options {
	return netpolicy.Options{
		Client: client, Namespace: "ns", Name: name, Labels: map[string]string{"owner": "o"}, Holder: holder,
		Spec: networkingv1.NetworkPolicySpec{Egress: make([]networkingv1.NetworkPolicyEgressRule, egress)},
	}
}

func get(t *testing.T, client kubernetes.Interface) *networkingv1.NetworkPolicy {
	t.Helper()
	found, err := client.NetworkingV1().NetworkPolicies("ns").Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	assert.NilError(t, err)
	return found
}

func nobody(context.Context) (bool, error)   { return false, nil }
func somebody(context.Context) (bool, error) { return true, nil }

func TestAPolicyIsKeptAsItShouldBe(t *testing.T) {
	client := fake.NewClientset()
	k, err := netpolicy.Take(t.Context(), options(client, "first", 1))
	assert.NilError(t, err)
	policies := client.NetworkingV1().NetworkPolicies("ns")

	changed := get(t, client)
	changed.Spec.Egress = nil
	_, err = policies.Update(t.Context(), changed, metav1.UpdateOptions{})
	assert.NilError(t, err)
	assert.NilError(t, k.Ensure(t.Context()))
	assert.Check(t, is.Len(get(t, client).Spec.Egress, 1))

	assert.NilError(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
	assert.NilError(t, k.Ensure(t.Context()))
	assert.Check(t, is.Len(get(t, client).Spec.Egress, 1))

	assert.NilError(t, k.Release(t.Context(), somebody))
	assert.Check(t, get(t, client) != nil)
	assert.NilError(t, k.Release(t.Context(), nobody))
	assert.Check(t, get(t, client) == nil)
	assert.NilError(t, k.Release(t.Context(), nobody))
}

func TestTheLastWhoTookItHasIt(t *testing.T) {
	client := fake.NewClientset()
	first, err := netpolicy.Take(t.Context(), options(client, "first", 1))
	assert.NilError(t, err)
	second, err := netpolicy.Take(t.Context(), options(client, "second", 2))
	assert.NilError(t, err)
	assert.NilError(t, first.Ensure(t.Context()))
	assert.Check(t, is.Len(get(t, client).Spec.Egress, 2))
	assert.NilError(t, first.Release(t.Context(), nobody))
	assert.Check(t, get(t, client) != nil)
	assert.NilError(t, second.Release(t.Context(), nobody))
	assert.Check(t, get(t, client) == nil)
}

func TestAPolicyOfSomebodyElseStays(t *testing.T) {
	client := fake.NewClientset(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"owner": "another"}}})
	_, err := netpolicy.Take(t.Context(), options(client, "first", 1))
	assert.ErrorContains(t, err, "somebody else's")
	assert.Check(t, is.Equal(get(t, client).Labels["owner"], "another"))
}
