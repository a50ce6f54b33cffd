package chaos_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
)

// kubernetesBackend is a namespace of a real cluster.
type kubernetesBackend struct {
	*cluster.Cluster
	namespace string
}

func (kubernetesBackend) label() string { return "kubernetes" }

func (b kubernetesBackend) settings() string {
	kernel := "own"
	if !b.GVisor {
		kernel = "shared"
	}
	return fmt.Sprintf(` kubeconfig = %q
 namespace = %q
 image = %q
 guest_image = %q
 runtime_class = %q
 kernel = %q
 pool_size = 2
 memory_mb = 256
 workspace_mb = 32
 cpu_request = 0.02
 memory_request_mb = 64
`, b.Kubeconfig, b.namespace, b.Image, b.GuestImage, cluster.RuntimeClass, kernel)
}

// pods of the namespace, which nobody else uses.
func (b kubernetesBackend) pods(t testing.TB) []corev1.Pod {
	t.Helper()
	list, err := b.Client.CoreV1().Pods(b.namespace).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	return list.Items
}

// annotationLabels is where the provider keeps the broker's labels of an instance.
const annotationLabels = "sandbox-broker.io/labels"

func (b kubernetesBackend) alive(t testing.TB) (all []there) {
	t.Helper()
	for _, pod := range b.pods(t) {
		text, taken := pod.Annotations[annotationLabels]
		if !taken {
			continue
		}
		i := cloud.Instance{ID: pod.Name, CreatedAt: pod.CreationTimestamp.Time}
		assert.NilError(t, json.Unmarshal([]byte(text), &i.Labels))
		all = append(all, there{Instance: i})
	}
	return all
}

func (b kubernetesBackend) left(t testing.TB) (names []string) {
	t.Helper()
	for _, pod := range b.pods(t) {
		if _, taken := pod.Annotations[annotationLabels]; !taken {
			names = append(names, pod.Name)
		}
	}
	return names
}

// On a machine of two processors a pod takes seconds to begin, so that there is more time
// between two blows than elsewhere.
func TestKillsOverKubernetesLoseAndDoubleNothing(t *testing.T) {
	c := cluster.Find(t)
	killReal(t, options{
		backends: []backend{kubernetesBackend{c, c.Namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})}}, clients: 1,
		pace: pace{ask: 2 * time.Minute, create: time.Minute, execute: 30 * time.Second, settle: 4 * time.Minute, look: 500 * time.Millisecond},
	}, 10, 20)
}
