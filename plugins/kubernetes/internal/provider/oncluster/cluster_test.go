package oncluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// privileged are the labels of a namespace whose pods may be sandboxes.
var privileged = map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}

// given are settings for a cluster, with others on top.
func given(c *cluster.Cluster, namespace string, more map[string]any) map[string]any {
	settings := map[string]any{
		"kubeconfig": c.Kubeconfig, "namespace": namespace, "image": c.Image, "guest_image": c.GuestImage, "runtime_class": cluster.RuntimeClass,
		"pool_size": 0, "memory_mb": 256, "workspace_mb": 64, "cpu_request": 0.1, "memory_request_mb": 64,
	}
	if !c.GVisor {
		settings["kernel"] = "shared"
	}
	maps.Copy(settings, more)
	return settings
}

// process is a provider as one process of the plugin has it.
type process struct {
	*provider.Provider
	dir, broker, namespace string
}

// begin configures a provider, which is closed after the test.
func begin(t *testing.T, dir, broker string, settings map[string]any) process {
	t.Helper()
	p := provider.New(hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testLog{t}})).(*provider.Provider)
	resolved, problems := p.Describe().Schema.Resolve(settings)
	assert.Assert(t, is.Len(problems, 0))
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "kubernetes", BrokerID: broker, StateDir: dir, Settings: resolved}))
	t.Cleanup(func() { assert.Check(t, p.Close(context.WithoutCancel(t.Context()))) })
	return process{p, dir, broker, settings["namespace"].(string)}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

type recorder struct{ out, err bytes.Buffer }

func (r *recorder) Stdout(p []byte) error     { r.out.Write(p); return nil }
func (r *recorder) Stderr(p []byte) error     { r.err.Write(p); return nil }
func (*recorder) Artifact(sdk.Artifact) error { return nil }

// run runs code, which must succeed, and returns what it prints.
func (p process) run(t *testing.T, id string, language sdk.Language, code string) string {
	t.Helper()
	var r recorder
	result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: language, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded, "%+v %s", result, r.err.String())
	return r.out.String()
}

func create(t *testing.T, p process, env map[string]string) string {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Env: env, Labels: map[string]string{
		sdk.LabelTenant: "acme", sdk.LabelSession: t.Name(), sdk.LabelInstance: "i", sdk.LabelBroker: p.broker,
	}})
	assert.NilError(t, err)
	return i.ID
}

func TestCodeRunsInAPodAndReachesNothing(t *testing.T) {
	c := cluster.Find(t)
	p := begin(t, t.TempDir(), "hello", given(c, c.Namespace(t, privileged), nil))
	id := create(t, p, map[string]string{"GREETING": "hello"})
	assert.Equal(t, p.run(t, id, sdk.Python, "import os; print(os.environ['GREETING'])"), "hello\n")
	assert.Equal(t, p.run(t, id, sdk.JavaScript, "console.log(6 * 7)"), "42\n")
	t.Run("with nothing of Kubernetes", func(t *testing.T) {
		assert.Equal(t, p.run(t, id, sdk.Bash, "env | grep -E 'KUBERNETES|SANDBOX_GUEST'; ls /var/run/secrets 2>/dev/null; id -u"), "1000\n")
	})
	t.Run("without a network", func(t *testing.T) {
		const reach = `
import socket
for where in ("10.96.0.1", 443), ("127.0.0.1", 8077), ("10.200.0.1", 10250), ("169.254.169.254", 80):
    s = socket.socket(); s.settimeout(3)
    try:
        s.connect(where); print("reached", where)
    except OSError as e:
        print(type(e).__name__)
`
		assert.Equal(t, p.run(t, id, sdk.Python, reach), "OSError\nConnectionRefusedError\nOSError\nOSError\n")
	})
	t.Run("and a port of its own is reached", func(t *testing.T) {
		command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"python3", "-m", "http.server", "8000", "-d", "/workspace"}})
		assert.NilError(t, err)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			conn, err := p.DialPort(t.Context(), id, 8000)
			if err != nil {
				return poll.Continue("%v", err)
			}
			assert.Check(t, conn.Close())
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
		assert.NilError(t, p.SignalCommand(t.Context(), id, command.ID, "SIGKILL"))
	})
	assert.NilError(t, p.Destroy(t.Context(), id))
	left, err := p.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
	_, err = p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "true", Timeout: time.Minute, OutputLimit: 1 << 20}, &recorder{})
	assert.ErrorContains(t, err, "no such instance")
}

// What a process has made, the next one uses, and it ends what nobody has.
func TestInstancesSurviveTheProcess(t *testing.T) {
	c := cluster.Find(t)
	dir, settings := t.TempDir(), given(c, c.Namespace(t, privileged), map[string]any{"pool_size": 1})
	first := begin(t, dir, "survivor", settings)
	namespace := first.namespace
	id := create(t, first, map[string]string{"SECRET": "of the instance"})
	assert.Equal(t, first.run(t, id, sdk.Bash, "echo mine > /workspace/file"), "")
	command, err := first.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: id, Argv: []string{"sleep", "1000"}})
	assert.NilError(t, err)
	of, err := first.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: id, Language: sdk.Python})
	assert.NilError(t, err)
	var r recorder
	_, err = first.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, ContextID: of.ID, Code: "x = 41", Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
	assert.NilError(t, err)
	pods, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	assert.NilError(t, err)
	for _, pod := range pods.Items {
		text, err := json.Marshal(pod)
		assert.NilError(t, err)
		assert.Check(t, !bytes.Contains(text, []byte("of the instance")), "who reads pods reads a variable")
	}

	second := begin(t, dir, "survivor", settings) // while the first is there, as after kill -9 it might be
	listed, err := second.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(listed), 1)
	assert.Equal(t, listed[0].ID, id)
	assert.Equal(t, listed[0].Labels[sdk.LabelTenant], "acme")
	assert.Equal(t, second.run(t, id, sdk.Bash, "cat /workspace/file; echo $SECRET"), "mine\nof the instance\n")
	commands, err := second.ListCommands(t.Context(), id)
	assert.NilError(t, err)
	assert.Equal(t, len(commands), 1)
	assert.Equal(t, commands[0].ID, command.ID)
	assert.Equal(t, commands[0].State, sdk.CommandRunning)
	r = recorder{}
	_, err = second.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, ContextID: of.ID, Code: "print(x + 1)", Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
	assert.NilError(t, err)
	assert.Equal(t, r.out.String(), "42\n")
	assert.NilError(t, second.Destroy(t.Context(), id))

	other := begin(t, t.TempDir(), "neighbour", settings)
	listed, err = other.List(t.Context())
	assert.NilError(t, err)
	assert.Equal(t, len(listed), 0)
}

func TestWhyAPodEndedIsTold(t *testing.T) {
	c := cluster.Find(t)
	// There is room for one: each must give its place back, however it ends.
	p := begin(t, t.TempDir(), "endings", given(c, c.Namespace(t, privileged), map[string]any{"max_sandboxes": 1}))
	namespace := p.namespace
	during := func(t *testing.T, end func(id string)) (sdk.ExecuteResult, error) {
		t.Helper()
		id := create(t, p, nil)
		began := make(chan struct{})
		var once sync.Once
		var ending sync.WaitGroup
		defer ending.Wait()
		ending.Go(func() {
			<-began
			end(id)
		})
		return p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import time; print('begun', flush=True); time.sleep(1000)", Timeout: 2 * time.Minute, OutputLimit: 1 << 20},
			told(func() { once.Do(func() { close(began) }) }))
	}
	t.Run("destroyed", func(t *testing.T) {
		result, err := during(t, func(id string) { assert.Check(t, p.Destroy(t.Context(), id)) })
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusCancelled)
	})
	t.Run("deleted by somebody else", func(t *testing.T) {
		result, err := during(t, func(id string) {
			assert.Check(t, c.Client.CoreV1().Pods(namespace).Delete(t.Context(), id, metav1.DeleteOptions{}))
		})
		assert.NilError(t, err)
		assert.Equal(t, result.Status, sdk.StatusCancelled)
	})
	t.Run("evicted", func(t *testing.T) {
		_, err := during(t, func(id string) {
			assert.Check(t, c.Client.CoreV1().Pods(namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: namespace}}))
		})
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
		assert.ErrorContains(t, err, "EvictionByEvictionAPI")
	})
	assert.NilError(t, p.Destroy(t.Context(), create(t, p, nil)))
}

// told is called for output.
type told func()

func (f told) Stdout([]byte) error       { f(); return nil }
func (told) Stderr([]byte) error         { return nil }
func (told) Artifact(sdk.Artifact) error { return nil }

func TestSettingsThatCannotWorkAreRefusedAtTheStart(t *testing.T) {
	c := cluster.Find(t)
	restricted := c.Namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	fine := c.Namespace(t, privileged)
	for name, test := range map[string]struct {
		settings map[string]any
		field    string
	}{
		"a namespace that forbids it":      {map[string]any{"namespace": restricted}, "namespace"},
		"a namespace that is not there":    {map[string]any{"namespace": "absent"}, "namespace"},
		"a runtime class that is not":      {map[string]any{"runtime_class": "absent"}, "runtime_class"},
		"a kubeconfig that is not there":   {map[string]any{"kubeconfig": "/absent"}, "kubeconfig"},
		"a service account that is absent": {map[string]any{"service_account": "absent"}, "service_account"},
	} {
		t.Run(name, func(t *testing.T) {
			p := provider.New(hclog.NewNullLogger())
			resolved, problems := p.Describe().Schema.Resolve(given(c, fine, test.settings))
			assert.Assert(t, is.Len(problems, 0))
			err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "kubernetes", BrokerID: "b", StateDir: t.TempDir(), Settings: resolved})
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Check(t, is.Equal(e.Field, test.field), "%v", err)
			assert.Check(t, p.(sdk.Closer).Close(t.Context()))
		})
	}
}

func TestWhatAPodWaitsForIsTold(t *testing.T) {
	c := cluster.Find(t)
	for name, test := range map[string]struct {
		settings map[string]any
		code     sdk.Code
		says     string
	}{
		"an image that is not there": {map[string]any{"image": "localhost/absent:1"}, sdk.CodeCreateFailed, "cannot be used: ErrImage"},
		"no room":                    {map[string]any{"cpus": 100, "cpu_request": 100, "create_timeout": "5s"}, sdk.CodeQuotaExceeded, "Insufficient cpu"},
		"no such node":               {map[string]any{"node_selector": map[string]any{"is": "nowhere"}, "create_timeout": "5s"}, sdk.CodeQuotaExceeded, "didn't match"},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, t.TempDir(), "waiting", given(c, c.Namespace(t, privileged), test.settings))
			_, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
			assert.Check(t, is.Equal(sdk.CodeOf(err), test.code), "%v", err)
			assert.Check(t, is.ErrorContains(err, test.says))
		})
	}
}

// Without a kernel of the pod's own the guest leaves off what only such a one confines, and
// code reaches nothing all the same.
func TestCodeRunsUnderTheNodesKernel(t *testing.T) {
	c := cluster.Find(t)
	p := begin(t, t.TempDir(), "shared", given(c, c.Namespace(t, privileged), map[string]any{"kernel": "shared", "runtime_class": ""}))
	h, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, h.Details["weaker"] != "", "it is told")
	id := create(t, p, map[string]string{"GREETING": "hello"})
	assert.Equal(t, p.run(t, id, sdk.Python, "import os; print(os.environ['GREETING'])"), "hello\n")
	assert.Equal(t, p.run(t, id, sdk.JavaScript, "console.log(6 * 7)"), "42\n")
	assert.Equal(t, p.run(t, id, sdk.Bash, "id -u; grep -c . /proc/net/route; test -w /etc/passwd || echo protected"), "1000\n1\nprotected\n")
	const reach = `
import socket
s = socket.socket(); s.settimeout(3)
try:
    s.connect(("10.96.0.1", 443)); print("reached")
except OSError as e:
    print(type(e).__name__)
`
	assert.Equal(t, p.run(t, id, sdk.Python, reach), "OSError\n")
	assert.NilError(t, p.Destroy(t.Context(), id))
}

// A broker outside of the cluster reaches pods by the API server.
func TestCodeRunsByWayOfTheAPIServer(t *testing.T) {
	c := cluster.Find(t)
	p := begin(t, t.TempDir(), "outside", given(c, c.Namespace(t, privileged), map[string]any{"reach": "api"}))
	id := create(t, p, nil)
	assert.Equal(t, p.run(t, id, sdk.Python, "print(6 * 7)"), "42\n")
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: id, Path: "/workspace/large"}, bytes.NewReader(large))
	assert.NilError(t, err)
	_, content, err := p.ReadFile(t.Context(), sdk.ReadFileRequest{InstanceID: id, Path: "/workspace/large"})
	assert.NilError(t, err)
	got, err := io.ReadAll(content)
	assert.NilError(t, err)
	assert.NilError(t, content.Close())
	assert.Assert(t, bytes.Equal(got, large))
	assert.NilError(t, p.Destroy(t.Context(), id))
}

// Of many who take what is ready, each gets a pod of its own.
func TestNoPodIsHandedOutTwice(t *testing.T) {
	c := cluster.Find(t)
	settings := given(c, c.Namespace(t, privileged), map[string]any{"pool_size": 2, "max_sandboxes": 4})
	brokers := []process{begin(t, t.TempDir(), "one", settings), begin(t, t.TempDir(), "two", settings)}
	var mu sync.Mutex
	made := map[string]string{}
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
			assert.Check(t, p.Destroy(t.Context(), i.ID))
		}
	}
}

func TestInstancesGoOnWithoutTheAPIServer(t *testing.T) {
	tier.Full(t)
	c := cluster.Find(t)
	// The node takes its time until it asks the API server again.
	p := begin(t, t.TempDir(), "away", given(c, c.Namespace(t, privileged), map[string]any{"queue_timeout": "5m", "create_timeout": "5m"}))
	id := create(t, p, nil)
	doomed := create(t, p, nil)
	c.StopAPIServer(t)
	since := time.Now()
	assert.Equal(t, p.run(t, id, sdk.Python, "print(1)"), "1\n")
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, !health.Healthy)
	_, err = p.Create(t.Context(), sdk.CreateRequest{Template: "python"})
	away, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && away.Code == sdk.CodeConnectionFailed && away.NoEffect, "nobody waits, and another provider is asked: %v", err)
	_, err = p.List(t.Context())
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "an old list would be taken for the truth: %v", err)
	err = p.Destroy(t.Context(), doomed)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed, "%v", err)
	// An execution lasts for all of half a minute without it.
	assert.Equal(t, p.run(t, id, sdk.Python, "import time; time.sleep(30); print(2)"), "2\n")
	assert.Assert(t, time.Since(since) >= 30*time.Second)
	c.StartAPIServer(t)
	other := create(t, p, nil)
	assert.Equal(t, p.run(t, other, sdk.Python, "print(2)"), "2\n")
	assert.Equal(t, p.run(t, id, sdk.Python, "print(3)"), "3\n")
	assert.NilError(t, p.Destroy(t.Context(), doomed))
	assert.NilError(t, p.Destroy(t.Context(), other))
	assert.NilError(t, p.Destroy(t.Context(), id))
	left(t, c, p.namespace, "away")
}
