package provider

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const heirSecret = "a secret that is no secret, as it is in a test"

// heirOf is the provider of a broker "heir" with the label "kubernetes".
func heirOf(t *testing.T, client *fake.Clientset, given map[string]any) (p *Provider, log *bytes.Buffer) {
	t.Helper()
	log = &bytes.Buffer{}
	p = New(hclog.New(&hclog.LoggerOptions{Output: log})).(*Provider)
	p.brokerID, p.label = "heir", "kubernetes"
	assert.NilError(t, resolved(t, given).Decode(&p.settings))
	o := pods.Options{Client: client, Namespace: "sandboxes", Owner: pods.OwnerOf(p.brokerID, p.label), Holder: "h", Logger: p.logger}
	store, err := pods.Open(t.Context(), o)
	assert.NilError(t, err)
	t.Cleanup(store.Close)
	p.store, p.ways = store, []way{store}
	p.maker = &maker{settings: p.settings, store: store, keys: keyring{"sandboxes", [][]byte{[]byte(heirSecret)}}, logger: p.logger}
	assert.NilError(t, p.confine(t.Context(), o))
	return p, log
}

// deadPod is an instance that a dead broker has made with settings and a secret.
func deadPod(t *testing.T, name, secret string, given map[string]any) *corev1.Pod {
	t.Helper()
	var s settings
	assert.NilError(t, resolved(t, given).Decode(&s))
	authority, err := guestlink.Authority([]byte(secret), "sandboxes")
	assert.NilError(t, err)
	pod := s.pod(guestlink.Public(authority))
	pod.Name, pod.Namespace, pod.UID = name, "sandboxes", "uid"
	pods.Mark(pod, pods.OwnerOf("dead", "kubernetes"), "", "python", guestlink.Public(authority))
	pod.Labels[pods.LabelInstance] = "i"
	return pod
}

const (
	fits     = "sandbox-aaaaaaaaaaaaaaaaaaaa"
	stranger = "sandbox-bbbbbbbbbbbbbbbbbbbb"
	open     = "sandbox-cccccccccccccccccccc"
)

func TestWhatWouldBeOfNoUseOrUnconfinedIsNotAdopted(t *testing.T) {
	client := fake.NewClientset(deadPod(t, fits, heirSecret, nil), deadPod(t, stranger, "another secret that is not one, as in a test", nil), deadPod(t, open, heirSecret, pod(map[string]any{"cidr": "203.0.113.0/24"})))
	p, log := heirOf(t, client, nil)
	for range 2 {
		listed, err := p.ListOf(t.Context(), "dead")
		assert.NilError(t, err)
		assert.Assert(t, is.Len(listed, 1))
		assert.Equal(t, listed[0].ID, fits)
	}
	assert.Equal(t, bytes.Count(log.Bytes(), []byte("cannot be adopted")), 2, "each reason is said once: %s", log)
	for _, id := range []string{stranger, open, "sandbox-dddddddddddddddddddd", "../pods"} {
		assert.Equal(t, sdk.CodeOf(p.Adopt(t.Context(), id, "dead")), sdk.CodeNotFound, id)
	}
	assert.Equal(t, sdk.CodeOf(p.Adopt(t.Context(), fits, "alive")), sdk.CodeNotFound)
	p.maker.ahead = &ahead{}
	listed, err := p.ListOf(t.Context(), "dead")
	assert.NilError(t, err)
	assert.Check(t, is.Len(listed, 0), "where agent-sandbox makes the pods")
	p.maker.ahead = nil
	assert.NilError(t, p.Adopt(t.Context(), fits, "dead"))
	listed, err = p.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 1))
	assert.Equal(t, listed[0].Labels[sdk.LabelBroker], "heir")
}

// Somebody has removed the policy of the heir: the pod of the dead broker has one at each moment.
func TestThePolicyIsThereBeforeThePodIs(t *testing.T) {
	network := pod(map[string]any{"cidr": "203.0.113.0/24"})
	client := fake.NewClientset(deadPod(t, open, heirSecret, network))
	p, _ := heirOf(t, client, network)
	policies := client.NetworkingV1().NetworkPolicies("sandboxes")
	assert.NilError(t, policies.Delete(t.Context(), "sandbox-broker-"+pods.OwnerOf("heir", "kubernetes"), metav1.DeleteOptions{}))
	client.ClearActions()
	assert.NilError(t, p.Adopt(t.Context(), open, "dead"))
	var effects []string
	for _, action := range client.Actions() {
		if verb := action.GetVerb(); verb == "create" || verb == "patch" {
			effects = append(effects, verb+" "+action.GetResource().Resource)
		}
	}
	assert.DeepEqual(t, effects, []string{"create networkpolicies", "patch pods"})
	p.end()
	assert.Equal(t, sdk.CodeOf(p.Adopt(t.Context(), open, "dead")), sdk.CodeUnavailable, "nobody keeps the policy any more")
}

func TestWhatIsReleasedIsLeftAlone(t *testing.T) {
	own := deadPod(t, fits, heirSecret, nil)
	own.Labels[pods.LabelOwner] = pods.OwnerOf("heir", "kubernetes")
	own.Annotations["sandbox-broker.io/expires"] = time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
	client := fake.NewClientset(own)
	p, _ := heirOf(t, client, nil)
	assert.NilError(t, p.Release(t.Context(), fits))
	assert.NilError(t, p.Release(t.Context(), stranger))
	p.sweep()
	assert.NilError(t, p.Destroy(t.Context(), fits))
	_, err := client.CoreV1().Pods("sandboxes").Get(t.Context(), fits, metav1.GetOptions{})
	assert.NilError(t, err)
	assert.NilError(t, p.Adopt(t.Context(), fits, "heir"))
	p.sweep()
	left, err := client.CoreV1().Pods("sandboxes").List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	assert.Check(t, is.Len(left.Items, 0), "its time is over")
}

// fenced takes nothing without a lease.
type fenced struct{ way }

func (fenced) Take(ctx context.Context, _ pods.Ref, _ pods.Lease) (*pods.Instance, error) {
	return &pods.Instance{}, sdk.LeaseOf(ctx).Held()
}

// A pod may take longer than the lease lasts that came with the call.
func TestACreationWaitsForTheRenewalOfTheLease(t *testing.T) {
	lease := &sdk.Lease{}
	lease.Extend(1, 0)
	made := make(chan error, 1)
	go func() {
		_, err := take(sdk.WithLease(t.Context(), lease), &sandbox{way: fenced{}}, pods.Lease{})
		made <- err
	}()
	lease.Extend(1, time.Hour)
	assert.NilError(t, <-made)
	lease.Extend(2, 0)
	over, end := context.WithCancel(sdk.WithLease(t.Context(), lease))
	end()
	_, err := take(over, &sandbox{way: fenced{}}, pods.Lease{})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
}

// Without the lease what the provider knows may be another broker's.
func TestNothingIsEndedWithoutTheLease(t *testing.T) {
	own := deadPod(t, fits, heirSecret, nil)
	own.Labels[pods.LabelOwner] = pods.OwnerOf("heir", "kubernetes")
	own.Annotations["sandbox-broker.io/expires"] = time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
	client := fake.NewClientset(own)
	p, _ := heirOf(t, client, nil)
	lease := &sdk.Lease{}
	lease.Extend(1, 0)
	p.life = sdk.WithLease(p.life, lease)
	ended, end := context.WithCancel(p.life)
	end()
	assert.Assert(t, !awaitLease(ended))
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		p.sweep()
	}()
	_, err := client.CoreV1().Pods("sandboxes").Get(t.Context(), fits, metav1.GetOptions{})
	assert.NilError(t, err)
	lease.Extend(1, time.Hour)
	<-swept
	_, err = client.CoreV1().Pods("sandboxes").Get(t.Context(), fits, metav1.GetOptions{})
	assert.ErrorContains(t, err, "not found")
}
