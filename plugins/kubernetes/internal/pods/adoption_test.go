package pods_test

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// taken is a pod that an owner has taken.
func taken(name, owner string) *corev1.Pod {
	labels, annotations := pods.Marks(owner, "authority")
	labels[pods.LabelInstance] = "i"
	annotations["sandbox-broker.io/labels"] = `{"` + sdk.LabelBroker + `":"dead","` + sdk.LabelTenant + `":"acme"}`
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "uid", ResourceVersion: "1", Labels: labels, Annotations: annotations}}
}

// storeOf is the store of the owner "mine", whose watch says nothing after its beginning.
func storeOf(t *testing.T, there ...runtime.Object) (*pods.Store, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(there...)
	client.PrependWatchReactor("pods", func(ktesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	store, err := pods.Open(t.Context(), pods.Options{Client: client, Namespace: "ns", Owner: "mine", Holder: "holder", Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	t.Cleanup(store.Close)
	return store, client
}

func ownerOf(t *testing.T, client *fake.Clientset, name string) string {
	t.Helper()
	pod, err := client.CoreV1().Pods("ns").Get(t.Context(), name, metav1.GetOptions{})
	assert.NilError(t, err)
	return pod.Labels[pods.LabelOwner]
}

func TestWhatAnotherOwnerHasTakenIsAdopted(t *testing.T) {
	waiting, ended := taken("waiting", "dead"), taken("ended", "dead")
	delete(waiting.Labels, pods.LabelInstance)
	ended.Status.Phase = corev1.PodFailed
	store, client := storeOf(t, taken("instance", "dead"), taken("own", "mine"), taken("others", "other"), waiting, ended)
	found, err := store.TakenBy(t.Context(), "dead")
	assert.NilError(t, err)
	assert.Assert(t, is.Len(found, 1))
	assert.Equal(t, found[0].Name, "instance")

	fine := func(*corev1.Pod) error { return nil }
	refusal := errors.New("it is of no use")
	_, err = store.Adopt(t.Context(), "instance", "dead", "heir", func(*corev1.Pod) error { return refusal })
	assert.ErrorIs(t, err, refusal)
	assert.Equal(t, ownerOf(t, client, "instance"), "dead")
	for range 2 {
		adopted, err := store.Adopt(t.Context(), "instance", "dead", "heir", fine)
		assert.NilError(t, err)
		assert.Assert(t, adopted)
	}
	assert.Equal(t, ownerOf(t, client, "instance"), "mine")
	i, err := store.Find(t.Context(), "instance")
	assert.NilError(t, err)
	assert.DeepEqual(t, i.Labels, map[string]string{sdk.LabelBroker: "heir", sdk.LabelTenant: "acme"})
	assert.Equal(t, i.Authority, "authority")

	for name, want := range map[string]bool{"own": true, "others": false, "waiting": false, "ended": false, "absent": false} {
		adopted, err := store.Adopt(t.Context(), name, "dead", "heir", fine)
		assert.NilError(t, err)
		assert.Equal(t, adopted, want, name)
	}
	assert.Equal(t, ownerOf(t, client, "others"), "other")
}

// Two adopt a pod at once: it changes after one of them has looked at it.
func TestWhoIsLateDoesNotAdopt(t *testing.T) {
	store, client := storeOf(t, taken("instance", "dead"))
	client.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		// The API server's answer where a test of the patch fails.
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "instance", nil)
	})
	adopted, err := store.Adopt(t.Context(), "instance", "dead", "heir", func(*corev1.Pod) error {
		_, err := client.CoreV1().Pods("ns").Update(t.Context(), taken("instance", "other"), metav1.UpdateOptions{})
		return err
	})
	assert.NilError(t, err)
	assert.Assert(t, !adopted)
	assert.Equal(t, ownerOf(t, client, "instance"), "other")
}

// The watch is a moment old: what it has not told of yet decides.
func TestOnlyWhatIsStillItsOwnersIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		owner   string
		deleted bool
	}{
		"the kubelet has written to it":  {"mine", true},
		"another owner has it meanwhile": {"other", false},
	} {
		t.Run(name, func(t *testing.T) {
			store, client := storeOf(t, taken("instance", "mine"))
			now := taken("instance", c.owner)
			now.ResourceVersion = "2"
			_, err := client.CoreV1().Pods("ns").Update(t.Context(), now, metav1.UpdateOptions{})
			assert.NilError(t, err)
			client.PrependReactor("delete", "pods", func(action ktesting.Action) (bool, runtime.Object, error) {
				is := action.(ktesting.DeleteActionImpl).DeleteOptions.Preconditions
				if *is.UID != "uid" || *is.ResourceVersion != "2" {
					return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "instance", errors.New("the precondition failed"))
				}
				return false, nil, nil
			})
			assert.NilError(t, store.Remove(t.Context(), pods.Ref{Name: "instance", Pod: "instance", UID: "uid"}))
			_, err = client.CoreV1().Pods("ns").Get(t.Context(), "instance", metav1.GetOptions{})
			assert.Equal(t, apierrors.IsNotFound(err), c.deleted)
		})
	}
}
