package oncluster_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// One broker is cut off from the others, and its plugin is not: another one goes on with its
// instances, and the first one ends none of them, whatever it is asked.
func TestAnotherBrokerGoesOnWithPods(t *testing.T) {
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	settings := given(c, namespace, map[string]any{"mode": "pods", "secret": "what these brokers share, at least 32 characters"})
	first := begin(t, t.TempDir(), "first", settings)
	ids := make([]string, 3)
	var creating sync.WaitGroup
	for n := range ids {
		creating.Go(func() {
			i, err := first.Create(t.Context(), sdk.CreateRequest{Template: "python", Env: map[string]string{"SECRET": "of the instance"}, Labels: map[string]string{
				sdk.LabelTenant: "acme", sdk.LabelSession: "s", sdk.LabelInstance: "i", sdk.LabelBroker: "first",
			}})
			assert.Check(t, err)
			ids[n] = i.ID
		})
	}
	creating.Wait()
	assert.Assert(t, !t.Failed())
	adopted, raced, released := ids[0], ids[1], ids[2]
	goesOn := func(id string) {
		t.Helper()
		pod, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), id, metav1.GetOptions{})
		assert.NilError(t, err)
		assert.Assert(t, pod.DeletionTimestamp == nil)
	}

	// Its files, variables, commands and contexts are there through the other broker.
	assert.Equal(t, first.run(t, adopted, sdk.Bash, "echo mine > /workspace/file"), "")
	command, err := first.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: adopted, Argv: []string{"sleep", "1000"}})
	assert.NilError(t, err)
	within, err := first.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: adopted, Language: sdk.Python})
	assert.NilError(t, err)
	inContext := func(p process, code string) string {
		t.Helper()
		var r recorder
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: adopted, Language: sdk.Python, ContextID: within.ID, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
		assert.NilError(t, err)
		return r.out.String()
	}
	assert.Equal(t, inContext(first, "x = 41"), "")
	second, third := begin(t, t.TempDir(), "second", settings), begin(t, t.TempDir(), "third", settings)
	listed, err := second.ListOf(t.Context(), "first")
	assert.NilError(t, err)
	assert.Check(t, is.Len(listed, 3))
	assert.NilError(t, second.Adopt(t.Context(), adopted, "first"))
	assert.NilError(t, second.Adopt(t.Context(), adopted, "first"), "again")
	assert.Equal(t, second.run(t, adopted, sdk.Bash, "cat /workspace/file; echo $SECRET"), "mine\nof the instance\n")
	commands, err := second.ListCommands(t.Context(), adopted)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(commands, 1))
	assert.Equal(t, commands[0].ID, command.ID)
	assert.Equal(t, commands[0].State, sdk.CommandRunning)
	assert.Equal(t, inContext(second, "print(x + 1)"), "42\n")
	mine, err := second.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(mine, 1))
	assert.Equal(t, mine[0].Labels[sdk.LabelBroker], "second")
	assert.Equal(t, sdk.CodeOf(third.Adopt(t.Context(), adopted, "first")), sdk.CodeNotFound, "it is the second's")

	// For the first one it is gone.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := first.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: adopted, Language: sdk.Bash, Code: "true", OutputLimit: 1}, &recorder{})
		if sdk.CodeOf(err) != sdk.CodeNotFound {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	listed, err = first.List(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(listed, 2))
	assert.NilError(t, first.Destroy(t.Context(), adopted))
	goesOn(adopted)

	// Two adopt it, and the first one ends it, at the same time.
	var wins atomic.Int32
	var racing sync.WaitGroup
	for _, heir := range []process{second, third} {
		racing.Go(func() {
			if err := heir.Adopt(t.Context(), raced, "first"); err == nil {
				wins.Add(1)
			} else {
				assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound), "%v", err)
			}
		})
	}
	racing.Go(func() { assert.Check(t, first.Destroy(t.Context(), raced)) })
	racing.Wait()
	_, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), raced, metav1.GetOptions{})
	assert.Check(t, is.Equal(wins.Load() == 1, err == nil), "%d have it, and %v", wins.Load(), err)
	assert.Check(t, wins.Load() <= 1)

	// One that is another broker's by now, which has not written to it yet.
	assert.NilError(t, first.Release(t.Context(), released))
	assert.NilError(t, first.Destroy(t.Context(), released))
	goesOn(released)
	assert.NilError(t, first.Adopt(t.Context(), released, "first"))
	assert.Equal(t, first.run(t, released, sdk.Bash, "echo $SECRET"), "of the instance\n")
	over := &sdk.Lease{}
	over.Extend(1, 0)
	err = first.Destroy(sdk.WithLease(t.Context(), over), released)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable), "%v", err)
	goesOn(released)

	for _, p := range []process{first, second, third} {
		has, err := p.List(t.Context())
		assert.NilError(t, err)
		for _, i := range has {
			assert.Check(t, p.Destroy(t.Context(), i.ID))
		}
	}
	left(t, c, namespace, "first", "second", "third")
}
