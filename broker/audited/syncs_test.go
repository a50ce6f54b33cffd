package audited_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// confirming is a disk that confirms a sync for each value in it.
type confirming chan struct{}

type confirmedFile struct {
	audit.File
	disk confirming
}

func (f confirmedFile) Sync() error {
	<-f.disk
	return f.File.Sync()
}

func (d confirming) open(path string, fresh bool) (audit.File, error) {
	file, err := audit.OpenFile(path, fresh)
	return confirmedFile{file, d}, err
}

// stateFile is a journal of quotas and of instances on a disk.
type stateFile struct {
	instance.Journal // nil: a one-shot that ends with its provider's process writes nothing
	disk             confirming
}

func (stateFile) Load() (map[string]quota.Record, quota.Position, error) {
	return nil, quota.Position{}, nil
}

func (s stateFile) Save(context.Context, map[string]quota.Record, quota.Position) error {
	<-s.disk
	return nil
}

// described is a provider under a name that is none of its methods'.
type described = instancetest.Provider

// recorded is a provider whose calls come to the log.
type recorded struct {
	*described
	calls sdk.Provider
}

func (p recorded) Provider(context.Context) (sdk.Provider, error) { return p.calls, nil }

// More syncs than this one never come before the answer: the disk confirms no other. Those
// of what nobody waits for come when the test lets them.
func TestAOneShotIsAnsweredAfterOneSync(t *testing.T) {
	log, state := make(confirming, 1), make(confirming, 1)
	log <- struct{}{}
	a, err := audit.Open(audit.Options{Dir: filepath.Join(scratch.Dir(t), "audit"), Logger: hclog.NewNullLogger(), Open: log.open})
	assert.NilError(t, err)
	file := stateFile{disk: state}
	keeper, err := quota.NewKeeper(quota.Options{
		Journal: file,
		Rules: quota.Rules{
			Tenants: map[string]quota.Limits{"acme": {ExecutionsPerDay: 100, ExecutionTimePerDay: time.Hour, MoneyPerDay: quota.MoneyOf(100)}},
			Costs:   map[string]quota.Money{"box": quota.MoneyOf(0.01)},
		},
	})
	assert.NilError(t, err)
	state <- struct{}{}
	keeper.Follow(t.Context(), a)
	calls, err := audited.NewRecorder("box", a).Provider(&everything{})
	assert.NilError(t, err)
	limits := instancetest.Limits()
	s := instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{recorded{&described{Name: "box"}, calls}}, Limits: limits,
		Logger: hclog.NewNullLogger(), Quotas: keeper, Journal: file,
	})
	defer func() {
		close(log)
		close(state)
		s.Shutdown(context.Background())
		keeper.Close()
		assert.NilError(t, a.Close(context.Background()))
	}()
	ctx := origin.With(t.Context(), origin.Origin{Cause: origin.Request, Tenant: "acme"})
	log <- struct{}{}
	_, err = s.Run(ctx, tenant.Tenant{Name: "acme"}, instance.RunRequest{
		ExecuteRequest: instance.ExecuteRequest{Language: string(sdk.Python), Code: "print(1)", Timeout: time.Second},
	})
	assert.NilError(t, err)
}
