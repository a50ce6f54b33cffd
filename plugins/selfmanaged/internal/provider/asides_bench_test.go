package provider

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// BenchmarkPause pauses and resumes an instance with a Python context with so much data. Its
// figures are medians: of a pause, of a resume, and of the first answer of the context after it.
func BenchmarkPause(b *testing.B) {
	needsSnapshots(b)
	for _, mb := range []int{1, 50, 200} {
		for where, room := range map[string]int{"disk": 10240, "frozen": 0} {
			b.Run(fmt.Sprintf("%d MB %s", mb, where), func(b *testing.B) { benchmarkPause(b, mb, room) })
		}
	}
}

func benchmarkPause(b *testing.B, mb, room int) {
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, _ := p.Describe().Schema.Resolve(map[string]any{
		"pool_size": 0, "memory_mb": 512, "runsc": binaries.Runsc(b), "guest": filepath.Join(binaries.Dir(b), "sandbox-guest"), "paused_mb": room,
	})
	assert.NilError(b, p.Configure(b.Context(), sdk.ConfigureRequest{
		Label: "x", BrokerID: "bench" + newID(), StateDir: b.TempDir(), KeepDir: b.TempDir(), Settings: settings,
	}))
	defer func() { assert.NilError(b, p.Close(b.Context())) }()
	i, err := p.Create(b.Context(), sdk.CreateRequest{Template: templatePython})
	assert.NilError(b, err)
	python, err := p.CreateContext(b.Context(), sdk.CreateContextRequest{InstanceID: i.ID, Language: sdk.Python})
	assert.NilError(b, err)
	say := func(code string) string {
		var r recorder
		result, err := p.Execute(b.Context(), sdk.ExecuteRequest{InstanceID: i.ID, ContextID: python.ID, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
		assert.NilError(b, err)
		assert.Equal(b, result.Status, sdk.StatusSucceeded, "%s", r.err.String())
		return strings.TrimSpace(r.out.String())
	}
	say(fmt.Sprintf("import os; data = os.urandom(%d << 20)", mb))
	took := map[string][]time.Duration{}
	measure := func(what string, do func()) {
		began := time.Now()
		do()
		took[what] = append(took[what], time.Since(began))
	}
	for b.Loop() {
		measure("pause", func() { assert.NilError(b, p.Pause(b.Context(), i.ID)) })
		measure("resume", func() { assert.NilError(b, p.Resume(b.Context(), i.ID)) })
		measure("answer", func() { say("print(len(data))") })
	}
	for what, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, what+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
