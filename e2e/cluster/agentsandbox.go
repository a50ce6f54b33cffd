package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const agentSandboxController = "agent-sandbox-controller"

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallAgentSandbox installs the resources of agent-sandbox and starts its controller, for
// as long as the test takes.
//
// There is one cluster, so that no other test may run meanwhile that counts on either.
func (c *Cluster) InstallAgentSandbox(t testing.TB) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("CLUSTER_AGENT_SANDBOX"), "crds", "*.yaml"))
	assert.NilError(t, err)
	assert.Assert(t, len(files) > 0, "there are no definitions of agent-sandbox")
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		var definition unstructured.Unstructured
		assert.NilError(t, yaml.Unmarshal(text, &definition.Object))
		// Other versions are converted by a webhook of the controller's, which would need
		// certificates and a service; here is one version.
		conversion := map[string]any{"strategy": "None"}
		assert.NilError(t, unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion"))
		created, err := c.Dynamic.Resource(definitions).Create(t.Context(), &definition, metav1.CreateOptions{})
		assert.NilError(t, err)
		t.Cleanup(func() { c.removeDefinition(t, created.GetName()) })
		c.WaitFor(t, created.GetName(), func(ctx context.Context) error {
			got, err := c.Dynamic.Resource(definitions).Get(ctx, created.GetName(), metav1.GetOptions{})
			if err == nil && StatusOf(got, "Established").Status != string(metav1.ConditionTrue) {
				err = fmt.Errorf("it is not served yet")
			}
			return err
		})
	}
	// What is left of the objects is finalized by the controller, which is stopped last.
	t.Cleanup(func() { c.stop(t, agentSandboxController) })
	c.start(t, agentSandboxController)
}

// removeDefinition removes a resource with its objects.
func (c *Cluster) removeDefinition(t testing.TB, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	resource := c.Dynamic.Resource(definitions)
	assert.Check(t, resource.Delete(ctx, name, metav1.DeleteOptions{}))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, err := resource.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return poll.Continue("%s is there: %v", name, err)
		}
		return poll.Success()
	}, poll.WithTimeout(patience))
}

// Status is a condition of an object of which there are no types here.
type Status struct {
	Status, Reason, Message string
}

// StatusOf returns a condition of an object, empty if it has none of this type.
func StatusOf(object *unstructured.Unstructured, of string) Status {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == of {
			text := func(name string) string { s, _ := fields[name].(string); return s }
			return Status{Status: text("status"), Reason: text("reason"), Message: text("message")}
		}
	}
	return Status{}
}

// StopAgentSandbox kills the controller, whose resources stay, until StartAgentSandbox.
func (c *Cluster) StopAgentSandbox(t testing.TB) {
	t.Helper()
	c.stop(t, agentSandboxController)
}

// StartAgentSandbox starts the controller again.
func (c *Cluster) StartAgentSandbox(t testing.TB) {
	t.Helper()
	c.start(t, agentSandboxController)
}
