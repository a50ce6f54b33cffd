package oncluster_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A broker that is gone for ever leaves no pods that run, but for instances whose time is not
// over.
func TestPodsThatNobodyConnectsToEnd(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	running := func() map[string]bool {
		found, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		assert.NilError(t, err)
		names := map[string]bool{}
		for _, pod := range found.Items {
			names[pod.Name] = true
		}
		return names
	}
	runs := func(n int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if running := running(); len(running) != n {
				return poll.Continue("%v run", running)
			}
			return poll.Success()
		}, poll.WithTimeout(5*time.Minute), poll.WithDelay(time.Second))
	}
	plugin, state := startSeparate(t), t.TempDir()
	plugin.do(t, order{StateDir: state, Configure: given(c, namespace, map[string]any{"pool_size": 1, "abandoned_after": "2m"})})
	short := plugin.do(t, order{Create: 2, TTL: 90 * time.Second}).IDs
	all := plugin.do(t, order{Create: 1, TTL: time.Hour, Extend: short[:1]}).IDs
	assert.Assert(t, is.Len(all, 3))
	lasting := map[string]bool{short[0]: true, all[2]: true}
	runs(4) // with that of the pool
	plugin.kill(t)
	runs(len(lasting))
	assert.DeepEqual(t, running(), lasting)

	next := begin(t, state, "scale", given(c, namespace, nil))
	for id := range lasting {
		assert.Equal(t, next.run(t, id, sdk.Bash, "echo here"), "here\n")
		assert.NilError(t, next.Destroy(t.Context(), id))
	}
	left(t, c, namespace, "scale")
}
