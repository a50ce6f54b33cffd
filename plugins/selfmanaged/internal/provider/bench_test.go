package provider

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// BenchmarkWarm takes a ready sandbox, runs hello world in it and gives it back;
// the time for the pool to be full again does not count.
func BenchmarkWarm(b *testing.B) {
	for _, c := range []struct {
		template string
		language sdk.Language
		code     string
	}{
		{templatePython, sdk.Python, "print(1)"},
		{templateNode, sdk.JavaScript, "console.log(1)"},
		{templateBash, sdk.Bash, "echo 1"},
	} {
		b.Run(c.template, func(b *testing.B) {
			p := New(hclog.NewNullLogger()).(*Provider)
			settings, _ := p.Describe().Schema.Resolve(map[string]any{
				"pool_size": 3, "runsc": binaries.Runsc(b), "guest": filepath.Join(binaries.Dir(b), "sandbox-guest"),
			})
			assert.NilError(b, p.Configure(b.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "bench" + newID(), StateDir: b.TempDir(), Settings: settings}))
			defer func() { assert.NilError(b, p.Close(b.Context())) }()
			for b.Loop() {
				b.StopTimer()
				poll.WaitOn(b, func(poll.LogT) poll.Result {
					if s := p.pool.Stats(); s.Ready[c.template] > 0 && s.Making == 0 {
						return poll.Success()
					}
					return poll.Continue("filling")
				}, poll.WithDelay(5*time.Millisecond), poll.WithTimeout(2*time.Minute))
				b.StartTimer()
				i, err := p.Create(b.Context(), sdk.CreateRequest{Template: c.template})
				assert.NilError(b, err)
				var r recorder
				_, err = p.Execute(b.Context(), sdk.ExecuteRequest{InstanceID: i.ID, Language: c.language, Code: c.code, Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
				assert.NilError(b, err)
				b.StopTimer()
				assert.Equal(b, r.out.String(), "1\n")
				assert.NilError(b, p.Destroy(b.Context(), i.ID))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkSession runs hello world again and again in one sandbox.
func BenchmarkSession(b *testing.B) {
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, _ := p.Describe().Schema.Resolve(map[string]any{
		"pool_size": 0, "runsc": binaries.Runsc(b), "guest": filepath.Join(binaries.Dir(b), "sandbox-guest"),
	})
	assert.NilError(b, p.Configure(b.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "bench" + newID(), StateDir: b.TempDir(), Settings: settings}))
	defer func() { assert.NilError(b, p.Close(b.Context())) }()
	i, err := p.Create(b.Context(), sdk.CreateRequest{Template: templatePython})
	assert.NilError(b, err)
	for b.Loop() {
		var r recorder
		_, err = p.Execute(b.Context(), sdk.ExecuteRequest{InstanceID: i.ID, Language: sdk.Python, Code: "print(1)", Timeout: time.Minute, OutputLimit: 1 << 20}, &r)
		assert.NilError(b, err)
		assert.Equal(b, r.out.String(), "1\n")
	}
}
