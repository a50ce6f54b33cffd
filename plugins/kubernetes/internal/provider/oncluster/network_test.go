package oncluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// connect is code that says whether it reaches a port.
func connect(address string, port int) string {
	return fmt.Sprintf("import socket\ntry:\n  socket.create_connection((%q, %d), 3); print('reached')\nexcept OSError as e:\n  print(type(e).__name__)", address, port)
}

// serving starts a pod that accepts connections at two ports.
func serving(t *testing.T, c *cluster.Cluster, namespace string) *corev1.Pod {
	t.Helper()
	pod := c.Run(t, namespace, c.Pod("server", "python3", "-c", `
import socket, time
held = [socket.create_server(("", port)) for port in (8000, 8001)]
time.sleep(100000)`))
	return pod
}

// policies are the names of the network policies of a namespace.
func policies(t *testing.T, c *cluster.Cluster, namespace string) (names []string) {
	t.Helper()
	found, err := c.Client.NetworkingV1().NetworkPolicies(namespace).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	for _, one := range found.Items {
		names = append(names, one.Name)
	}
	return names
}

func TestCodeWithThePodsNetworkReachesWhatEgressSays(t *testing.T) {
	c := cluster.Find(t)
	c.EnforceNetworkPolicies(t)
	namespace := c.Namespace(t, privileged)
	outside := c.Namespace(t, nil)
	server := serving(t, c, outside)
	stranger := c.Run(t, outside, c.Pod("stranger", "sleep", "infinity"))
	dir := t.TempDir()
	settings := given(c, namespace, map[string]any{"network": "pod", "egress": []any{map[string]any{"cidr": server.Status.PodIP + "/32", "ports": []any{"8000"}}}})
	p := begin(t, dir, "network", settings)
	neighbour := begin(t, t.TempDir(), "neighbour", given(c, namespace, map[string]any{"network": "pod"}))
	assert.Check(t, is.Len(policies(t, c, namespace), 2))

	id := create(t, p, nil)
	assert.Equal(t, p.run(t, id, sdk.Python, connect(server.Status.PodIP, 8000)), "reached\n")
	for where, code := range map[string]string{
		"another port":              connect(server.Status.PodIP, 8001),
		"the API server":            connect("10.96.0.1", 443),
		"where clouds tell secrets": connect("169.254.169.254", 80),
		"another pod":               connect(stranger.Status.PodIP, 8000),
	} {
		assert.Check(t, p.run(t, id, sdk.Python, code) != "reached\n", where)
	}
	assert.Check(t, is.Equal(p.run(t, id, sdk.Python, "import socket\ntry:\n  print(socket.gethostbyname('kubernetes.default.svc'))\nexcept OSError as e:\n  print(type(e).__name__)"), "gaierror\n"))

	t.Run("and nobody reaches what it serves", func(t *testing.T) {
		_, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-m", "http.server", "9000"}})
		assert.NilError(t, err)
		c.WaitFor(t, "the program", func(context.Context) error {
			if p.run(t, id, sdk.Python, connect("127.0.0.1", 9000)) != "reached\n" {
				return errors.New("it does not listen yet")
			}
			return nil
		})
		pod, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), id, metav1.GetOptions{})
		assert.NilError(t, err)
		reaches := func(port int) string {
			out, err := c.Exec(t.Context(), stranger, nil, "python3", "-c", connect(pod.Status.PodIP, port))
			assert.NilError(t, err)
			return strings.TrimSpace(out.Stdout)
		}
		assert.Equal(t, reaches(8077), "reached", "the guest's port, which answers who has the key of the pod")
		assert.Check(t, reaches(9000) != "reached")
	})

	t.Run("or the guest, where the API server is the way to it", func(t *testing.T) {
		p := begin(t, t.TempDir(), "outside", given(c, namespace, map[string]any{"network": "pod", "reach": "api"}))
		id := create(t, p, nil)
		assert.Check(t, p.run(t, id, sdk.Python, connect(server.Status.PodIP, 8000)) != "reached\n")
		pod, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), id, metav1.GetOptions{})
		assert.NilError(t, err)
		out, err := c.Exec(t.Context(), stranger, nil, "python3", "-c", connect(pod.Status.PodIP, 8077))
		assert.NilError(t, err)
		assert.Check(t, out.Stdout != "reached\n")
		assert.NilError(t, p.Destroy(t.Context(), id))
		assert.NilError(t, p.Close(t.Context()))
	})
	t.Run("names are asked for where they are", func(t *testing.T) {
		// It stands for the cluster's, which has none.
		dns := c.Pod("dns", "python3", "-c", "import socket, time\nheld = [socket.create_server(('', port)) for port in (53, 54)]\ntime.sleep(100000)")
		dns.Labels["k8s-app"] = "kube-dns"
		dns.Spec.SecurityContext, dns.Spec.Containers[0].SecurityContext = nil, nil
		names := c.Run(t, metav1.NamespaceSystem, dns)
		t.Cleanup(func() {
			assert.Check(t, c.Client.CoreV1().Pods(names.Namespace).Delete(context.WithoutCancel(t.Context()), names.Name, metav1.DeleteOptions{}))
		})
		assert.Check(t, p.run(t, id, sdk.Python, connect(names.Status.PodIP, 53)) != "reached\n", "dns is not cluster there")
		p := begin(t, t.TempDir(), "names", given(c, namespace, map[string]any{"network": "pod", "dns": "cluster"}))
		id := create(t, p, nil)
		assert.Check(t, is.Equal(p.run(t, id, sdk.Python, connect(names.Status.PodIP, 53)), "reached\n"))
		assert.Check(t, p.run(t, id, sdk.Python, connect(names.Status.PodIP, 54)) != "reached\n")
		assert.Check(t, p.run(t, id, sdk.Python, connect(server.Status.PodIP, 8000)) != "reached\n")
		assert.NilError(t, p.Destroy(t.Context(), id))
		assert.NilError(t, p.Close(t.Context()))
	})
	assert.NilError(t, neighbour.Close(t.Context()))
	ours := policies(t, c, namespace)
	assert.Check(t, is.Len(ours, 1), "nobody removes another broker's")
	assert.NilError(t, p.Close(t.Context()))
	assert.Check(t, is.DeepEqual(policies(t, c, namespace), ours), "the instance goes on, and so does its policy")
	assert.NilError(t, c.Client.NetworkingV1().NetworkPolicies(namespace).Delete(t.Context(), ours[0], metav1.DeleteOptions{}))
	next := begin(t, dir, "network", settings)
	assert.Check(t, is.DeepEqual(policies(t, c, namespace), ours), "it is made again")
	assert.NilError(t, next.Destroy(t.Context(), id))
	assert.NilError(t, next.Close(t.Context()))
	assert.Check(t, is.Len(policies(t, c, namespace), 0), "it is removed when there is nothing that it is for")
}

// The process that comes next, as after a reload, has the policy then: the one before leaves
// it alone when it ends.
func TestThePolicyBelongsToTheLastProcess(t *testing.T) {
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	first := begin(t, t.TempDir(), "handed", given(c, namespace, map[string]any{"network": "pod"}))
	second := begin(t, t.TempDir(), "handed", given(c, namespace, map[string]any{"network": "pod", "egress": []any{map[string]any{"cidr": "203.0.113.0/24"}}}))
	names := policies(t, c, namespace)
	assert.Assert(t, is.Len(names, 1))
	assert.NilError(t, first.Close(t.Context()))
	policy, err := c.Client.NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), names[0], metav1.GetOptions{})
	assert.NilError(t, err)
	assert.Check(t, is.Len(policy.Spec.Egress, 1))
	assert.NilError(t, second.Close(t.Context()))
	assert.Check(t, is.Len(policies(t, c, namespace), 0))
}

// The network of this cluster accepts policies, and enforces none.
func TestPodsThatNothingConfinesAreNotHandedOut(t *testing.T) {
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	p := begin(t, t.TempDir(), "unconfined", given(c, namespace, map[string]any{"network": "pod", "create_timeout": "60s"}))
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeCreateFailed), "%v", err)
	assert.Check(t, is.ErrorContains(err, "does not enforce network policies"))
	assert.Check(t, is.ErrorContains(err, "unenforced_policies"))
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	assert.NilError(t, p.Close(t.Context()))
	assert.Check(t, is.Len(policies(t, c, namespace), 0))

	accepting := begin(t, t.TempDir(), "accepting", given(c, namespace, map[string]any{"network": "pod", "unenforced_policies": "accept"}))
	id := create(t, accepting, nil)
	assert.Equal(t, accepting.run(t, id, sdk.Python, connect("10.96.0.1", 443)), "reached\n", "this test is of no use")
	health, err = accepting.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Contains(health.Details, "unconfined"))
	began := time.Now()
	other := create(t, accepting, nil)
	t.Logf("another pod took %v", time.Since(began).Round(time.Millisecond))
	for _, one := range []string{id, other} {
		assert.NilError(t, accepting.Destroy(t.Context(), one))
	}
}
