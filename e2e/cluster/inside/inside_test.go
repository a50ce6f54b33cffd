package inside_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// One deployment serves all of it, for a start of the broker takes its time.
func TestTheBrokerRunsInTheCluster(t *testing.T) {
	d := deploy(t)
	demo := d.as(token)

	t.Run("code runs in a pod", func(t *testing.T) {
		ran, err := demo.Execute(t.Context(), client.ExecuteRequest{Language: "python", Code: "print(6 * 7)", WaitMS: 60_000})
		assert.NilError(t, err)
		assert.Equal(t, ran.Stdout, "42\n", "%+v", ran)
	})
	kept := session(t, demo, "kept")
	_, err := demo.ExecuteIn(t.Context(), kept.ID, client.InstanceExecuteRequest{Language: "python", Context: "default", Code: "x = 41\nopen('/workspace/file', 'w').write('mine')"})
	assert.NilError(t, err)

	t.Run("and nobody else reaches it", func(t *testing.T) { d.confined(t) })
	t.Run("a change of the ConfigMap is a change of the broker", func(t *testing.T) { d.reloads(t) })
	t.Run("the next pod of the broker has the instances of the one before", func(t *testing.T) {
		for how, kill := range map[string]metav1.DeleteOptions{
			"killed":           {GracePeriodSeconds: new(int64(0))},
			"ended in order":   {},
			"killed once more": {GracePeriodSeconds: new(int64(0))},
		} {
			before := d.waitReady(t, "")
			assert.NilError(t, d.Client.CoreV1().Pods(brokers).Delete(t.Context(), before.Name, kill))
			d.waitReady(t, before.UID)
			ran, err := demo.ExecuteIn(t.Context(), kept.ID, client.InstanceExecuteRequest{Language: "python", Context: "default", Code: "print(x + 1, open('/workspace/file').read())"})
			assert.NilError(t, err, how)
			assert.Equal(t, ran.Stdout, "42 mine\n", "%s: %+v", how, ran)
		}
	})
	assert.NilError(t, demo.DestroyInstance(t.Context(), kept.ID))
	t.Run("the broker has the rights that it uses, and no other", func(t *testing.T) { d.rights(t) })
}

// session makes an instance that is kept.
func session(t *testing.T, c *client.Client, name string) client.Instance {
	t.Helper()
	made, err := c.CreateInstance(t.Context(), client.CreateInstanceRequest{SessionID: name, Language: "python", TTL: 3600, WaitMS: 60_000})
	assert.NilError(t, err)
	return made
}

// confined has a pod of somebody else's try to reach a sandbox, which the policies forbid, and
// the broker, which they allow.
func (d deployment) confined(t *testing.T) {
	found, err := d.Client.CoreV1().Pods(sandboxes).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	found.Items = slices.DeleteFunc(found.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil || pod.Status.PodIP == "" })
	assert.Assert(t, len(found.Items) > 0)
	broker, err := d.pod(t.Context())
	assert.NilError(t, err)
	stranger := d.Run(t, d.Namespace(t, nil), d.Pod("stranger", "sleep", "infinity"))
	reaches := func(address string, port int) string {
		out, err := d.Exec(t.Context(), stranger, nil, "python3", "-c", fmt.Sprintf(`
import socket
try:
    socket.create_connection((%q, %d), 3); print("reached")
except OSError as e:
    print(type(e).__name__)`, address, port))
		assert.NilError(t, err)
		return strings.TrimSpace(out.Stdout)
	}
	// The rules of a new pod follow its start.
	d.WaitFor(t, "the broker for a stranger", func(context.Context) error {
		if got := reaches(broker.Status.PodIP, 9385); got != "reached" {
			return errors.New(got)
		}
		return nil
	})
	sandbox := found.Items[0]
	assert.Check(t, reaches(sandbox.Status.PodIP, 8077) != "reached", sandbox.Name)
	// It is the policies that keep it away.
	for _, name := range []string{"nothing", "from-the-broker"} {
		assert.NilError(t, d.Client.NetworkingV1().NetworkPolicies(sandboxes).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	d.WaitFor(t, "a sandbox without policies for a stranger", func(context.Context) error {
		if got := reaches(sandbox.Status.PodIP, 8077); got != "reached" {
			return errors.New(got)
		}
		return nil
	})
	d.apply(t)
}

// reloads gives the configuration another tenant, and takes it away; then the tenant of the
// Secret gets another token, and the one before again.
func (d deployment) reloads(t *testing.T) {
	const other = "another-token"
	pod := d.waitReady(t, "")
	known := func(token string, is bool) {
		t.Helper()
		d.look(t, pod)
		d.WaitFor(t, fmt.Sprintf("%s is known: %v", token, is), func(ctx context.Context) error {
			_, err := d.as(token).Usage(ctx)
			problem, refused := errors.AsType[*client.Problem](err)
			if is && err == nil || !is && refused && problem.Status == http.StatusUnauthorized {
				return nil
			}
			return fmt.Errorf("it is answered %w", err)
		})
	}
	known(other, false)
	d.configure(t, fmt.Sprintf("\ntenant \"other\" {\n  token_sha256 = [%q]\n}\n", digest(other)))
	d.apply(t)
	known(other, true)
	d.configure(t, "")
	d.apply(t)
	known(other, false)
	for _, digested := range []string{other, token} {
		patch := fmt.Appendf(nil, `{"stringData": {"demo": %q}}`, digest(digested))
		_, err := d.Client.CoreV1().Secrets(brokers).Patch(t.Context(), "sandbox-broker", types.MergePatchType, patch, metav1.PatchOptions{})
		assert.NilError(t, err)
		known(other, digested == other)
		known(token, digested == token)
	}
	now := d.waitReady(t, "")
	assert.Equal(t, now.UID, pod.UID)
	assert.Equal(t, now.Status.ContainerStatuses[0].RestartCount, int32(0))
}

// look has the kubelet look after a pod: it does so once a minute, or when the pod changes.
func (d deployment) look(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	note := fmt.Appendf(nil, `{"metadata": {"annotations": {"looked": %q}}}`, time.Now())
	_, err := d.Client.CoreV1().Pods(brokers).Patch(t.Context(), pod.Name, types.MergePatchType, note, metav1.PatchOptions{})
	assert.NilError(t, err)
}

// rights compares the Role with what the API server says that the broker has asked for.
func (d deployment) rights(t *testing.T) {
	role, err := d.Client.RbacV1().Roles(sandboxes).Get(t.Context(), account, metav1.GetOptions{})
	assert.NilError(t, err)
	given := map[cluster.Call]bool{}
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					given[cluster.Call{Verb: verb, Group: group, Resource: resource, Namespace: sandboxes}] = true
				}
			}
		}
	}
	used, forbidden := d.Calls(t, d.began, brokers, account)
	assert.Check(t, is.DeepEqual(used, given))
	assert.Check(t, is.Len(slices.Collect(maps.Keys(forbidden)), 0))
	// What the pods of the sandboxes have asked for, who have no token.
	for _, name := range []string{"sandbox", "default"} {
		used, forbidden := d.Calls(t, d.began, sandboxes, name)
		assert.Check(t, len(used)+len(forbidden) == 0, "%v %v", used, forbidden)
	}
}
