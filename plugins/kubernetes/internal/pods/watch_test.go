package pods_test

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
)

// A controller makes a pod again by the same name. A watch that broke meanwhile tells of it as
// of a change.
func TestAnotherPodOfTheSameNameIsTheEndOfTheFirst(t *testing.T) {
	client := fake.NewClientset()
	labels, _ := pods.Marks("owner", "authority")
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: uid, Labels: labels}}
	}
	_, err := client.CoreV1().Pods("ns").Create(t.Context(), pod("first"), metav1.CreateOptions{})
	assert.NilError(t, err)
	store, err := pods.Open(t.Context(), pods.Options{Client: client, Namespace: "ns", Owner: "owner", Holder: "holder", Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	defer store.Close()
	type told struct {
		uid    types.UID
		ending *pods.Ending
	}
	all := make(chan told, 10)
	store.OnChange(func(pod *corev1.Pod, ending *pods.Ending) { all <- told{pod.UID, ending} })
	first, second := pods.Ref{Name: "i", Pod: "pod", UID: "first"}, pods.Ref{Name: "i", Pod: "pod", UID: "second"}
	assert.Assert(t, store.EndingOf(first) == nil)

	_, err = client.CoreV1().Pods("ns").Update(t.Context(), pod("second"), metav1.UpdateOptions{})
	assert.NilError(t, err)
	_, err = store.Await(t.Context(), "pod", "first", func(*corev1.Pod) (bool, error) { return false, nil })
	gone, ok := errors.AsType[*pods.GoneError](err)
	assert.Assert(t, ok && gone.Last.UID == "first", "%v", err)
	for {
		if one := <-all; one.uid == "first" && one.ending != nil { // it may be told of as it was, before
			break
		}
	}
	assert.Assert(t, store.EndingOf(first).Asked)
	assert.Assert(t, store.EndingOf(second) == nil)
	goes, err := store.KnownToGo(t.Context(), second)
	assert.Assert(t, err == nil && goes)
	goes, err = store.KnownToGo(t.Context(), first)
	assert.Assert(t, err == nil && !goes)
	got, err := store.Await(t.Context(), "pod", "second", func(*corev1.Pod) (bool, error) { return true, nil })
	assert.Assert(t, err == nil && got.UID == "second")
	assert.NilError(t, store.AwaitGone(t.Context(), pods.Ref{Pod: "pod", UID: "long ago"}))
}
