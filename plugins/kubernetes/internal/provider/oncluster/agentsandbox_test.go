package oncluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	claims    = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"}
	warmPools = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxwarmpools"}
	templates = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxtemplates"}
)

// claimed are settings for pods that agent-sandbox makes, with others on top.
func claimed(c *cluster.Cluster, namespace string, more map[string]any) map[string]any {
	settings := given(c, namespace, map[string]any{"mode": "agent-sandbox", "pool_size": 1})
	for name, value := range more {
		settings[name] = value
	}
	return settings
}

// objects are those of a kind in a namespace.
func objects(ctx context.Context, t testing.TB, c *cluster.Cluster, namespace string, of schema.GroupVersionResource) []unstructured.Unstructured {
	t.Helper()
	list, err := c.Dynamic.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
	assert.NilError(t, err)
	return list.Items
}

// awaitReady waits until the only pool of a namespace has so many pods ready, of so many.
func awaitReady(t *testing.T, c *cluster.Cluster, namespace string, ready, of int64) {
	t.Helper()
	c.WaitFor(t, "the pool", func(ctx context.Context) error {
		list, err := c.Dynamic.Resource(warmPools).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		replicas, _, _ := unstructured.NestedInt64(list.Items[0].Object, "spec", "replicas")
		got, _, _ := unstructured.NestedInt64(list.Items[0].Object, "status", "readyReplicas")
		if got != ready || replicas != of {
			return fmt.Errorf("%d are ready of %d", got, replicas)
		}
		return nil
	})
}

func awaitNone(t *testing.T, c *cluster.Cluster, namespace string, of schema.GroupVersionResource) {
	t.Helper()
	c.WaitFor(t, of.Resource, func(ctx context.Context) error {
		list, err := c.Dynamic.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

// configure tries settings, which may be refused.
func configure(t *testing.T, settings map[string]any) (*provider.Provider, error) {
	t.Helper()
	p := provider.New(hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testLog{t}})).(*provider.Provider)
	resolved, problems := p.Describe().Schema.Resolve(settings)
	assert.Assert(t, is.Len(problems, 0))
	err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "kubernetes", BrokerID: "b", StateDir: t.TempDir(), Settings: resolved})
	t.Cleanup(func() { assert.Check(t, p.Close(context.WithoutCancel(t.Context()))) })
	return p, err
}

func modeOf(t *testing.T, p *provider.Provider) string {
	t.Helper()
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	return health.Details["mode"]
}

func refusesMode(t *testing.T, settings map[string]any, code sdk.Code, says string) {
	t.Helper()
	_, err := configure(t, settings)
	e, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "%v", err)
	assert.Check(t, is.Equal(e.Field, "mode"))
	assert.Check(t, is.Equal(e.Code, code))
	assert.Check(t, is.ErrorContains(err, says))
}

// Tests of agent-sandbox are one, for it is installed for the whole cluster.
func TestAgentSandbox(t *testing.T) {
	c := cluster.Find(t)
	t.Run("is not there", func(t *testing.T) {
		refusesMode(t, claimed(c, c.Namespace(t, privileged), nil), sdk.CodeInvalidConfig, "install agent-sandbox v0.5 or later")
		p, err := configure(t, given(c, c.Namespace(t, privileged), nil))
		assert.NilError(t, err)
		assert.Equal(t, modeOf(t, p), "pods")
	})
	c.InstallAgentSandbox(t)
	t.Run("is used where it is found", func(t *testing.T) { testClaims(t, c) })
	t.Run("needs few rights", func(t *testing.T) { testRightsForClaims(t, c) })
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster)
	}{
		{"has instances that survive the process", testClaimsSurvive},
		{"ends what nobody looks after", testClaimsExpire},
		{"ends an instance with its pod", testClaimLosesItsPod},
		{"gives no pod to two", testClaimsAreNotShared},
		{"keeps pods ready", testWarmPool},
		{"is swept", testWarmPoolIsSwept},
		{"says why there is no pod", testClaimsInVain},
		{"is quick", measureClaims},
		{"does what every provider does", testConformanceOfClaims},
		{"has no controller", testNoController},
	} {
		t.Run(test.name, func(t *testing.T) {
			tier.Full(t)
			test.run(t, c)
		})
	}
}

func testClaims(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	p := begin(t, t.TempDir(), "claims", claimed(c, namespace, map[string]any{"mode": "auto"}))
	assert.Equal(t, modeOf(t, p.Provider), "agent-sandbox")
	awaitReady(t, c, namespace, 1, 1)
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", TTL: time.Hour, Env: map[string]string{"GREETING": "hello"}, Labels: map[string]string{
		sdk.LabelTenant: "acme", sdk.LabelSession: "s", sdk.LabelInstance: "i", sdk.LabelBroker: p.broker,
	}})
	assert.NilError(t, err)
	assert.Equal(t, p.run(t, i.ID, sdk.Python, "import os; print(os.environ['GREETING'])"), "hello\n")
	assert.Equal(t, p.run(t, i.ID, sdk.JavaScript, "console.log(6 * 7)"), "42\n")
	assert.Equal(t, p.run(t, i.ID, sdk.Bash, "env | grep -E 'KUBERNETES|SANDBOX_GUEST'; ls /var/run/secrets 2>/dev/null; id -u"), "1000\n")
	assert.Equal(t, p.run(t, i.ID, sdk.Python, `
import socket
for where in ("10.96.0.1", 443), ("127.0.0.1", 8077):
    s = socket.socket(); s.settimeout(3)
    try:
        s.connect(where); print("reached", where)
    except OSError as e:
        print(type(e).__name__)
`), "OSError\nConnectionRefusedError\n")

	claim := objects(t.Context(), t, c, namespace, claims)
	assert.Assert(t, is.Len(claim, 1))
	shutdown := func() time.Time {
		got, err := c.Dynamic.Resource(claims).Namespace(namespace).Get(t.Context(), i.ID, metav1.GetOptions{})
		assert.NilError(t, err)
		text, _, _ := unstructured.NestedString(got.Object, "spec", "lifecycle", "shutdownTime")
		at, err := time.Parse(time.RFC3339, text)
		assert.NilError(t, err)
		return at
	}
	within := func(at, of time.Time) bool { return !at.Before(of) && at.Before(of.Add(time.Minute)) }
	assert.Assert(t, within(shutdown(), i.ExpiresAt), "the controller ends it at %v, and it is to end at %v", shutdown(), i.ExpiresAt)
	at, err := p.SetTTL(t.Context(), i.ID, 2*time.Hour)
	assert.NilError(t, err)
	assert.Assert(t, within(shutdown(), at))

	listed, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 1))
	assert.Equal(t, listed[0].Labels[sdk.LabelTenant], "acme")
	pods, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	for _, pod := range pods.Items {
		for _, container := range pod.Spec.Containers {
			for _, variable := range container.Env {
				assert.Check(t, variable.Name != "GREETING", "who reads pods reads a variable")
			}
		}
	}
	began := time.Now()
	assert.NilError(t, p.Destroy(t.Context(), i.ID))
	t.Logf("the end of an instance took %v", time.Since(began).Round(time.Millisecond))
	awaitNone(t, c, namespace, claims)
	assert.NilError(t, p.Destroy(t.Context(), i.ID), "again")
	for _, template := range []string{"nodejs", "bash"} {
		other, err := p.Create(t.Context(), sdk.CreateRequest{Template: template})
		assert.NilError(t, err)
		assert.Equal(t, other.Template, template)
		assert.Assert(t, other.ExpiresAt.IsZero())
		assert.NilError(t, p.Destroy(t.Context(), other.ID))
	}
}

func testClaimsSurvive(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	dir, settings := t.TempDir(), claimed(c, namespace, nil)
	first := begin(t, dir, "survivor", settings)
	id := create(t, first, map[string]string{"SECRET": "of the instance"})
	assert.Equal(t, first.run(t, id, sdk.Bash, "echo mine > /workspace/file"), "")
	second := begin(t, dir, "survivor", settings) // while the first is there, as after kill -9 it might be
	listed, err := second.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 1))
	assert.Equal(t, listed[0].ID, id)
	assert.Equal(t, second.run(t, id, sdk.Bash, "cat /workspace/file; echo $SECRET"), "mine\nof the instance\n")
	assert.NilError(t, first.Close(t.Context()))
	assert.Equal(t, second.run(t, id, sdk.Bash, "cat /workspace/file"), "mine\n", "without the pool that it is from")

	other := begin(t, t.TempDir(), "neighbour", settings)
	listed, err = other.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 0))
	assert.NilError(t, other.Destroy(t.Context(), id), "it is not there")
	assert.Equal(t, second.run(t, id, sdk.Bash, "cat /workspace/file"), "mine\n")

	// Whichever way comes next, the instance is there.
	plain := begin(t, dir, "survivor", claimed(c, namespace, map[string]any{"mode": "pods", "pool_size": 0}))
	assert.Equal(t, modeOf(t, plain.Provider), "pods")
	assert.Equal(t, plain.run(t, id, sdk.Bash, "cat /workspace/file"), "mine\n")
	pod := create(t, plain, nil)
	third := begin(t, dir, "survivor", settings)
	assert.Equal(t, third.run(t, pod, sdk.Bash, "echo well"), "well\n")
	listed, err = third.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 2))
	assert.NilError(t, third.Destroy(t.Context(), pod))
	assert.NilError(t, third.Destroy(t.Context(), id))
	listed, err = third.List(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(listed, 0))
}

func testClaimsExpire(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	p := begin(t, t.TempDir(), "expiry", claimed(c, namespace, nil))
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", TTL: 3 * time.Second})
	assert.NilError(t, err)
	assert.NilError(t, p.Close(t.Context()))
	awaitNone(t, c, namespace, warmPools)
	awaitNone(t, c, namespace, templates)
	awaitNone(t, c, namespace, claims)
	c.WaitFor(t, "its pod", func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return err
	})
}

// podOf is the pod of an instance.
func podOf(t *testing.T, c *cluster.Cluster, namespace, id string) *corev1.Pod {
	t.Helper()
	claim, err := c.Dynamic.Resource(claims).Namespace(namespace).Get(t.Context(), id, metav1.GetOptions{})
	assert.NilError(t, err)
	name, _, _ := unstructured.NestedString(claim.Object, "status", "sandbox", "name")
	pod, err := c.Client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	assert.NilError(t, err)
	return pod
}

func testClaimLosesItsPod(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	dir, settings := t.TempDir(), claimed(c, namespace, map[string]any{"max_sandboxes": 2})
	p := begin(t, dir, "loser", settings)
	remove := func(pod *corev1.Pod) {
		assert.Check(t, c.Client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	t.Run("while code runs", func(t *testing.T) {
		id := create(t, p, nil)
		pod := podOf(t, c, namespace, id)
		var once sync.Once
		var removing sync.WaitGroup
		defer removing.Wait()
		result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import time; print('begun', flush=True); time.sleep(1000)", Timeout: 2 * time.Minute, OutputLimit: 1 << 20},
			told(func() { once.Do(func() { removing.Go(func() { remove(pod) }) }) }))
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusCancelled)
		awaitNone(t, c, namespace, claims) // though the controller would have made another pod
		_, err = p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "true", Timeout: time.Minute, OutputLimit: 1 << 20}, &recorder{})
		assert.ErrorContains(t, err, "no such instance")
	})
	t.Run("while nobody looks", func(t *testing.T) {
		id := create(t, p, nil)
		pod := podOf(t, c, namespace, id)
		assert.NilError(t, p.Close(t.Context()))
		remove(pod)
		c.WaitForPod(t, namespace, pod.Name, func(now *corev1.Pod) bool { return now.UID != pod.UID && cluster.Ready(now) })
		next := begin(t, dir, "loser", settings)
		listed, err := next.List(t.Context())
		assert.NilError(t, err)
		assert.Assert(t, is.Len(listed, 0))
		_, err = next.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "true", Timeout: time.Minute, OutputLimit: 1 << 20}, &recorder{})
		assert.ErrorContains(t, err, "no such instance")
		awaitNone(t, c, namespace, claims)
	})
}

func testClaimsAreNotShared(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	settings := claimed(c, namespace, map[string]any{"pool_size": 2, "max_sandboxes": 4})
	brokers := []process{begin(t, t.TempDir(), "one", settings), begin(t, t.TempDir(), "two", settings)}
	var mu sync.Mutex
	made, uids := map[string]string{}, map[string]string{}
	var creating sync.WaitGroup
	for _, p := range brokers {
		for n := range 3 {
			creating.Go(func() {
				for range 2 { // the same key again
					i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "bash", IdempotencyKey: fmt.Sprint(p.broker, n)})
					if !assert.Check(t, err) {
						return
					}
					mu.Lock()
					if by, had := made[i.ID]; had && by != fmt.Sprint(p.broker, n) {
						t.Errorf("%s was handed to %s and %s%d", i.ID, by, p.broker, n)
					}
					made[i.ID] = fmt.Sprint(p.broker, n)
					mu.Unlock()
				}
			})
		}
	}
	creating.Wait()
	assert.Equal(t, len(made), 6)
	for _, p := range brokers {
		listed, err := p.List(t.Context())
		assert.NilError(t, err)
		assert.Equal(t, len(listed), 3)
		for _, i := range listed {
			uid := string(podOf(t, c, namespace, i.ID).UID)
			assert.Check(t, uids[uid] == "", "two have one pod")
			uids[uid] = i.ID
			assert.Check(t, p.Destroy(t.Context(), i.ID))
		}
	}
}

func testWarmPool(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	p := begin(t, t.TempDir(), "pool", claimed(c, namespace, map[string]any{"pool_size": 2, "max_sandboxes": 3, "queue_timeout": "3s"}))
	awaitReady(t, c, namespace, 2, 2)
	var ids []string
	for _, left := range []int64{2, 1, 0} {
		ids = append(ids, create(t, p, nil))
		awaitReady(t, c, namespace, left, left)
	}
	_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeCreateFailed)
	assert.ErrorContains(t, err, "no sandbox became free")
	assert.NilError(t, p.Destroy(t.Context(), ids[0]))
	awaitReady(t, c, namespace, 1, 1)

	// Somebody deletes what the pods are made from.
	for _, of := range []schema.GroupVersionResource{templates, warmPools} {
		for _, object := range objects(t.Context(), t, c, namespace, of) {
			assert.NilError(t, c.Dynamic.Resource(of).Namespace(namespace).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}))
		}
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
		if err != nil {
			return poll.Continue("%v", err)
		}
		ids = append(ids, i.ID)
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(200*time.Millisecond))
	assert.Equal(t, p.run(t, ids[3], sdk.Bash, "echo well"), "well\n")
	assert.Equal(t, p.run(t, ids[1], sdk.Bash, "echo well"), "well\n")
	for _, id := range ids[1:] {
		assert.NilError(t, p.Destroy(t.Context(), id))
	}

	assert.NilError(t, p.Drain(t.Context()))
	awaitReady(t, c, namespace, 0, 0)
	assert.NilError(t, p.Close(t.Context()))
	assert.Equal(t, len(objects(t.Context(), t, c, namespace, warmPools)), 0)
	pods, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	assert.Equal(t, len(pods.Items), 0)
}

func testWarmPoolIsSwept(t *testing.T, c *cluster.Cluster) {
	namespace := c.Namespace(t, privileged)
	settings := claimed(c, namespace, nil)
	dir := t.TempDir()
	begin(t, dir, "broker", settings)
	before := objects(t.Context(), t, c, namespace, warmPools)
	assert.Assert(t, is.Len(before, 1))
	begin(t, t.TempDir(), "neighbour", settings)
	both := objects(t.Context(), t, c, namespace, warmPools)
	assert.Assert(t, is.Len(both, 2))
	begin(t, dir, "broker", settings) // the first was killed, as far as this one knows
	c.WaitFor(t, "the sweep", func(ctx context.Context) error {
		now, err := c.Dynamic.Resource(warmPools).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for _, pool := range now.Items {
			names[pool.GetName()] = true
		}
		for _, pool := range both {
			if swept := pool.GetName() == before[0].GetName(); names[pool.GetName()] == swept {
				return fmt.Errorf("%v are there", names)
			}
		}
		return nil
	})
}

func testClaimsInVain(t *testing.T, c *cluster.Cluster) {
	for name, test := range map[string]struct {
		settings map[string]any
		code     sdk.Code
		says     string
	}{
		"an image that is not there": {map[string]any{"image": "localhost/absent:1"}, sdk.CodeCreateFailed, "cannot be used: ErrImage"},
		"no room":                    {map[string]any{"cpus": 100, "cpu_request": 100, "create_timeout": "5s"}, sdk.CodeQuotaExceeded, "Insufficient cpu"},
		"a quota":                    {map[string]any{"pool_size": 0}, sdk.CodeQuotaExceeded, "exceeded quota"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := c.Namespace(t, privileged)
			if name == "a quota" {
				_, err := c.Client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
				}, metav1.CreateOptions{})
				assert.NilError(t, err)
				c.WaitFor(t, "the quota", func(ctx context.Context) error {
					quota, err := c.Client.CoreV1().ResourceQuotas(namespace).Get(ctx, "none", metav1.GetOptions{})
					if err == nil && quota.Status.Hard == nil {
						err = errors.New("it is not enforced yet")
					}
					return err
				})
			}
			p := begin(t, t.TempDir(), "vain", claimed(c, namespace, test.settings))
			_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.Check(t, is.Equal(sdk.CodeOf(err), test.code), "%v", err)
			assert.Check(t, is.ErrorContains(err, test.says))
			awaitNone(t, c, namespace, claims)
		})
	}
}

// How long a creation takes when pods are ready, both ways, with nothing else to do.
func measureClaims(t *testing.T, c *cluster.Cluster) {
	const times = 7
	for _, mode := range []string{"agent-sandbox", "pods"} {
		namespace := c.Namespace(t, privileged)
		p := begin(t, t.TempDir(), "measure", claimed(c, namespace, map[string]any{"mode": mode, "pool_size": 2}))
		var creations, executions, ends []time.Duration
		for range times {
			c.WaitFor(t, "a pod that is ready", func(ctx context.Context) error {
				health, err := p.Health(ctx)
				if err != nil {
					return err
				}
				for _, metric := range health.Metrics {
					if ready := metric.Name == "warm_pool_prepared_sandboxes" || metric.Name == "pool_ready_sandboxes" && metric.Labels["template"] == "python"; ready && metric.Value > 0 {
						return nil
					}
				}
				return fmt.Errorf("%v", health.Details)
			})
			began := time.Now()
			id := create(t, p, nil)
			creations = append(creations, time.Since(began))
			began = time.Now()
			assert.Equal(t, p.run(t, id, sdk.Python, "print('hello')"), "hello\n")
			executions = append(executions, time.Since(began))
			began = time.Now()
			assert.NilError(t, p.Destroy(t.Context(), id))
			ends = append(ends, time.Since(began))
		}
		slices.Sort(creations)
		slices.Sort(executions)
		slices.Sort(ends)
		t.Logf("%s: a creation takes %v (median of %d; %v to %v), the first execution %v, the end %v", mode, creations[times/2].Round(time.Millisecond), times,
			creations[0].Round(time.Millisecond), creations[times-1].Round(time.Millisecond), executions[times/2].Round(time.Millisecond), ends[times/2].Round(time.Millisecond))
		assert.NilError(t, p.Close(t.Context()))
	}
}

func testNoController(t *testing.T, c *cluster.Cluster) {
	c.StopAgentSandbox(t)
	defer c.StartAgentSandbox(t)
	namespace := c.Namespace(t, privileged)
	refusesMode(t, claimed(c, namespace, nil), sdk.CodeUnavailable, "the controller of agent-sandbox does not answer")
	p, err := configure(t, claimed(c, namespace, map[string]any{"mode": "auto"}))
	assert.NilError(t, err)
	assert.Equal(t, modeOf(t, p), "pods")
	left := objects(t.Context(), t, c, namespace, warmPools)
	left = slices.DeleteFunc(left, func(o unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	assert.Assert(t, is.Len(left, 0))
	_, err = c.Dynamic.Resource(warmPools).Namespace(namespace).Get(t.Context(), "absent", metav1.GetOptions{})
	assert.Assert(t, apierrors.IsNotFound(err))
}
