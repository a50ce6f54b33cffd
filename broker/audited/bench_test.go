package audited_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// BenchmarkOneShot is what the log costs an execution in an instance of its own up to the
// answer, and with the destruction after it, as effects of their own and as one.
func BenchmarkOneShot(b *testing.B) {
	asked := origin.With(context.Background(), origin.Origin{Cause: origin.Request, Tenant: "acme"})
	over := origin.With(context.Background(), origin.Origin{Cause: origin.NotKept})
	whole := sdk.ExecuteRequest{InstanceID: "i-1", ExecutionID: "x-1", Language: sdk.Python, Code: "print(1)"}
	for _, covered := range []bool{false, true} {
		b.Run(fmt.Sprintf("covered=%v", covered), func(b *testing.B) {
			log, err := audit.Open(audit.Options{Dir: filepath.Join(scratch.Dir(b), "audit"), Logger: hclog.NewNullLogger()})
			assert.NilError(b, err)
			defer func() { assert.NilError(b, log.Close(context.Background())) }()
			p, err := audited.NewRecorder("box", log).Provider(&everything{})
			assert.NilError(b, err)
			creating := asked
			if covered {
				creating = effect.MadeFor(asked, whole)
			}
			before := log.State().Lines
			for b.Loop() {
				_, err := p.Create(creating, sdk.CreateRequest{Labels: labels})
				assert.NilError(b, err)
				_, err = p.Execute(asked, whole, nil)
				assert.NilError(b, err)
				assert.NilError(b, p.Destroy(over, "i-1"))
			}
			b.ReportMetric(float64(log.State().Lines-before)/float64(b.N), "lines/op")
		})
	}
}
