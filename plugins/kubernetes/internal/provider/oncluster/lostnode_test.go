package oncluster_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// podNetwork are the addresses of the node's pods.
const podNetwork = "10.244.0.0/24"

// cutNetwork has nothing pass between this machine and the pods, without a word, until the
// returned function is called.
func cutNetwork(t *testing.T) (mend func()) {
	t.Helper()
	iptables := func(ctx context.Context, do string) {
		out, err := exec.CommandContext(ctx, "iptables", do, "OUTPUT", "-d", podNetwork, "-j", "DROP").CombinedOutput()
		assert.Check(t, err, "%s", out)
	}
	iptables(t.Context(), "-I")
	cut := true
	mend = func() {
		if cut {
			iptables(context.WithoutCancel(t.Context()), "-D")
			cut = false
		}
	}
	t.Cleanup(mend)
	return mend
}

// A node that is lost, and comes back before Kubernetes gives up its pods.
func TestANodeThatIsLostForAMoment(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	p := begin(t, t.TempDir(), "lost", given(c, c.Namespace(t, privileged), map[string]any{"create_timeout": "10s"}))
	busy, ended, idle := create(t, p, nil), create(t, p, nil), create(t, p, nil)
	assert.Equal(t, p.run(t, idle, sdk.Bash, "echo mine > /workspace/file"), "")

	runs, result := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: busy, Language: sdk.Bash, Code: "echo begun; sleep 1000", Timeout: 10 * time.Minute, OutputLimit: 1 << 20},
			told(func() { close(runs) }))
		result <- err
	}()
	<-runs
	mend := cutNetwork(t)
	c.StopNode(t)
	err := <-result
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
	assert.Check(t, is.ErrorContains(err, "the connection to the sandbox broke"))
	for range 2 { // the broker tries again
		began := time.Now()
		err := p.Destroy(t.Context(), ended)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable, "%v", err)
		assert.Check(t, is.ErrorContains(err, "the kubelet of its node may not answer"))
		assert.Check(t, time.Since(began) >= 30*time.Second)
	}
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded, "%v", err)
	listed, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 2), "what ends is not listed")

	mend()
	c.StartNode(t)
	assert.NilError(t, p.Destroy(t.Context(), ended))
	assert.Equal(t, p.run(t, idle, sdk.Bash, "cat /workspace/file"), "mine\n")
	assert.Equal(t, p.run(t, busy, sdk.Bash, "echo well"), "well\n")
	for _, id := range []string{idle, busy} {
		assert.NilError(t, p.Destroy(t.Context(), id))
	}
	left(t, c, p.namespace, "lost")
}
