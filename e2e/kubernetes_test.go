package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

// privileged are the labels of a namespace whose pods may be sandboxes.
var privileged = map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}

// kubernetesBlock is a provider block for a namespace.
func kubernetesBlock(c *cluster.Cluster, label, namespace string) string {
	kernel := "own"
	if !c.GVisor {
		kernel = "shared"
	}
	return fmt.Sprintf(`provider %q {
  plugin            = "kubernetes"
  kubeconfig        = %q
  namespace         = %q
  image             = %q
  guest_image       = %q
  runtime_class     = %q
  kernel            = %q
  pool_size         = 1
  memory_mb         = 256
  cpu_request       = 0.05
  memory_request_mb = 64
}
`, label, c.Kubeconfig, namespace, c.Image, c.GuestImage, cluster.RuntimeClass, kernel)
}

// What a provider in the process of a test cannot show: its own tests run all the rest.
func TestTheKubernetesPluginPassesTheCasesAboutProcesses(t *testing.T) {
	c := cluster.Find(t)
	block := kubernetesBlock(c, "kubernetes", c.Namespace(t, privileged))
	file := filepath.Join(t.TempDir(), "sandbox.hcl")
	assert.NilError(t, os.WriteFile(file, []byte(block), 0o600))
	bin := binaries.Dir(t)
	result := icmd.RunCommand(filepath.Join(bin, "sandbox-broker"), "plugin", "verify", "--config", file,
		"--run", "^(process|description|configure|isolation)/", filepath.Join(bin, "plugins", "kubernetes"))
	assert.NilError(t, result.Error, result.Combined())
}

// A cluster first, then Daytona, then this machine, each of which goes away and comes back. A
// session stays where it began.
func TestKubernetesThenDaytonaThenThisMachine(t *testing.T) {
	c := cluster.Find(t)
	daytona := fakeDaytona(t)
	bin := binaries.Dir(t)
	plugin := func(name string) string { return filepath.Join(bin, "plugins", name) }
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + "providers {\n  active = \"kubernetes\"\n  fallback = [\"daytona\", \"self_managed\"]\n  unclear_timeout = \"10s\"\n}\n" +
			kubernetesBlock(c, "kubernetes", c.Namespace(t, privileged)) +
			fmt.Sprintf("provider \"daytona\" {\n  api_key = %q\n  api_url = %q\n}\n", daytonafake.DefaultAPIKey, daytona.APIURL) +
			fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 1\n}\n", binaries.Runsc(t)),
		Plugins: map[string]string{"kubernetes": plugin("kubernetes"), "daytona": plugin("daytona"), "self_managed": plugin("self_managed")},
	})
	session := 0
	run := func(session int, code string) (got struct {
		routed
		Stdout string `json:"stdout"`
	},
	) {
		t.Helper()
		answer := b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{
			"language": "python", "code": code, "session_id": fmt.Sprint("s", session), "timeout": 60,
		})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
		assert.NilError(t, json.Unmarshal(answer.Body, &got))
		return got
	}
	// Who is back is asked again after a moment.
	serves := func(want string) (at int) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			session++
			code := fmt.Sprintf("open('/tmp/mine', 'w').write('of %d'); print(6 * 7)", session)
			if got := run(session, code); got.Provider != want || got.Stdout != "42\n" {
				return poll.Continue("%+v\n%s", got, b.Log())
			}
			return poll.Success()
		}, poll.WithTimeout(6*time.Minute))
		return session
	}
	stays := func(of int, where string) {
		t.Helper()
		got := run(of, "print(open('/tmp/mine').read())")
		assert.Equal(t, got.Provider, where)
		assert.Equal(t, got.Stdout, fmt.Sprintf("of %d\n", of))
	}
	first := serves("kubernetes")

	c.StopAPIServer(t)
	second := serves("daytona")
	stays(first, "kubernetes") // its pod is there, whoever else is not

	repair := daytona.Break()
	third := serves("self_managed")

	c.StartAPIServer(t)
	serves("kubernetes")
	repair()
	stays(first, "kubernetes")
	stays(second, "daytona")
	stays(third, "self_managed")

	c.StopAPIServer(t)
	serves("daytona")
	c.StartAPIServer(t)
	serves("kubernetes")
	assert.Check(t, is.Equal(strings.Count(b.Log(), daytonafake.DefaultAPIKey), 0), "the key is in the log")
}

// As docs/providers/kubernetes.md has it: a block for each tenant, in a namespace of its own,
// whose quota is the tenant's.
func TestANamespaceForEachTenantOfKubernetes(t *testing.T) {
	c := cluster.Find(t)
	namespaces := map[string]string{}
	config := ""
	for _, tenant := range []string{"acme", "rival"} {
		namespaces[tenant] = c.Namespace(t, privileged)
		config += strings.Replace(kubernetesBlock(c, "kubernetes_"+tenant, namespaces[tenant]), "pool_size         = 1", "pool_size         = 0", 1)
	}
	_, err := c.Client.CoreV1().ResourceQuotas(namespaces["rival"]).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "rival"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	assert.NilError(t, err)
	tenants := strings.NewReplacer(
		`tenant "acme"  {`, "tenant \"acme\" {\n  providers = [\"kubernetes_acme\"]\n ",
		`tenant "rival" {`, "tenant \"rival\" {\n  providers = [\"kubernetes_rival\"]\n ",
	)
	b := harness.Start(t, harness.Options{
		Config:  tenants.Replace(strings.ReplaceAll(harness.Tenants, "] }", "]\n}")) + "providers {\n  active = \"kubernetes_acme\"\n}\n" + config,
		Plugins: map[string]string{"kubernetes": filepath.Join(binaries.Dir(t), "plugins", "kubernetes")},
	})
	create := func(token string) harness.Answer {
		return b.Do(http.MethodPost, "/api/v1/instances", token, map[string]any{"language": "python"})
	}
	for _, token := range []string{harness.Token, harness.Token, harness.OtherToken} {
		answer := create(token)
		assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	}
	for tenant, want := range map[string]int{"acme": 2, "rival": 1} {
		pods, err := c.Client.CoreV1().Pods(namespaces[tenant]).List(t.Context(), metav1.ListOptions{})
		assert.NilError(t, err)
		assert.Equal(t, len(pods.Items), want, tenant)
	}
	// The cluster counts after the fact, too: before it has, it lets one more in.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		quota, err := c.Client.CoreV1().ResourceQuotas(namespaces["rival"]).Get(t.Context(), "rival", metav1.GetOptions{})
		assert.NilError(t, err)
		if used := quota.Status.Used[corev1.ResourcePods]; used.Value() != 1 {
			return poll.Continue("%s pods are counted", used.String())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	full := create(harness.OtherToken)
	assert.Equal(t, full.Status, http.StatusTooManyRequests, "%s", full.Body)
	assert.Check(t, is.Contains(string(full.Body), "exceeded quota"))
	answer := create(harness.Token)
	assert.Equal(t, answer.Status, http.StatusCreated, "it is not the other's quota: %s", answer.Body)
}

// clusterAccount is a namespace of a cluster, in which two brokers have the same secret.
func clusterAccount(t *testing.T, c *cluster.Cluster) account {
	namespace := c.Namespace(t, privileged)
	transport, err := rest.TransportFor(c.Config)
	assert.NilError(t, err)
	return account{
		plugin: "kubernetes", api: c.Config.Host, transport: transport,
		block: func(api string) string {
			to := *c
			if api != c.Config.Host {
				to.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
				config := clientcmdapi.NewConfig()
				config.Clusters["c"] = &clientcmdapi.Cluster{Server: api}
				config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
				config.CurrentContext = "x"
				assert.NilError(t, clientcmd.WriteToFile(*config, to.Kubeconfig))
			}
			block := kubernetesBlock(&to, "kubernetes", namespace)
			// A pool of its own would be changed by each, also by one that only ends.
			return strings.Replace(block, "pool_size         = 1", "pool_size         = 0\n  mode = \"pods\"\n  secret = \"what these brokers share, at least 32 characters\"", 1)
		},
		sandboxes: func() (names []string) {
			found, err := c.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "sandbox-broker.io/instance"})
			assert.NilError(t, err)
			for _, pod := range found.Items {
				names = append(names, pod.Name)
			}
			return names
		},
	}
}

// What holds for clouds holds for pods.
func TestTheInstancesOfADeadBrokerGoOnInKubernetes(t *testing.T) {
	c := cluster.Find(t)
	t.Run("adopted", func(t *testing.T) {
		t.Parallel()
		instancesAreAdopted(t, clusterAccount(t, c))
	})
	t.Run("left alone by one that stood still", func(t *testing.T) {
		t.Parallel()
		nothingIsDone(t, clusterAccount(t, c))
	})
}

// BenchmarkKubernetesHello is "hello" from a pod of the pool, and from a sandbox of the
// self-managed provider's pool on the same machine: in a fresh one that is destroyed after, and
// in a session. p50-ms is what half of the times stay below.
//
//	.ci/with-cluster go test ./e2e -run '^$' -bench KubernetesHello -benchtime 30x
func BenchmarkKubernetesHello(b *testing.B) {
	c := cluster.Find(b)
	bin := binaries.Dir(b)
	broker := harness.Start(b, harness.Options{
		Config: harness.Tenants + "metrics {\n  listen = \"127.0.0.1:0\"\n}\nproviders {\n  active = \"kubernetes\"\n}\n" +
			strings.Replace(kubernetesBlock(c, "kubernetes", c.Namespace(b, privileged)), "pool_size         = 1", "pool_size         = 4", 1) +
			fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 4\n}\n", binaries.Runsc(b)),
		Plugins: map[string]string{"kubernetes": filepath.Join(bin, "plugins", "kubernetes"), "self_managed": filepath.Join(bin, "plugins", "self_managed")},
	})
	address := metricsAddress.FindStringSubmatch(broker.Log())
	assert.Assert(b, address != nil, broker.Log())
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	b.Cleanup(client.CloseIdleConnections)
	ready := func(provider string) {
		form := regexp.MustCompile(`pool_ready_sandboxes\{provider="` + provider + `",template="python"\} [1-9]`)
		poll.WaitOn(b, func(poll.LogT) poll.Result {
			resp, err := client.Get("http://" + address[1] + "/metrics")
			assert.NilError(b, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			assert.NilError(b, err)
			if !form.Match(text) {
				return poll.Continue("no sandbox is ready")
			}
			return poll.Success()
		}, poll.WithTimeout(5*time.Minute))
	}
	hello := func(b *testing.B, body map[string]any) time.Duration {
		began := time.Now()
		answer := broker.Do(http.MethodPost, "/api/v1/execute", harness.Token, body)
		took := time.Since(began)
		assert.Equal(b, answer.Status, http.StatusOK, "%s", answer.Body)
		assert.Check(b, is.Contains(string(answer.Body), `"stdout":"hello\n"`))
		return took
	}
	report := func(b *testing.B, times []time.Duration) {
		slices.Sort(times)
		b.ReportMetric(times[len(times)/2].Seconds()*1e3, "p50-ms")
		b.ReportMetric(times[len(times)*95/100].Seconds()*1e3, "p95-ms")
	}
	for _, provider := range []string{"kubernetes", "self_managed"} {
		body := map[string]any{"language": "python", "code": "print('hello')", "provider": provider}
		b.Run("fresh/"+provider, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				ready(provider)
				times = append(times, hello(b, body))
			}
			report(b, times)
		})
		b.Run("session/"+provider, func(b *testing.B) {
			body := maps.Clone(body)
			body["session_id"] = "s-" + strings.ReplaceAll(provider, "_", "-")
			hello(b, body)
			var times []time.Duration
			for b.Loop() {
				times = append(times, hello(b, body))
			}
			report(b, times)
		})
	}
}
