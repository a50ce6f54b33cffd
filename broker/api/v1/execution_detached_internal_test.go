package v1

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestADetachedExecutionThatPanicsIsAnswered(t *testing.T) {
	acme := tenant.Tenant{Name: "acme"}
	for name, taken := range map[string]bool{"before it is taken on": false, "after that": true} {
		t.Run(name, func(t *testing.T) {
			state, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
			assert.NilError(t, err)
			keeper, err := executions.Open(executions.Options{
				Store: state, Logger: hclog.NewNullLogger(), Limits: executions.Limits{LogBytes: 1 << 20, AllBytes: 1 << 20, Time: time.Minute},
			})
			assert.NilError(t, err)
			t.Cleanup(func() {
				keeper.Close()
				assert.Check(t, state.Close())
			})
			x := executor[struct{}]{
				routes: executionRoutes{keeper: keeper},
				run: func(_ context.Context, _ rest.Call[struct{}], from hearing) (instance.Execution, error) {
					if taken {
						from.taken()
					}
					panic("of a test")
				},
			}
			e, err := x.detach(t.Context(), rest.Call[struct{}]{Tenant: acme, Timeout: time.Minute}, wanted{id: "x", detached: true})
			if !taken {
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
				assert.Equal(t, len(keeper.List(acme)), 0)
				return
			}
			assert.NilError(t, err)
			for after, ended := int64(0), false; !ended; { // it is told
				var events []executions.Event
				events, _, ended, err = e.Read(t.Context(), after)
				assert.NilError(t, err)
				after += int64(len(events))
			}
			assert.Equal(t, e.Info().State, executions.Failed)
		})
	}
}
