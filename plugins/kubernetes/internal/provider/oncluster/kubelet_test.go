package oncluster_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"gotest.tools/v3/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

// lightNode is a node whose kubelet is this test: it runs thousands of pods, for it runs
// nothing in them. Each has an address of its own, where a guest answers that keeps notes and
// runs no code.
type lightNode struct {
	c    *cluster.Cluster
	port int

	mu     sync.Mutex
	guests map[string]*lightGuest // by namespace/name
	begun  int
}

const (
	lightNodeName = "light"
	// lightNodePort is where its kubelet answers, beside the real one's.
	lightNodePort = 10260
	nodeAddress   = "10.200.0.1"
)

// light are settings for pods on that node.
func light(more map[string]any) map[string]any {
	settings := map[string]any{"node_selector": map[string]any{"kubernetes.io/hostname": lightNodeName}, "cpus": 0.1, "cpu_request": 0.001, "memory_request_mb": 1}
	for name, value := range more {
		settings[name] = value
	}
	return settings
}

// runLightNode runs the node until the test ends.
func runLightNode(t *testing.T, c *cluster.Cluster) *lightNode {
	t.Helper()
	n := &lightNode{c: c, port: 8077, guests: map[string]*lightGuest{}}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi"),
		corev1.ResourcePods: resource.MustParse("10000"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	nodes, leases := c.Client.CoreV1().Nodes(), c.Client.CoordinationV1().Leases("kube-node-lease")
	t.Cleanup(func() {
		cancel()
		running.Wait()
		bounded, done := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer done()
		assert.Check(t, nodes.Delete(bounded, lightNodeName, metav1.DeleteOptions{}))
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, g := range n.guests {
			g.stop()
		}
	})
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now()}
	_, err := nodes.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lightNodeName, Labels: map[string]string{"kubernetes.io/hostname": lightNodeName}},
	}, metav1.CreateOptions{})
	assert.NilError(t, err)
	status, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{ready},
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: lightNodePort}},
	}})
	assert.NilError(t, err)
	_, err = nodes.Patch(ctx, lightNodeName, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	assert.NilError(t, err)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lightNodeName}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new(lightNodeName), LeaseDurationSeconds: new(int32(10)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}}
	_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	assert.NilError(t, err)
	running.Go(func() { // it says that it is well
		ticker := time.NewTicker(3 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				renewed, _ := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": metav1.MicroTime{Time: now}}})
				if _, err := leases.Patch(ctx, lightNodeName, types.MergePatchType, renewed, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					t.Logf("the node cannot say that it is well: %v", err)
				}
			}
		}
	})
	n.serveLogs(t, ctx, &running)

	factory := informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithTweakListOptions(func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", lightNodeName).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	atOnce := make(chan struct{}, 16)
	seen := func(of any) {
		pod := of.(*corev1.Pod)
		running.Go(func() {
			select {
			case atOnce <- struct{}{}:
			case <-ctx.Done():
				return
			}
			defer func() { <-atOnce }()
			if err := n.care(ctx, pod); err != nil && ctx.Err() == nil {
				t.Logf("the node and the pod %s: %v", pod.Name, err)
			}
		})
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, of any) { seen(of) }})
	assert.NilError(t, err)
	running.Go(func() { informer.RunWithContext(ctx) })
	return n
}

// care does for a pod what a kubelet would.
func (n *lightNode) care(ctx context.Context, pod *corev1.Pod) error {
	key := pod.Namespace + "/" + pod.Name
	if pod.DeletionTimestamp != nil {
		n.mu.Lock()
		g := n.guests[key]
		delete(n.guests, key)
		n.mu.Unlock()
		if g != nil {
			g.stop()
		}
		err := n.c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	if pod.Status.Phase != corev1.PodPending {
		return nil
	}
	n.mu.Lock()
	if n.guests[key] != nil {
		n.mu.Unlock()
		return nil
	}
	n.begun++
	address := fmt.Sprintf("127.1.%d.%d", n.begun/250, n.begun%250+1)
	g, err := startLightGuest(net.JoinHostPort(address, strconv.Itoa(n.port)), pod)
	if err == nil {
		n.guests[key] = g
	}
	n.mu.Unlock()
	if err != nil {
		return err
	}
	now := metav1.Now()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	status, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: nodeAddress, StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pods.ContainerName, State: running, Ready: true, Started: new(true), Image: pod.Spec.Containers[0].Image,
			ImageID: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		}},
	}})
	if err != nil {
		return err
	}
	_, err = n.c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// serveLogs answers the API server as a kubelet does.
func (n *lightNode) serveLogs(t *testing.T, ctx context.Context, running *sync.WaitGroup) {
	t.Helper()
	pki := filepath.Join(os.Getenv("CLUSTER_DIR"), "pki")
	own, err := tls.LoadX509KeyPair(filepath.Join(pki, "kubelet.crt"), filepath.Join(pki, "kubelet.key"))
	assert.NilError(t, err)
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", net.JoinHostPort(nodeAddress, strconv.Itoa(lightNodePort)))
	assert.NilError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		g := n.guests[r.PathValue("namespace")+"/"+r.PathValue("pod")]
		n.mu.Unlock()
		if g == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(g.listener.Fingerprint().Line()))
	})
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}}, ReadHeaderTimeout: time.Minute}
	running.Go(func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			t.Logf("the node's kubelet: %v", err)
		}
	})
	context.AfterFunc(ctx, func() { _ = server.Close() })
}

// lightGuest is the guest of one pod, as far as a plugin knows it that runs no code.
type lightGuest struct {
	guestv1.UnimplementedGuestServiceServer
	listener *guestlink.Listener
	server   *grpc.Server
	done     chan struct{}

	mu   sync.Mutex
	note []byte
}

func startLightGuest(address string, pod *corev1.Pod) (*lightGuest, error) {
	key := ""
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == guest.AuthorityVariable {
			key = variable.Value
		}
	}
	g := &lightGuest{done: make(chan struct{})}
	if key == "" { // a neighbour's, who connects to none
		close(g.done)
		return g, nil
	}
	client, err := guestlink.ParsePublic(key)
	if err != nil {
		return nil, err
	}
	tcp, err := net.Listen("tcp", address) //nolint:noctx // it is closed by stop
	if err != nil {
		return nil, err
	}
	if g.listener, err = guestlink.Listen(tcp, client, string(pod.UID)); err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	g.server = grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	guestv1.RegisterGuestServiceServer(g.server, g)
	go func() {
		defer close(g.done)
		_ = g.server.Serve(g.listener) // until stop
	}()
	return g, nil
}

func (g *lightGuest) stop() {
	if g.server != nil {
		g.server.Stop()
	}
	<-g.done
}

// Prepare implements guestv1.GuestServiceServer.
func (g *lightGuest) Prepare(context.Context, *guestv1.PrepareRequest) (*guestv1.PrepareResponse, error) {
	return &guestv1.PrepareResponse{Version: guest.Version(), Interpreters: map[string]string{"python": "/usr/bin/python3", "bash": "/bin/bash"}}, nil
}

// Check implements guestv1.GuestServiceServer.
func (g *lightGuest) Check(context.Context, *guestv1.CheckRequest) (*guestv1.CheckResponse, error) {
	return &guestv1.CheckResponse{}, nil
}

// Remember implements guestv1.GuestServiceServer.
func (g *lightGuest) Remember(_ context.Context, req *guestv1.RememberRequest) (*guestv1.RememberResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note = req.GetNote()
	return &guestv1.RememberResponse{}, nil
}

// Recall implements guestv1.GuestServiceServer.
func (g *lightGuest) Recall(context.Context, *guestv1.RecallRequest) (*guestv1.RecallResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &guestv1.RecallResponse{Note: g.note}, nil
}
