package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// TakenBy returns the pods that another owner has taken and that go on, whole, as the API server
// has them now.
func (s *Store) TakenBy(ctx context.Context, owner string) ([]*corev1.Pod, error) {
	return s.listOf(ctx, owner, func(pod *corev1.Pod) bool { return IsInstance(pod) && Ended(pod) == nil })
}

// Adopt makes a pod that another owner has taken this one's, if may has nothing against it, and
// has its labels name the broker. From then on it is not in the watch of the other owner, which
// ends no pod that is not its own. It returns false for a pod that is not there, has ended or is
// yet another owner's, and true for one that is this one's already.
func (s *Store) Adopt(ctx context.Context, name, from, broker string, may func(*corev1.Pod) error) (adopted bool, err error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case !IsInstance(pod) || Ended(pod) != nil:
		return false, nil
	case pod.Labels[LabelOwner] == s.o.Owner:
		return true, nil
	case pod.Labels[LabelOwner] != from:
		return false, nil
	}
	if err := may(pod); err != nil {
		return false, err
	}
	of := map[string]string{}
	maps.Copy(of, instanceOf(pod).Labels)
	of[sdk.LabelBroker] = broker
	text, err := json.Marshal(of)
	if err != nil {
		return false, fmt.Errorf("write labels: %w", err)
	}
	// The API server compares and writes at once: of all who adopt it one does, and none that is
	// not as it was looked at. A version would be another one whenever the kubelet writes.
	_, err = s.patch(ctx, name, []Operation{
		{"test", "/metadata/uid", string(pod.UID)},
		{"test", LabelPath(LabelOwner), from},
		{"replace", LabelPath(LabelOwner), s.o.Owner},
		{"add", AnnotationPath(annotationLabels), string(text)},
	})
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) { // it has changed meanwhile
		found, err := s.Find(ctx, name)
		return found != nil, err
	}
	return err == nil, err
}

// owned returns a pod by the API server's own word, nil if there is none or it is not this
// owner's any more.
func (s *Store) owned(ctx context.Context, name, uid string) (*corev1.Pod, error) {
	pod, err := s.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case string(pod.UID) != uid || pod.Labels[LabelOwner] != s.o.Owner:
		return nil, nil
	}
	return pod, nil
}
