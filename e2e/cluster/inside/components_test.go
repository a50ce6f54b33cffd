package inside_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// DeerFlow has its sandboxes of the broker's front door, as of its own provisioner: its client
// is anywhere in the cluster, and the broker tells it where each sandbox is.
func TestComponents(t *testing.T) {
	d := deployWith(t, func(t *testing.T, d deployment) { d.definePodMonitors(t) }, "../base/components/deerflow", "../base/components/podmonitor")
	t.Run("deerflow", func(t *testing.T) {
		program := exec.CommandContext(t.Context(), "python3", filepath.Join("..", "..", "frontdoor", "deerflow", "testdata", "client.py"), "features", d.url+"/deerflow", token)
		var out, said bytes.Buffer
		program.Stdout, program.Stderr = &out, &said
		assert.NilError(t, program.Run(), "%s%s", out.String(), said.String())
		t.Log(out.String())
		features := strings.Split(strings.TrimSpace(out.String()), "\n")
		assert.Assert(t, len(features) >= 8, out.String())
		for _, feature := range features {
			assert.Check(t, strings.HasPrefix(feature, "works "), feature)
		}
	})
	t.Run("podmonitor", func(t *testing.T) { d.measured(t) })
}

// With network = "pod" the broker needs further rights, all of them and no other.
func TestTheBrokerMakesThePolicyOfThePods(t *testing.T) {
	tier.Full(t)
	d := deployWith(t, func(t *testing.T, d deployment) { d.configure(t, "", `network = "pod"`) }, "../base/components/pod-network")
	demo := d.as(token)
	kept := session(t, demo, "kept")
	ran, err := demo.ExecuteIn(t.Context(), kept.ID, client.InstanceExecuteRequest{Language: "bash", Code: "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort"})
	assert.NilError(t, err)
	assert.Equal(t, ran.Stdout, "eth0\nlo\n", "%+v", ran)
	policies := d.Client.NetworkingV1().NetworkPolicies(sandboxes)
	own := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=sandbox-broker"}
	found, err := policies.List(t.Context(), own)
	assert.NilError(t, err)
	assert.Equal(t, len(found.Items), 1)

	before := d.waitReady(t, "")
	assert.NilError(t, d.Client.CoreV1().Pods(brokers).Delete(t.Context(), before.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	d.waitReady(t, before.UID)
	assert.NilError(t, demo.DestroyInstance(t.Context(), kept.ID))
	d.kubectl(t.Context(), t, "-n", brokers, "scale", "deployment/sandbox-broker", "--replicas=0")
	d.WaitFor(t, "the end of the policy", func(ctx context.Context) error {
		found, err := policies.List(ctx, own)
		if err == nil && len(found.Items) > 0 {
			err = errors.New("it is there")
		}
		return err
	})
	d.rights(t)
}

// definePodMonitors has the API server take what the Prometheus operator defines.
func (d deployment) definePodMonitors(t *testing.T) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "podmonitors.monitoring.coreos.com"},
		"spec": map[string]any{
			"group": "monitoring.coreos.com", "scope": "Namespaced", "names": map[string]any{"kind": "PodMonitor", "plural": "podmonitors"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	definitions := d.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, definitions.Delete(context.WithoutCancel(t.Context()), definition.GetName(), metav1.DeleteOptions{}))
	})
	monitors := d.Dynamic.Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"})
	d.WaitFor(t, "pod monitors", func(ctx context.Context) error {
		_, err := monitors.List(ctx, metav1.ListOptions{})
		return err
	})
}

// measured has a pod where Prometheus would be read the metrics at the port that the
// PodMonitor names, which nobody else reaches.
func (d deployment) measured(t *testing.T) {
	pod, err := d.pod(t.Context())
	assert.NilError(t, err)
	var port string
	for _, one := range pod.Spec.Containers[0].Ports {
		if one.Name == "metrics" {
			port = "9386"
			assert.Equal(t, one.ContainerPort, int32(9386))
		}
	}
	assert.Equal(t, port, "9386")
	const prometheus = "monitoring"
	namespaces := d.Client.CoreV1().Namespaces()
	_, err = namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prometheus}}, metav1.CreateOptions{})
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, namespaces.Delete(context.WithoutCancel(t.Context()), prometheus, metav1.DeleteOptions{}))
	})
	read := func(from *corev1.Pod) (string, error) {
		out, err := d.Exec(t.Context(), from, nil, "python3", "-c",
			"import urllib.request as u\ntry:\n  print(u.urlopen('http://"+pod.Status.PodIP+":9386/metrics', timeout=3).read().decode())\nexcept OSError as e:\n  print('nothing:', e)")
		return out.Stdout, err
	}
	reader := d.Pod("reader", "sleep", "infinity")
	inside := d.Run(t, prometheus, reader.DeepCopy())
	d.WaitFor(t, "the metrics", func(context.Context) error {
		text, err := read(inside)
		if err == nil && !strings.Contains(text, "sandbox_broker_config_generation") {
			err = errors.New(text)
		}
		return err
	})
	text, err := read(d.Run(t, d.Namespace(t, nil), reader.DeepCopy()))
	assert.NilError(t, err)
	assert.Check(t, strings.HasPrefix(text, "nothing:"), text)
}

// Where agent-sandbox makes the pods, the broker has other rights.
func TestTheBrokerHasItsPodsOfAgentSandbox(t *testing.T) {
	tier.Full(t)
	d := deployWith(t, func(t *testing.T, d deployment) { d.InstallAgentSandbox(t) }, "../base/components/agent-sandbox")
	made := session(t, d.as(token), "claimed")
	ran, err := d.as(token).ExecuteIn(t.Context(), made.ID, client.InstanceExecuteRequest{Language: "python", Code: "print(6 * 7)"})
	assert.NilError(t, err)
	assert.Equal(t, ran.Stdout, "42\n", "%+v", ran)
	claims := schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"}
	found, err := d.Dynamic.Resource(claims).Namespace(sandboxes).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	assert.Equal(t, len(found.Items), 1, "it was made by a claim")
	assert.NilError(t, d.as(token).DestroyInstance(t.Context(), made.ID))
	_, forbidden := d.Calls(t, d.began, brokers, account)
	// It asks once whether it may make pods itself.
	assert.Check(t, is.DeepEqual(forbidden, map[cluster.Call]bool{{Verb: "create", Resource: "pods", Namespace: sandboxes}: true}))
}
