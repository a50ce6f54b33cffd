package pods_test

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
)

func TestADigestIsALabelWhateverItIsOf(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]{1,63}$`)
	seen := map[string]bool{}
	for _, parts := range [][]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc"}, {"x", strings.Repeat("ü/ ", 100)}} {
		digest := pods.Digest(parts...)
		assert.Assert(t, form.MatchString(digest), "%q", digest)
		assert.Assert(t, !seen[digest], "%q", parts)
		seen[digest] = true
	}
}

// container is a pod whose sandbox is in a state.
func container(state corev1.ContainerState) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: pods.ContainerName, State: state}}}}
}

func TestWhyAPodEnds(t *testing.T) {
	failed := func(reason, message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}}
	}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	preempted := deleted.DeepCopy()
	preempted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "for another pod"}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want *pods.Ending
	}{
		"it runs":          {container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), nil},
		"out of memory":    {container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}), &pods.Ending{OutOfMemory: true, Reason: "OOMKilled"}},
		"the guest ended":  {container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}), &pods.Ending{Reason: "Error", Message: "exit code 2 "}},
		"evicted":          {failed("Evicted", "the node was low on memory"), &pods.Ending{Reason: "Evicted", Message: "the node was low on memory"}},
		"failed":           {failed("", ""), &pods.Ending{Reason: "Failed"}},
		"deleted":          {deleted, &pods.Ending{Asked: true, Reason: "Deleted"}},
		"preempted":        {preempted, &pods.Ending{Reason: "PreemptionByScheduler", Message: "for another pod"}},
		"not yet anything": {&corev1.Pod{}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.DeepEqual(t, pods.Ended(test.pod), test.want) })
	}
}

func TestWhatIsWaitedForInVain(t *testing.T) {
	waiting := func(reason string) *corev1.Pod {
		return container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}})
	}
	running, err := pods.Running(container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}))
	assert.Assert(t, running && err == nil)
	for _, reason := range []string{"ContainerCreating", "PodInitializing", ""} {
		running, err := pods.Running(waiting(reason))
		assert.Assert(t, !running && err == nil, reason)
	}
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"} {
		_, err := pods.Running(waiting(reason))
		assert.ErrorContains(t, err, reason)
	}
}
