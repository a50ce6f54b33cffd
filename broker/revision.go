package broker

import (
	"context"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// revision is one version of a provider: a plugin's executable with settings. When
// either changes another revision is started beside it, and this one serves its
// instances to their end.
type revision struct {
	*pluginhost.Supervised
	block    *config.Provider
	spec     pluginhost.Spec
	settings sdk.Settings
	// dir is the state directory of its process.
	dir string
	// witness has what is done with it taken down.
	witness *audited.Witness

	mu sync.Mutex
	// heir serves what is left when the process has ended.
	heir *revision

	// over says that there will be no heir; guarded by catalog.mu.
	over bool
}

var _ instance.Provider = (*revision)(nil)

// Provider implements instance.Provider.
func (r *revision) Provider(ctx context.Context) (sdk.Provider, error) {
	serving := r.serving()
	p, err := serving.Supervised.Provider(ctx)
	return witnessed(serving.witness, p, err)
}

// Status implements instance.Provider.
func (r *revision) Status() instance.Status {
	state := r.serving().State()
	return instance.Status{
		State:   string(state.Phase),
		Ready:   state.Healthy,
		Reason:  state.Reason,
		Details: state.Details,
	}
}

// newRevision hands a started plugin over to supervision, which configures it and
// keeps it running.
func (b *broker) newRevision(l launched) *revision {
	r := &revision{block: l.block, spec: l.spec, settings: l.settings, dir: l.stateDir, witness: audited.NewWitness(l.block.Label, b.audit)}
	// OnReady may come before Supervise has returned.
	known := make(chan struct{})
	defer close(known)
	r.Supervised = pluginhost.Supervise(b.launcher, l.spec, sdk.ConfigureRequest{
		Label:         l.block.Label,
		BrokerID:      b.state.ID(),
		StateDir:      l.stateDir,
		AbandonedDirs: l.abandoned,
		Settings:      l.settings,
	}, pluginhost.SuperviseOptions{
		First: l.process,
		OnReady: func(ctx context.Context, _ string, provider sdk.Provider) error {
			<-known
			if err := b.state.RemoveAll(l.abandoned); err != nil {
				b.logger.Warn("state directories of earlier plugins could not be removed", "provider", l.block.Label, "error", err)
			}
			l.abandoned = nil // another process may get their names
			return b.reconcile(ctx, r, provider)
		},
		Logger: b.logger.Named("plugins"),
	})
	return r
}

// stopAll ends plugins side by side.
func stopAll(ctx context.Context, revisions []*revision) {
	var group sync.WaitGroup
	for _, r := range revisions {
		group.Go(func() { r.Stop(ctx) })
	}
	group.Wait()
}
