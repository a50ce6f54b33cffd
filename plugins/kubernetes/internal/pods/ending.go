package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Ending is why a pod does not run any more.
type Ending struct {
	// OutOfMemory says that it took more memory than it has.
	OutOfMemory bool
	// Asked says that somebody asked for its end, and gave no reason.
	Asked bool
	// Reason is Kubernetes' own, and Message its text.
	Reason, Message string
}

func (e *Ending) String() string {
	return strings.TrimRight(fmt.Sprintf("%s: %.300s", e.Reason, e.Message), ": ")
}

// Reasons of Kubernetes' own.
const (
	reasonOutOfMemory = "OOMKilled"
	reasonDeleted     = "Deleted"
)

// Ended says why a pod has ended, or is about to; nil if it goes on. A pod that is being
// evicted or preempted says so.
func Ended(pod *corev1.Pod) *Ending {
	for _, status := range pod.Status.ContainerStatuses {
		if t := status.State.Terminated; status.Name == ContainerName && t != nil {
			if t.Reason == reasonOutOfMemory {
				return &Ending{OutOfMemory: true, Reason: t.Reason, Message: t.Message}
			}
			if pod.Status.Reason == "" && pod.DeletionTimestamp == nil {
				return &Ending{Reason: t.Reason, Message: fmt.Sprintf("exit code %d %s", t.ExitCode, t.Message)}
			}
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			return &Ending{Reason: condition.Reason, Message: condition.Message}
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		reason := pod.Status.Reason
		if reason == "" {
			reason = string(pod.Status.Phase)
		}
		return &Ending{Reason: reason, Message: pod.Status.Message}
	case pod.DeletionTimestamp != nil:
		return &Ending{Asked: true, Reason: reasonDeleted}
	}
	return nil
}

// Running says whether a pod's container runs and can be reached. The error says why it
// never will: nobody is kept waiting for what does not come by itself.
func Running(pod *corev1.Pod) (bool, error) {
	if ending := Ended(pod); ending != nil {
		return false, sdk.Errorf(sdk.CodeCreateFailed, "the pod ended before it was ready: %s", ending)
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := status.State.Waiting; w != nil && hopeless[w.Reason] {
			return false, sdk.Errorf(sdk.CodeCreateFailed, "the image %.200s cannot be used: %s: %.300s", status.Image, w.Reason, w.Message)
		}
		if t := status.State.Terminated; t != nil && t.ExitCode != 0 {
			return false, sdk.Errorf(sdk.CodeCreateFailed, "the container %s of the pod failed: %s, exit code %d: %.300s", status.Name, t.Reason, t.ExitCode, t.Message)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == ContainerName && status.State.Running != nil && pod.Status.PodIP != "" {
			return true, nil
		}
	}
	return false, nil
}

// hopeless are reasons for waiting that pass only when somebody does something.
var hopeless = map[string]bool{
	"ErrImagePull": true, "ImagePullBackOff": true, "InvalidImageName": true, "ErrImageNeverPull": true, "ImageInspectError": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "CrashLoopBackOff": true,
}

// Waiting says in Kubernetes' own words what a pod waits for; "" if it says nothing.
func Waiting(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s: %.300s", condition.Reason, condition.Message)
		}
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if w := status.State.Waiting; w != nil && w.Reason != "" {
			return strings.TrimRight(fmt.Sprintf("%s: %.300s", w.Reason, w.Message), ": ")
		}
	}
	return ""
}

// Unschedulable says whether no node has room for a pod.
func Unschedulable(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}
