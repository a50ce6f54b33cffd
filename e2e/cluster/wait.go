package cluster

import (
	"context"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// WaitFor waits until the check finds nothing amiss, and fails the test with what it found
// last.
func (c *Cluster) WaitFor(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := check(ctx); err != nil {
			return poll.Continue("%s: %v", what, err)
		}
		return poll.Success()
	}, poll.WithTimeout(patience), poll.WithDelay(50*time.Millisecond))
}

// WaitForPod waits until a pod satisfies the condition, and returns it as it is then.
func (c *Cluster) WaitForPod(t testing.TB, namespace, name string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return poll.Continue("pod %s: %v", name, err)
		case !condition(got):
			return poll.Continue("pod %s is %s: %+v", name, got.Status.Phase, got.Status)
		}
		pod = got
		return poll.Success()
	}, poll.WithTimeout(patience), poll.WithDelay(50*time.Millisecond))
	return pod
}

// WaitForEvent waits for an event about an object, and returns it.
func (c *Cluster) WaitForEvent(t testing.TB, namespace, name, reason string) *corev1.Event {
	t.Helper()
	var event *corev1.Event
	options := metav1.ListOptions{FieldSelector: fields.Set{"involvedObject.name": name, "reason": reason}.String()}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		events, err := c.Client.CoreV1().Events(namespace).List(ctx, options)
		if err != nil || len(events.Items) == 0 {
			return poll.Continue("no event %s about %s: %v", reason, name, err)
		}
		event = &events.Items[0]
		return poll.Success()
	}, poll.WithTimeout(patience), poll.WithDelay(50*time.Millisecond))
	return event
}

// Run creates a pod and waits until it is ready.
func (c *Cluster) Run(t testing.TB, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	assert.NilError(t, err)
	return c.WaitForPod(t, namespace, created.Name, Ready)
}

// Ready says whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Condition returns a condition of a pod, nil if it has none of this type.
func Condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
