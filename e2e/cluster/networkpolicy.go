package cluster

import (
	"context"
	"os/exec"
	"testing"

	"gotest.tools/v3/assert"
)

const kubeRouter = "kube-router"

// EnforceNetworkPolicies has network policies enforced, by kube-router, for as long as the
// test takes. That a policy was created does not mean that it works yet: rules follow within
// a second, those of a new pod too.
//
// There is one cluster, so that no other test may run meanwhile that counts on the contrary.
func (c *Cluster) EnforceNetworkPolicies(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		c.stop(t, kubeRouter)
		// It leaves its rules.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		const remove = `iptables-save | grep -v -e KUBE-ROUTER -e KUBE-NWPLCY -e KUBE-POD-FW | iptables-restore`
		out, err := exec.CommandContext(ctx, "sh", "-c", remove).CombinedOutput()
		assert.Check(t, err, "%s", out)
	})
	c.start(t, kubeRouter)
}
