package cluster_test

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
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// forever is a command of a pod that waits for what is done to it.
var forever = []string{"sleep", "infinity"}

func TestTheNodeIsReady(t *testing.T) {
	c := cluster.Find(t)
	version, err := c.Client.Discovery().ServerVersion()
	assert.NilError(t, err)
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), cluster.Node, metav1.GetOptions{})
	assert.NilError(t, err)
	t.Logf("Kubernetes %s, %s, kernel %s, gVisor: %v", version.GitVersion, node.Status.NodeInfo.ContainerRuntimeVersion, node.Status.NodeInfo.KernelVersion, c.GVisor)
	assert.Check(t, is.Equal(node.Status.NodeInfo.KubeletVersion, version.GitVersion))
	assert.Check(t, strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "containerd://"))
}

func TestPods(t *testing.T) {
	t.Parallel()
	c := cluster.Find(t)
	// What a sandbox asks for is allowed by the strictest of the standards.
	namespace := c.Namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})

	began := time.Now()
	pod := c.Run(t, namespace, c.Pod("sandbox", "python3", "-c", "import time; print('begun', flush=True); time.sleep(10000)"))
	t.Logf("a pod is ready %v after it was asked for", time.Since(began).Round(time.Millisecond))

	t.Run("its output is read", func(t *testing.T) {
		c.WaitFor(t, "the output", func(ctx context.Context) error {
			log, err := c.Client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err == nil && string(log) != "begun\n" {
				err = fmt.Errorf("it is %q", log)
			}
			return err
		})
	})

	t.Run("commands run in it", func(t *testing.T) {
		began := time.Now()
		out, err := c.Exec(t.Context(), pod, strings.NewReader("hello"), "sh", "-c", "cat; id -u >&2; touch /workspace/file; exit 3")
		assert.NilError(t, err)
		t.Logf("a command took %v", time.Since(began).Round(time.Millisecond))
		assert.Check(t, is.DeepEqual(out, cluster.Output{Stdout: "hello", Stderr: "1000\n", ExitCode: 3}))
	})

	t.Run("it runs what the runtime class says", func(t *testing.T) {
		class := cluster.RuntimeClass
		classed := c.Pod("classed", forever...)
		classed.Spec.RuntimeClassName = &class
		began := time.Now()
		classed = c.Run(t, namespace, classed)
		t.Logf("a pod of class %s is ready %v after it was asked for", class, time.Since(began).Round(time.Millisecond))
		out, err := c.Exec(t.Context(), classed, nil, "uname", "-r")
		assert.NilError(t, err)
		assert.Check(t, is.Equal(strings.Contains(out.Stdout, "gvisor"), c.GVisor), out.Stdout)
	})

	t.Run("a privileged one is refused", func(t *testing.T) {
		privileged := c.Pod("privileged", forever...)
		privileged.Spec.HostNetwork = true
		_, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), privileged, metav1.CreateOptions{})
		assert.Check(t, apierrors.IsForbidden(err), "%v", err)
		assert.Check(t, is.ErrorContains(err, "violates PodSecurity"))
	})

	t.Run("one that takes too much memory is killed", func(t *testing.T) {
		greedy := c.Pod("greedy", "python3", "-c", "x = b'x' * (1 << 30)")
		_, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), greedy, metav1.CreateOptions{})
		assert.NilError(t, err)
		ended := c.WaitForPod(t, namespace, greedy.Name, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		terminated := ended.Status.ContainerStatuses[0].State.Terminated
		assert.Check(t, is.Equal(terminated.Reason, "OOMKilled"))
		assert.Check(t, is.Equal(terminated.ExitCode, int32(137)))
	})
}

func TestPodsThatCannotRun(t *testing.T) {
	t.Parallel()
	c := cluster.Find(t)
	namespace := c.Namespace(t, nil)

	t.Run("without their image", func(t *testing.T) {
		pod := c.Pod("absent", forever...)
		pod.Spec.Containers[0].Image = "localhost/absent:1"
		_, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		assert.NilError(t, err)
		c.WaitForPod(t, namespace, pod.Name, func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
				pod.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImagePull"
		})
		event := c.WaitForEvent(t, namespace, pod.Name, "Failed")
		assert.Check(t, is.Contains(event.Message, `Failed to pull image "localhost/absent:1"`))
	})

	t.Run("without room", func(t *testing.T) {
		pod := c.Pod("large", forever...)
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1000")
		_, err := c.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		assert.NilError(t, err)
		c.WaitForPod(t, namespace, pod.Name, func(pod *corev1.Pod) bool {
			scheduled := cluster.Condition(pod, corev1.PodScheduled)
			return scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable
		})
		event := c.WaitForEvent(t, namespace, pod.Name, "FailedScheduling")
		assert.Check(t, is.Contains(event.Message, "Insufficient cpu"))
	})

	t.Run("over the quota", func(t *testing.T) {
		namespace := c.Namespace(t, nil)
		quota, err := c.Client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "one"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
		}, metav1.CreateOptions{})
		assert.NilError(t, err)
		c.WaitFor(t, "the quota", func(ctx context.Context) error {
			got, err := c.Client.CoreV1().ResourceQuotas(namespace).Get(ctx, quota.Name, metav1.GetOptions{})
			if err == nil && len(got.Status.Hard) == 0 {
				err = errors.New("nothing is counted yet")
			}
			return err
		})
		_, err = c.Client.CoreV1().Pods(namespace).Create(t.Context(), c.Pod("first", forever...), metav1.CreateOptions{})
		assert.NilError(t, err)
		_, err = c.Client.CoreV1().Pods(namespace).Create(t.Context(), c.Pod("second", forever...), metav1.CreateOptions{})
		assert.Check(t, apierrors.IsForbidden(err), "%v", err)
		assert.Check(t, is.ErrorContains(err, "exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1"))
	})
}

func TestEviction(t *testing.T) {
	t.Parallel()
	c := cluster.Find(t)
	namespace := c.Namespace(t, nil)
	pod := c.Run(t, namespace, c.Pod("sandbox", forever...))
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: namespace}}

	one := intstr.FromInt32(1)
	budgets := c.Client.PolicyV1().PodDisruptionBudgets(namespace)
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}, metav1.CreateOptions{})
	assert.NilError(t, err)
	c.WaitFor(t, "the budget", func(ctx context.Context) error {
		budget, err := budgets.Get(ctx, "budget", metav1.GetOptions{})
		if err == nil && budget.Status.CurrentHealthy != 1 {
			err = errors.New("the pod is not counted yet")
		}
		return err
	})
	err = c.Client.PolicyV1().Evictions(namespace).Evict(t.Context(), eviction)
	assert.Check(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.NilError(t, budgets.Delete(t.Context(), "budget", metav1.DeleteOptions{}))

	changes, err := c.Client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.SingleObject(pod.ObjectMeta))
	assert.NilError(t, err)
	defer changes.Stop()
	c.WaitFor(t, "the eviction", func(ctx context.Context) error {
		return c.Client.PolicyV1().Evictions(namespace).Evict(ctx, eviction)
	})
	// A pod that is gone does not say why: who wants to know watches it.
	reason := ""
	deadline := time.After(2 * time.Minute)
	for deleted := false; !deleted; {
		select {
		case change := <-changes.ResultChan():
			pod, ok := change.Object.(*corev1.Pod)
			assert.Assert(t, ok, "%+v", change)
			if disrupted := cluster.Condition(pod, corev1.DisruptionTarget); disrupted != nil {
				reason = disrupted.Reason
			}
			deleted = change.Type == watch.Deleted
		case <-deadline:
			t.Fatal("the pod is not gone")
		}
	}
	assert.Check(t, is.Equal(reason, "EvictionByEvictionAPI"))
}

func TestTheNetwork(t *testing.T) {
	t.Parallel()
	c := cluster.Find(t)
	n := startNetwork(t, c)
	for what, address := range n.addresses {
		t.Run("a pod reaches "+what, func(t *testing.T) { n.waitFor(t, address, true) })
	}
	t.Run("a policy is accepted, and not enforced", func(t *testing.T) {
		n.deny(t)
		for _, address := range n.addresses {
			assert.Check(t, n.reach(t.Context(), address))
		}
	})
}

// It runs by itself, before those that are parallel.
func TestNetworkPolicies(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	c.EnforceNetworkPolicies(t)
	n := startNetwork(t, c)
	for _, address := range n.addresses {
		n.waitFor(t, address, true)
	}
	n.deny(t)
	for _, address := range n.addresses {
		n.waitFor(t, address, false)
	}

	n.policy(t, "server", networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: n.server.Labels},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: n.client.Labels}}}}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	})
	n.policy(t, "client", networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: n.client.Labels},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: n.server.Status.PodIP + "/32"}}}}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
	})
	n.waitFor(t, n.addresses["another"], true)
	n.waitFor(t, n.addresses["a service"], true)
	n.waitFor(t, n.addresses["the API server"], false)
}

// network is a pod that serves, and one that asks.
type network struct {
	*cluster.Cluster
	namespace      string
	server, client *corev1.Pod
	// addresses are what there is to be reached, by what it is.
	addresses map[string]string
}

func startNetwork(t *testing.T, c *cluster.Cluster) *network {
	t.Helper()
	n := &network{Cluster: c, namespace: c.Namespace(t, nil)}
	n.server = c.Run(t, n.namespace, c.Pod("server", "python3", "-m", "http.server", "8080"))
	n.client = c.Run(t, n.namespace, c.Pod("client", forever...))
	service, err := c.Client.CoreV1().Services(n.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec:       corev1.ServiceSpec{Selector: n.server.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	assert.NilError(t, err)
	n.addresses = map[string]string{
		"another":        n.server.Status.PodIP + ":8080",
		"a service":      service.Spec.ClusterIP + ":80",
		"the API server": "10.96.0.1:443",
	}
	return n
}

// deny lets no pod reach anything, nor be reached.
func (n *network) deny(t *testing.T) {
	t.Helper()
	n.policy(t, "nothing", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	})
}

func (n *network) policy(t *testing.T, name string, spec networkingv1.NetworkPolicySpec) {
	t.Helper()
	_, err := n.Client.NetworkingV1().NetworkPolicies(n.namespace).Create(t.Context(),
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	assert.NilError(t, err)
}

// reach connects from the client to an address.
func (n *network) reach(ctx context.Context, address string) error {
	const code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"
	host, port, _ := strings.Cut(address, ":")
	out, err := n.Exec(ctx, n.client, nil, "python3", "-c", code, host, port)
	if err == nil && out.ExitCode != 0 {
		err = errors.New(out.Stderr)
	}
	return err
}

// waitFor waits until the client reaches an address, or does not reach it.
func (n *network) waitFor(t *testing.T, address string, reached bool) {
	t.Helper()
	n.WaitFor(t, address, func(ctx context.Context) error {
		err := n.reach(ctx, address)
		switch {
		case reached:
			return err
		case err == nil:
			return errors.New("it is reached")
		case !strings.Contains(err.Error(), "TimeoutError") && !strings.Contains(err.Error(), "ConnectionRefusedError"):
			return err // The command did not run.
		}
		return nil
	})
}

// It runs by itself, before those that are parallel.
func TestTheAPIServerIsAway(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, nil)
	pod := c.Run(t, namespace, c.Pod("sandbox", "python3", "-m", "http.server", "8080"))
	changes, err := c.Client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	defer changes.Stop()

	c.StopAPIServer(t)
	_, err = c.Client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	assert.Check(t, is.ErrorContains(err, "connection refused"))
	deadline := time.After(time.Minute)
	for open := true; open; {
		select {
		case _, open = <-changes.ResultChan():
		case <-deadline:
			t.Fatal("the watch is still open")
		}
	}

	began := time.Now()
	c.StartAPIServer(t)
	t.Logf("the API server is back after %v", time.Since(began).Round(time.Millisecond))
	again, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(again.UID, pod.UID))
	out, err := c.Exec(t.Context(), again, nil, "echo", "hello")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(out.Stdout, "hello\n"))
}

// It runs by itself, before those that are parallel.
func TestTheNodeIsLost(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	namespace := c.Namespace(t, nil)
	pod := c.Run(t, namespace, c.Pod("sandbox", forever...))

	began := time.Now()
	c.StopNode(t)
	t.Logf("the node is held for lost after %v", time.Since(began).Round(time.Millisecond))
	lost := c.WaitForPod(t, namespace, pod.Name, func(pod *corev1.Pod) bool { return !cluster.Ready(pod) })
	assert.Check(t, is.Equal(lost.Status.Phase, corev1.PodRunning))
	_, err := c.Exec(t.Context(), pod, nil, "true")
	assert.Check(t, err != nil, "a command ran on a node without its kubelet")

	began = time.Now()
	c.StartNode(t)
	t.Logf("the node is back after %v", time.Since(began).Round(time.Millisecond))
	back := c.WaitForPod(t, namespace, pod.Name, cluster.Ready)
	assert.Check(t, is.Equal(back.UID, pod.UID))
	assert.Check(t, is.Equal(back.Status.ContainerStatuses[0].ContainerID, pod.Status.ContainerStatuses[0].ContainerID))
}
