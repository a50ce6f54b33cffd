// Package inside_test runs the broker in a cluster, by the manifests of examples/kubernetes as
// they are: what they are changed by is an overlay, as its README shows it.
package inside_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Names in the manifests.
const (
	brokers   = "sandbox-broker" // the namespace, and all of the broker's in it
	sandboxes = "sandboxes"
	account   = "sandbox-broker"
)

// token is the one of the tenant demo.
const token = "token-of-demo"

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// deployment is the broker in the cluster.
type deployment struct {
	*cluster.Cluster
	dir string // of the overlay
	url string // of its Service
	// began is before the broker has asked the API server for anything.
	began int
}

// deploy applies the manifests with some components, and returns when the broker is ready.
// There is one such namespace, so that no other test may do so meanwhile.
func deploy(t *testing.T, components ...string) deployment {
	t.Helper()
	return deployWith(t, nil, components...)
}

// deployWith is deploy with something to do before.
func deployWith(t *testing.T, prepare func(*testing.T, deployment), components ...string) deployment {
	t.Helper()
	c := cluster.Find(t)
	c.EnforceNetworkPolicies(t)
	work := t.TempDir()
	d := deployment{Cluster: c, dir: filepath.Join(work, "overlay"), began: c.Now(t)}
	assert.NilError(t, os.CopyFS(filepath.Join(work, "base"), os.DirFS(filepath.Join("..", "..", "..", "examples", "kubernetes"))))
	assert.NilError(t, os.Mkdir(d.dir, 0o755))
	d.configure(t, "")
	if prepare != nil {
		prepare(t, d)
	}
	// The cluster makes no volumes.
	d.write(t, "volume.yaml", fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: sandbox-broker}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: sandbox-broker, name: sandbox-broker}
  local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}
`, c.NodeDir(t), cluster.Node))
	image, tag, _ := strings.Cut(c.BrokerImage, ":")
	overlay := fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base, volume.yaml]
images: [{name: registry.example.com/sandbox-broker, newName: %s, newTag: %q}]
configMapGenerator:
  - {name: sandbox-broker, namespace: sandbox-broker, behavior: merge, files: [sandbox.hcl], options: {disableNameSuffixHash: true}}
components: [%s]
`, image, tag, strings.Join(components, ", "))
	d.write(t, "kustomization.yaml", overlay)

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			t.Log(d.log(ctx, ""))
		}
		d.kubectl(ctx, t, "delete", "--ignore-not-found", "--kustomize", d.dir)
	})
	d.kubectl(t.Context(), t, "apply", "-f", filepath.Join(work, "base", "namespaces.yaml"))
	d.kubectl(t.Context(), t, "-n", brokers, "create", "secret", "generic", "sandbox-broker", "--from-literal=demo="+digest(token))
	d.apply(t)
	service, err := c.Client.CoreV1().Services(brokers).Get(t.Context(), "sandbox-broker", metav1.GetOptions{})
	assert.NilError(t, err)
	d.url = fmt.Sprintf("http://%s:%d", service.Spec.ClusterIP, service.Spec.Ports[0].Port)
	d.waitReady(t, "")
	return d
}

// configure writes the overlay's sandbox.hcl: the example's, with the images of this cluster
// and little of a busy machine, further settings of the provider, and more behind it.
func (d deployment) configure(t *testing.T, more string, settings ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "..", "base", "sandbox.hcl"))
	assert.NilError(t, err)
	config := string(text)
	kernel := "own"
	if !d.GVisor {
		kernel = "shared"
	}
	for from, to := range map[string]string{
		"registry.example.com/sandbox-rootfs": d.Image,
		"registry.example.com/sandbox-guest":  d.GuestImage,
		`runtime_class   = "gvisor"`:          fmt.Sprintf("runtime_class = %q\n  kernel = %q\n  memory_mb = 256\n  workspace_mb = 64\n  cpu_request = 0.1\n  memory_request_mb = 64", cluster.RuntimeClass, kernel),
		"pool_size       = 2":                 "pool_size = 1\n  " + strings.Join(settings, "\n  "),
	} {
		assert.Equal(t, strings.Count(config, from), 1, "%s", from)
		config = strings.Replace(config, from, to, 1)
	}
	d.write(t, "sandbox.hcl", config+more)
}

func (d deployment) write(t *testing.T, name, content string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o600))
}

func (d deployment) apply(t *testing.T) {
	t.Helper()
	d.kubectl(t.Context(), t, "apply", "--kustomize", d.dir)
}

func (d deployment) kubectl(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", d.Kubeconfig}, args...)...)
	var said bytes.Buffer
	program.Stderr = &said
	assert.Check(t, program.Run(), "kubectl %s: %s", strings.Join(args, " "), said.String())
}

// pod is the broker's; nil if it has none that goes on.
func (d deployment) pod(ctx context.Context) (*corev1.Pod, error) {
	found, err := d.Client.CoreV1().Pods(brokers).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sandbox-broker"})
	if err != nil {
		return nil, err
	}
	for i := range found.Items {
		if found.Items[i].DeletionTimestamp == nil {
			return &found.Items[i], nil
		}
	}
	return nil, nil
}

// waitReady waits until the broker's pod, another one than before, is ready and is reached by
// its Service.
func (d deployment) waitReady(t *testing.T, before types.UID) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	d.WaitFor(t, "the broker", func(ctx context.Context) (err error) {
		pod, err = d.pod(ctx)
		switch {
		case err != nil:
			return err
		case pod == nil || pod.UID == before:
			return fmt.Errorf("there is no pod yet")
		case !cluster.Ready(pod):
			return fmt.Errorf("it is not ready: %+v\n%s", pod.Status, d.log(ctx, pod.Name))
		}
		// Its Service follows.
		_, err = d.as(token).Ready(ctx)
		return err
	})
	return pod
}

// log is what the broker said.
func (d deployment) log(ctx context.Context, name string) string {
	if name == "" {
		if pod, err := d.pod(ctx); err == nil && pod != nil {
			name = pod.Name
		}
	}
	text, err := d.Client.CoreV1().Pods(brokers).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return err.Error()
	}
	return string(text)
}

// as is the broker for a client with a token, by its Service.
func (d deployment) as(token string) *client.Client { return client.New(d.url, token) }
