package provider

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// BenchmarkSnapshot takes snapshots of a Python context with so much data and starts copies.
// Its figures are medians: how long the code in the original stood still, how long until a
// copy answers in the context, with runsc's own start of it and without, and eight at once.
func BenchmarkSnapshot(b *testing.B) {
	needsSnapshots(b)
	for _, mb := range []int{1, 50, 200} {
		b.Run(fmt.Sprintf("%d MB", mb), func(b *testing.B) { benchmarkSnapshot(b, mb) })
	}
}

func benchmarkSnapshot(b *testing.B, mb int) {
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, _ := p.Describe().Schema.Resolve(map[string]any{
		"pool_size": 0, "memory_mb": 512, "runsc": binaries.Runsc(b), "guest": filepath.Join(binaries.Dir(b), "sandbox-guest"),
	})
	assert.NilError(b, p.Configure(b.Context(), sdk.ConfigureRequest{
		Label: "x", BrokerID: "bench" + newID(), StateDir: b.TempDir(), KeepDir: b.TempDir(), Settings: settings,
	}))
	defer func() { assert.NilError(b, p.Close(b.Context())) }()
	i, err := p.Create(b.Context(), sdk.CreateRequest{Template: templatePython})
	assert.NilError(b, err)
	python, err := p.CreateContext(b.Context(), sdk.CreateContextRequest{InstanceID: i.ID, Language: sdk.Python})
	assert.NilError(b, err)
	say := func(instance, code string) string {
		var r recorder
		result, err := p.Execute(b.Context(), sdk.ExecuteRequest{InstanceID: instance, ContextID: python.ID, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
		assert.NilError(b, err)
		assert.Equal(b, result.Status, sdk.StatusSucceeded, "%s", r.err.String())
		return strings.TrimSpace(r.out.String())
	}
	say(i.ID, fmt.Sprintf(`
import os, threading, time
data = os.urandom(%d << 20)
last, longest = time.monotonic(), 0
def tick():
    global last, longest
    while True:
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
        time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()`, mb))
	took := map[string][]time.Duration{}
	measure := func(what string, do func()) {
		began := time.Now()
		do()
		took[what] = append(took[what], time.Since(began))
	}
	key := bytes.Repeat([]byte{1}, sdk.SnapshotKeyBytes)
	copies := func(s sdk.Snapshot, n int) {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				c, err := p.Create(b.Context(), sdk.CreateRequest{Snapshot: &sdk.SnapshotSource{ID: s.ID, Key: key}})
				if assert.Check(b, err) {
					say(c.ID, "print(len(data))")
				}
			})
		}
		all.Wait()
	}
	end := func() {
		for _, other := range p.instances.list() {
			if other.ID != i.ID {
				assert.NilError(b, p.Destroy(b.Context(), other.ID))
			}
		}
	}
	for b.Loop() {
		for kind, transient := range map[string]bool{"": true, "-kept": false} {
			say(i.ID, "longest = 0")
			var s sdk.Snapshot
			measure("snapshot"+kind, func() {
				s, err = p.Snapshot(b.Context(), sdk.SnapshotRequest{InstanceID: i.ID, Key: key, Transient: transient})
			})
			assert.NilError(b, err)
			halt, err := time.ParseDuration(say(i.ID, "print(longest)") + "s")
			assert.NilError(b, err)
			took["halt"] = append(took["halt"], halt)
			if transient {
				p.snapshots.mu.Lock()
				c := p.snapshots.transient[s.ID].kept.Checkpoint
				p.snapshots.mu.Unlock()
				measure("runsc-alone", func() {
					raw, err := p.snapshots.runtime.StartCopy(b.Context(), newID(), c, nil)
					assert.NilError(b, err)
					b.StopTimer()
					assert.NilError(b, raw.Destroy(b.Context()))
					b.StartTimer()
				})
				measure("eight", func() { copies(s, 8) })
				end()
			}
			measure("copy"+kind, func() { copies(s, 1) })
			end()
			assert.NilError(b, p.DeleteSnapshot(b.Context(), s.ID))
		}
	}
	for what, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
