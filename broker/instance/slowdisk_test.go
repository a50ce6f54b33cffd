package instance_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// slowFile is a file on a disk that takes its time, in nanoseconds, to confirm.
type slowFile struct {
	audit.File
	takes *atomic.Int64
}

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(f.takes.Load())) // of the bubble's clock
	return f.File.Sync()
}

// The time of an execution begins when the audit log has its line; until then it waits
// for the disk, and not for its provider.
func TestASlowDiskIsNoProviderWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		disk    time.Duration
		takes   time.Duration
		refused bool
	}{
		"the disk takes its time, and the code too": {disk: 6 * time.Second, takes: 12 * time.Second},
		"the disk takes too long":                   {disk: 30 * time.Second, takes: 7 * time.Second, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(scratch.Dir(t), "audit")
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				var disk atomic.Int64
				log, err := audit.Open(audit.Options{
					Dir: dir, Logger: hclog.NewNullLogger(), Detail: audit.Detail{Patience: time.Hour},
					Open: func(path string, fresh bool) (audit.File, error) {
						file, err := audit.OpenFile(path, fresh)
						return slowFile{file, &disk}, err
					},
				})
				assert.NilError(t, err)
				disk.Store(int64(test.disk))
				first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
					r, err := log.Begin(ctx, audit.Effect{Operation: "execute_code"})
					if err != nil {
						return sdk.ExecuteResult{}, err
					}
					time.Sleep(6 * time.Second) // of the bubble's clock
					assert.NilError(t, ctx.Err())
					return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, r.End(audit.Outcome{Status: "succeeded"})
				}
				req := run("python")
				req.Timeout = 2 * time.Second // and 5 more to answer
				began := time.Now()
				_, err = s.Run(t.Context(), acme, req)
				assert.Equal(t, time.Since(began), test.takes)
				if !test.refused {
					assert.NilError(t, err)
				} else {
					assertCode(t, err, sdk.CodeUnavailable)
					assert.ErrorContains(t, err, "the audit log cannot be written in time, since the broker's disk is slow")
					fault, ok := errors.AsType[*instance.Fault](err)
					assert.Assert(t, ok && !fault.Begun, "%v", err)
				}
				disk.Store(0)
				assert.NilError(t, log.Close(t.Context()))
			})
		})
	}
}
