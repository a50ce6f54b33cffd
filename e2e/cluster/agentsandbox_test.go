package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const (
	agents     = "agents.x-k8s.io"
	extensions = "extensions.agents.x-k8s.io"
)

// Tests of agent-sandbox are one, for it is installed for the whole cluster. It runs by
// itself, before those that are parallel.
func TestAgentSandbox(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	c.InstallAgentSandbox(t)
	namespace := c.Namespace(t, nil)
	class := cluster.RuntimeClass
	pod := c.Pod("", forever...)
	pod.Spec.RuntimeClassName = &class
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Spec)
	assert.NilError(t, err)

	create := func(t *testing.T, group, resource, kind, name string, spec map[string]any) *unstructured.Unstructured {
		t.Helper()
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetAPIVersion(group + "/v1beta1")
		object.SetKind(kind)
		object.SetName(name)
		created, err := c.Dynamic.Resource(resourceOf(group, resource)).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
		assert.NilError(t, err)
		return created
	}
	get := func(ctx context.Context, group, resource, name string) (*unstructured.Unstructured, error) {
		return c.Dynamic.Resource(resourceOf(group, resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	// podOf waits until a sandbox is ready, and returns its pod.
	podOf := func(t *testing.T, sandbox string) *corev1.Pod {
		t.Helper()
		var pod corev1.Pod
		c.WaitFor(t, "the sandbox "+sandbox, func(ctx context.Context) error {
			got, err := get(ctx, agents, "sandboxes", sandbox)
			if err != nil {
				return err
			}
			if ready := cluster.StatusOf(got, "Ready"); ready.Status != "True" {
				return fmt.Errorf("%+v", ready)
			}
			selector, _, _ := unstructured.NestedString(got.Object, "status", "selector")
			pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil || len(pods.Items) != 1 {
				return fmt.Errorf("%d pods: %w", len(pods.Items), err)
			}
			pod = pods.Items[0]
			return nil
		})
		return &pod
	}
	works := func(t *testing.T, pod *corev1.Pod) {
		t.Helper()
		out, err := c.Exec(t.Context(), pod, nil, "echo", "hello")
		assert.NilError(t, err)
		assert.Check(t, is.Equal(out.Stdout, "hello\n"), "%+v", out)
	}

	t.Run("a sandbox", func(t *testing.T) {
		began := time.Now()
		create(t, agents, "sandboxes", "Sandbox", "plain", map[string]any{"podTemplate": map[string]any{"spec": spec}})
		pod := podOf(t, "plain")
		t.Logf("a sandbox is ready %v after it was asked for", time.Since(began).Round(time.Millisecond))
		assert.Check(t, is.Equal(pod.Name, "plain"))
		works(t, pod)
	})

	t.Run("a claim of a sandbox that is warm", func(t *testing.T) {
		create(t, extensions, "sandboxtemplates", "SandboxTemplate", "example", map[string]any{"podTemplate": map[string]any{"spec": spec}})
		create(t, extensions, "sandboxwarmpools", "SandboxWarmPool", "example",
			map[string]any{"replicas": int64(1), "sandboxTemplateRef": map[string]any{"name": "example"}})
		c.WaitFor(t, "the pool", func(ctx context.Context) error {
			pool, err := get(ctx, extensions, "sandboxwarmpools", "example")
			if err != nil {
				return err
			}
			if ready, _, _ := unstructured.NestedInt64(pool.Object, "status", "readyReplicas"); ready != 1 {
				return fmt.Errorf("%v are ready", ready)
			}
			return nil
		})

		before, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		assert.NilError(t, err)
		// A claim may not have the name of a sandbox that is not its own.
		began := time.Now()
		create(t, extensions, "sandboxclaims", "SandboxClaim", "example", map[string]any{"warmPoolRef": map[string]any{"name": "example"}})
		var sandbox string
		c.WaitFor(t, "the claim", func(ctx context.Context) error {
			claim, err := get(ctx, extensions, "sandboxclaims", "example")
			if err != nil {
				return err
			}
			if sandbox, _, _ = unstructured.NestedString(claim.Object, "status", "sandbox", "name"); sandbox == "" {
				return fmt.Errorf("it has no sandbox: %+v", cluster.StatusOf(claim, "Ready"))
			}
			return nil
		})
		pod := podOf(t, sandbox)
		t.Logf("a claim is satisfied %v after it was made", time.Since(began).Round(time.Millisecond))
		warm := slices.ContainsFunc(before.Items, func(p corev1.Pod) bool { return p.UID == pod.UID })
		assert.Check(t, warm, "the pod was made for the claim")
		works(t, pod)
	})
}

func resourceOf(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: resource}
}
