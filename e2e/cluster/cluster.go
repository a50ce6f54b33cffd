// Package cluster finds the Kubernetes cluster for tests that need a real one: an API server,
// a scheduler, a controller manager, and one node with a kubelet, containerd and runc.
// Nothing is started here: `.ci/with-cluster COMMAND` runs a command beside a cluster of its
// own, and inside its network, from where pods and services are reached.
//
// What is not as in a usual cluster: there is no DNS, no way out of the network, and no
// registry, so that images other than Image, GuestImage and BrokerImage cannot be had. Network
// policies are accepted and not enforced, for the plugin of the node's network knows none,
// until a test asks for it. So it is with agent-sandbox.
package cluster

import (
	"context"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Node is the name of the cluster's only node.
const Node = "node1"

// RuntimeClass is the class of pods that gVisor is to run. Cluster.GVisor says whether it
// does.
const RuntimeClass = "gvisor"

// patience is how long a busy machine may take for what usually takes seconds.
const patience = 2 * time.Minute

// Cluster is a cluster whose node is ready.
type Cluster struct {
	// Client and Dynamic have every right.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Config is theirs.
	Config *rest.Config
	// Kubeconfig is a file with the same, for programs.
	Kubeconfig string
	// Image is the root file system of `make rootfs`. The node has it, and pulls nothing.
	Image string
	// GuestImage has the guest of this build, and nothing else.
	GuestImage string
	// BrokerImage has the broker of this build with its plugin for Kubernetes.
	BrokerImage string
	// GVisor is false where RuntimeClass means runc, for this machine does not let gVisor's
	// shim work.
	GVisor bool

	dir string
}

// Find returns the cluster that the test runs beside. The test is skipped if there is none,
// and fails in CI.
func Find(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{
		Kubeconfig: os.Getenv("KUBECONFIG"),
		Image:      os.Getenv("CLUSTER_IMAGE"),
		GuestImage: os.Getenv("CLUSTER_GUEST_IMAGE"),
		GVisor:     os.Getenv("CLUSTER_GVISOR") == "runsc",
		dir:        os.Getenv("CLUSTER_DIR"),

		BrokerImage: os.Getenv("CLUSTER_BROKER_IMAGE"),
	}
	if c.dir == "" {
		const missing = "there is no cluster of .ci/with-cluster"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	var err error
	c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	assert.NilError(t, err)
	// A test is no controller, whose calls are spread over time.
	c.Config.QPS = -1
	c.Client, err = kubernetes.NewForConfig(c.Config)
	assert.NilError(t, err)
	c.Dynamic, err = dynamic.NewForConfig(c.Config)
	assert.NilError(t, err)
	return c
}

// Namespace makes a namespace with the labels, which is removed after the test with all that
// is in it.
func (c *Cluster) Namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	ns, err := c.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}, metav1.CreateOptions{})
	assert.NilError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		assert.Check(t, c.Client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}))
	})
	// Pods are refused before their account is there.
	c.WaitFor(t, "the account of pods in "+ns.Name, func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return ns.Name
}
