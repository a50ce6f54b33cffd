package oncluster_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// asProcess has this program be a plugin's process, whose memory is nobody else's.
const asProcess = "ONCLUSTER_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		if err := serveOrders(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// order is what the process is to do; the field that is set says it.
type order struct {
	Configure map[string]any
	StateDir  string
	Create    int
	TTL       time.Duration // of those that are made
	Extend    []string      // to an hour
	Replace   int           // so many instances end and others take their place
	List      int
	End       []string // instances
	Measure   string   // where the heap's profile goes
}

// report is what came of an order.
type report struct {
	Error      string
	IDs        []string
	Listed     int
	HeapBytes  uint64 // after a collection
	Goroutines int
}

// serveOrders is the process: one order after the other, each a line of JSON.
func serveOrders(in io.Reader, out io.Writer) error {
	ctx := context.Background()
	p := provider.New(hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})).(*provider.Provider)
	lines := json.NewDecoder(in)
	var made []string
	for {
		var o order
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			return p.Close(ctx)
		} else if err != nil {
			return err
		}
		var r report
		err := func() error {
			if o.Configure != nil {
				resolved, problems := p.Describe().Schema.Resolve(o.Configure)
				if len(problems) > 0 {
					return fmt.Errorf("%v", problems)
				}
				if err := p.Configure(ctx, sdk.ConfigureRequest{Label: "kubernetes", BrokerID: "scale", StateDir: o.StateDir, Settings: resolved}); err != nil {
					return err
				}
			}
			fresh, err := createMany(ctx, p, o.Create, o.TTL)
			if err != nil {
				return err
			}
			made = append(made, fresh...)
			for done := 0; done < o.Replace; done += replacedAtOnce {
				group, of := errgroup.WithContext(ctx)
				for _, id := range made[:replacedAtOnce] {
					group.Go(func() error { return p.Destroy(of, id) })
				}
				group.Go(func() error {
					fresh, err := createMany(of, p, replacedAtOnce, o.TTL)
					made = append(made[replacedAtOnce:], fresh...)
					return err
				})
				if err := group.Wait(); err != nil {
					return err
				}
			}
			for _, id := range o.Extend {
				if _, err := p.SetTTL(ctx, id, time.Hour); err != nil {
					return err
				}
			}
			for range o.List {
				all, err := p.List(ctx)
				if err != nil {
					return err
				}
				r.Listed = len(all)
			}
			group, of := errgroup.WithContext(ctx)
			group.SetLimit(20)
			for _, id := range o.End {
				group.Go(func() error { return p.Destroy(of, id) })
			}
			return group.Wait()
		}()
		if err != nil {
			r.Error = err.Error()
		}
		if o.Measure != "" {
			runtime.GC()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			r.HeapBytes, r.Goroutines = stats.HeapAlloc, runtime.NumGoroutine()
			profile, err := os.Create(o.Measure)
			if err != nil {
				return err
			}
			if err := errors.Join(pprof.WriteHeapProfile(profile), profile.Close()); err != nil {
				return err
			}
		}
		r.IDs = slices.Clone(made)
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
}

// replacedAtOnce is how many instances are replaced at once.
const replacedAtOnce = 10

func createMany(ctx context.Context, p *provider.Provider, n int, ttl time.Duration) ([]string, error) {
	var mu sync.Mutex
	var made []string
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for range n {
		group.Go(func() error {
			i, err := p.Create(ctx, sdk.CreateRequest{Template: "python", Labels: map[string]string{
				sdk.LabelTenant: "acme", sdk.LabelSession: "a session of some length", sdk.LabelInstance: "an-instance-of-it", sdk.LabelBroker: "scale",
			}, Env: map[string]string{"SOME": "thing"}, TTL: ttl})
			mu.Lock()
			defer mu.Unlock()
			made = append(made, i.ID)
			return err
		})
	}
	return made, group.Wait()
}

// separate is the process, as the test has it.
type separate struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSeparate(t *testing.T) *separate {
	t.Helper()
	self, err := os.Executable()
	assert.NilError(t, err)
	s := &separate{cmd: exec.Command(self)}
	s.cmd.Env = append(os.Environ(), asProcess+"=1")
	s.cmd.Stderr = testLog{t}
	s.in, err = s.cmd.StdinPipe()
	assert.NilError(t, err)
	out, err := s.cmd.StdoutPipe()
	assert.NilError(t, err)
	s.out = bufio.NewReader(out)
	assert.NilError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.in.Close()
		if s.cmd.ProcessState == nil {
			assert.Check(t, s.cmd.Wait())
		}
	})
	return s
}

// kill ends the process as kill -9 does.
func (s *separate) kill(t *testing.T) {
	t.Helper()
	assert.NilError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // it was killed
}

func (s *separate) do(t *testing.T, o order) report {
	t.Helper()
	assert.NilError(t, json.NewEncoder(s.in).Encode(o))
	line, err := s.out.ReadBytes('\n')
	assert.NilError(t, err)
	var r report
	assert.NilError(t, json.Unmarshal(line, &r))
	assert.Equal(t, r.Error, "")
	return r
}

// memory is a line of a process's smaps_rollup, in bytes.
func (s *separate) memory(t *testing.T, of string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.cmd.Process.Pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == of+":" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			assert.NilError(t, err)
			return n << 10
		}
	}
	t.Fatalf("no %s in %s", of, text)
	return 0
}

// What a thousand instances, beside a thousand pods of others in the namespace, cost the
// plugin and the API server. The bounds hold on any machine; the figures are logged, and
// ONCLUSTER_PROFILES names a directory for profiles of the heap.
func TestAThousandInstances(t *testing.T) {
	tier.Full(t)
	const (
		instances, neighbours = 1000, 1000
		replaced, lists       = 300, 10
		// heapEach is twice what was measured.
		heapEach = 100 << 10
		listPage = 500
	)
	c := cluster.Find(t)
	namespace := c.Namespace(t, privileged)
	runLightNode(t, c)
	proxy := before(t, c, true)
	var neighbour sync.Map
	addNeighbour := func(ctx context.Context) error {
		pod := c.Pod("", "sleep", "1000")
		pod.GenerateName, pod.Spec.NodeName = "neighbour-", lightNodeName
		pod.Labels = map[string]string{pods.LabelManagedBy: "sandbox-broker", pods.LabelOwner: pods.OwnerOf("neighbour", "kubernetes")}
		made, err := c.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err == nil {
			neighbour.Store(made.Name, true)
		}
		return err
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(20)
	for range neighbours {
		group.Go(func() error { return addNeighbour(ctx) })
	}
	assert.NilError(t, group.Wait())

	plugin := startSeparate(t)
	dir := cmp.Or(os.Getenv("ONCLUSTER_PROFILES"), t.TempDir())
	state := t.TempDir()
	measure := func(when string) report {
		r := plugin.do(t, order{Measure: filepath.Join(dir, when)})
		t.Logf("%s: heap %.1f MiB, RSS %.1f MiB, PSS %.1f MiB, %d goroutines", when, mib(int64(r.HeapBytes)), mib(plugin.memory(t, "Rss")), mib(plugin.memory(t, "Pss")), r.Goroutines)
		return r
	}
	plugin.do(t, order{StateDir: state, Configure: given(c, namespace, light(map[string]any{
		"kubeconfig": proxy.kubeconfig, "pool_size": 0, "max_sandboxes": instances + 2*replacedAtOnce, "create_timeout": "10m", "queue_timeout": "10m",
	}))})
	counted := proxy.counts()
	since := func(what string) map[string]int {
		now := proxy.counts()
		calls := map[string]int{}
		var text []string
		for _, of := range slices.Sorted(maps.Keys(now.calls)) {
			calls[of] = now.calls[of] - counted.calls[of]
			text = append(text, fmt.Sprintf("%s %d calls and %.2f MiB", of, calls[of], mib(now.bytes[of]-counted.bytes[of])))
		}
		t.Logf("%s: %s", what, strings.Join(text, "; "))
		counted = now
		return calls
	}
	empty := measure("empty")
	began := time.Now()
	plugin.do(t, order{Create: instances, TTL: time.Hour})
	took := time.Since(began)
	t.Logf("%d instances in %s", instances, took)
	calls := since("made")
	// A call each, and what is asked once more where the machine is slow.
	assert.Check(t, is.Equal(calls["POST"], instances))
	assert.Check(t, is.Equal(calls["PATCH"], instances))
	assert.Check(t, is.Equal(calls["DELETE"], 0))
	assert.Check(t, is.Equal(calls["LIST"], 0))
	assert.Check(t, calls["WATCH"] <= 1+int(took/(5*time.Minute)), "%d", calls["WATCH"])
	full := measure("full")
	each := (int64(full.HeapBytes) - int64(empty.HeapBytes)) / instances
	t.Logf("heap for each instance: %d KiB", each>>10)
	assert.Check(t, each < heapEach, "%d", each)

	listed := plugin.do(t, order{List: lists})
	assert.Check(t, is.Equal(listed.Listed, instances))
	calls = since("listed")
	assert.Check(t, is.Equal(calls["LIST"], lists*instances/listPage))

	// Neighbours come, change and go at the same time, of which the plugin is told nothing.
	churning, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	churned := 0
	others.Go(func() {
		neighbour.Range(func(name, _ any) bool {
			text := []byte(`{"metadata":{"annotations":{"changed":"` + strconv.Itoa(churned) + `"}}}`)
			_, err := c.Client.CoreV1().Pods(namespace).Patch(churning, name.(string), types.MergePatchType, text, metav1.PatchOptions{})
			if err == nil {
				err = c.Client.CoreV1().Pods(namespace).Delete(churning, name.(string), metav1.DeleteOptions{})
			}
			if err == nil {
				err = addNeighbour(churning)
			}
			if err == nil {
				churned++
			}
			return churning.Err() == nil
		})
	})
	began = time.Now()
	made := plugin.do(t, order{Replace: replaced, TTL: time.Hour})
	took = time.Since(began)
	stop()
	others.Wait()
	t.Logf("%d instances replaced in %s, %.1f pods made or ended a second, and %.1f of neighbours", replaced, took, 2*replaced/took.Seconds(), 3*float64(churned)/took.Seconds())
	calls = since("replaced")
	assert.Check(t, is.Equal(calls["POST"], replaced))
	assert.Check(t, is.Equal(calls["PATCH"], replaced))
	assert.Check(t, is.Equal(calls["DELETE"], replaced))
	assert.Check(t, is.Equal(calls["LIST"], 0))
	assert.Check(t, calls["WATCH"] <= 1+int(took/(5*time.Minute)), "%d", calls["WATCH"])
	after := measure("after")
	assert.Check(t, int64(after.HeapBytes)-int64(empty.HeapBytes) < instances*heapEach, "what has ended is not forgotten: %d", after.HeapBytes)
	assert.Equal(t, len(made.IDs), instances)

	plugin.do(t, order{End: made.IDs})
	left(t, c, namespace, "scale")
	assert.NilError(t, c.Client.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.WaitFor(t, "no neighbours", func(ctx context.Context) error {
		found, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(found.Items) > 0 {
			err = fmt.Errorf("%s is there", found.Items[0].Name)
		}
		return err
	})
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
