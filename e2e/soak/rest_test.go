package soak_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// figure is something that must not grow.
type figure struct {
	name string
	// slack is what the runtime, or the state of a pool, may add to it.
	slack float64
	unit  string
	of    func(t testing.TB, o observed) float64
}

// figures are of a broker at rest.
func figures() []figure {
	const mib = 1 << 20
	return []figure{
		{"goroutines of the broker", 10, "", func(_ testing.TB, o observed) float64 { return o.metrics["go_goroutines"] }},
		// The runtime keeps the threads that it once needed.
		{"threads of the broker", 16, "", func(t testing.TB, o observed) float64 { return threads(t, o.broker.PID) }},
		{"descriptors of the broker", 5, "", func(t testing.TB, o observed) float64 { return float64(harness.Descriptors(t, o.broker.PID)) }},
		{"memory of the broker", 64 * mib, "MiB", func(t testing.TB, o observed) float64 { return anonymous(t, o.broker.PID) }},
		{"heap of the broker", 32 * mib, "MiB", func(_ testing.TB, o observed) float64 { return o.metrics["go_memstats_heap_alloc_bytes"] }},
		{"plugins", 0, "", func(t testing.TB, o observed) float64 { return float64(len(plugins(t, o.broker))) }},
		{"processes below the broker", 0, "", func(t testing.TB, o observed) float64 { return float64(len(descendants(t, o.broker.PID))) }},
		{"descriptors of the plugins", 10, "", func(t testing.TB, o observed) float64 {
			return sumOf(t, plugins(t, o.broker), func(t testing.TB, pid int) float64 { return float64(harness.Descriptors(t, pid)) })
		}},
		{"memory of the plugins", 64 * mib, "MiB", func(t testing.TB, o observed) float64 { return sumOf(t, plugins(t, o.broker), anonymous) }},
		{"directories and sockets below the broker's", 2, "", func(t testing.TB, o observed) float64 { return entries(t, o.broker.Dir) }},
	}
}

// observed is a broker with what its metrics said at one moment.
type observed struct {
	broker  *harness.Broker
	metrics map[string]float64
}

var metricsAddress = regexp.MustCompile(`metrics: address=(\S+)`)

// observer reads the metrics of a broker whose log has said where they are.
type observer struct {
	broker *harness.Broker
	url    string
}

func newObserver(t testing.TB, b *harness.Broker) observer {
	t.Helper()
	found := metricsAddress.FindStringSubmatch(b.Log())
	assert.Assert(t, found != nil, b.Log())
	return observer{b, "http://" + found[1] + "/metrics"}
}

// look takes all figures.
func (o observer) look(t testing.TB) map[string]float64 {
	t.Helper()
	o.broker.CloseIdleConnections()
	seen := observed{o.broker, o.read(t)}
	taken := map[string]float64{}
	for _, f := range figures() {
		taken[f.name] = f.of(t, seen)
	}
	return taken
}

func (o observer) read(t testing.TB) map[string]float64 {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 4 * time.Minute}
	resp, err := client.Get(o.url)
	assert.NilError(t, err)
	defer resp.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, text, found := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); found && err == nil {
			values[name] = value
		}
	}
	return values
}

// rest waits until nothing that a load or a change leaves for a while is there any
// more: a process for each of the providers, one sandbox ready.
func (o observer) rest(t testing.TB, providers int) map[string]float64 {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		o.broker.CloseIdleConnections()
		if n := len(plugins(t, o.broker)); n != providers {
			return poll.Continue("%d plugins", n)
		}
		values := o.read(t)
		const pool = "sandbox_provider_self_managed_pool_"
		if values[pool+`in_use_sandboxes{provider="self_managed"}`] != 0 || values[pool+`making_sandboxes{provider="self_managed"}`] != 0 {
			return poll.Continue("the pool is at work")
		}
		return poll.Success()
	}, poll.WithTimeout(3*time.Minute), poll.WithDelay(200*time.Millisecond))
	return o.look(t)
}

// awaitNoGrowth waits until every figure is what it was before, but for its slack,
// and returns the least that was seen of each.
func (o observer) awaitNoGrowth(t testing.TB, providers int, before map[string]float64) map[string]float64 {
	t.Helper()
	least := o.rest(t, providers)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for name, value := range o.look(t) {
			least[name] = min(least[name], value)
		}
		var grown []string
		for _, f := range figures() {
			if least[f.name] > before[f.name]+f.slack {
				grown = append(grown, fmt.Sprintf("%s: %.0f, %.0f before", f.name, least[f.name], before[f.name]))
			}
		}
		if len(grown) > 0 {
			return poll.Continue("grown: %s\n%s", strings.Join(grown, "; "), commands(t, o.broker))
		}
		return poll.Success()
	}, poll.WithTimeout(4*time.Minute), poll.WithDelay(time.Second))
	return least
}

// descendants are the processes below one, but for those inside of sandboxes.
func descendants(t testing.TB, pid int) (below []harness.Process) {
	t.Helper()
	children := map[int][]harness.Process{}
	for _, p := range harness.Processes(t) {
		children[p.Parent] = append(children[p.Parent], p)
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			next = append(next, p.PID)
			if p.Command != "" { // else it is a part of what runs inside a sandbox
				below = append(below, p)
			}
		}
	}
	return below
}

func commands(t testing.TB, b *harness.Broker) string {
	t.Helper()
	var text strings.Builder
	for _, p := range descendants(t, b.PID) {
		fmt.Fprintln(&text, p.PID, p.Parent, p.Command[:min(len(p.Command), 150)])
	}
	return text.String()
}

// plugins are those of the broker.
func plugins(t testing.TB, b *harness.Broker) (pids []int) {
	t.Helper()
	for _, p := range harness.Plugins(t, b.PID) {
		pids = append(pids, p.PID)
	}
	return pids
}

func sumOf(t testing.TB, pids []int, of func(t testing.TB, pid int) float64) (sum float64) {
	t.Helper()
	for _, pid := range pids {
		sum += of(t, pid)
	}
	return sum
}

func threads(t testing.TB, pid int) float64 { return inStatus(t, pid, "Threads: %d") }

// anonymous is the memory of a process that is its own, in bytes.
func anonymous(t testing.TB, pid int) float64 { return inStatus(t, pid, "RssAnon: %d kB") * 1024 }

func inStatus(t testing.TB, pid int, format string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		var n int
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return float64(n)
		}
	}
	t.Fatalf("process %d tells no %s", pid, format)
	return 0
}

// entries counts what a broker keeps for its plugins: their state directories, and
// the sockets. What is in a sandbox's own directory comes and goes.
func entries(t testing.TB, dir string) (count float64) {
	t.Helper()
	for _, pattern := range []string{"state/*", "state/providers/*/*", "sandbox-broker-*", "sandbox-broker-*/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		assert.NilError(t, err)
		count += float64(len(found))
	}
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			count++
		}
		return nil // what goes while one looks is gone
	})
	assert.NilError(t, err)
	return count
}
