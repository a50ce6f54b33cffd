package generation

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audited"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/launch"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// healthyTimeout is how long a new revision may take to be well.
const healthyTimeout = time.Minute

// Revision is one version of a provider: a plugin's executable with settings. When
// either changes another revision is started beside it, and this one serves its
// instances to their end.
//
// What is left on a revision whose process has ended is served by its successor, the one
// that took over from it, and by that one's successor when it has ended too. Such a chain
// ends with a provider that is removed from the configuration.
type Revision struct {
	*pluginhost.Supervised
	started launch.Started // without its first Process
	// log records what is done with it.
	log *audited.Recorder

	mu sync.Mutex
	// successor serves what is left when the process has ended.
	successor *Revision

	// final says that there will be no successor; guarded by Catalog.mu.
	final bool
}

var _ instance.Provider = (*Revision)(nil)

// Block of the configuration that it was started for.
func (r *Revision) Block() *config.Provider { return r.started.Block }

// Settings that the plugin got.
func (r *Revision) Settings() sdk.Settings { return r.started.Settings }

// Provider implements instance.Provider.
func (r *Revision) Provider(ctx context.Context) (sdk.Provider, error) {
	serving := r.serving()
	p, err := serving.Supervised.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return serving.log.Provider(p)
}

// Status implements instance.Provider.
func (r *Revision) Status() instance.Status {
	state := r.serving().State()
	return instance.Status{State: string(state.Phase), Ready: state.Healthy, Reason: state.Reason, Details: state.Details}
}

// Serves reports whether the revision is what a block asks for. A file that was
// replaced is another matter.
func (r *Revision) Serves(cfg *config.Config, block *config.Provider) bool {
	if !reflect.DeepEqual(launch.SpecOf(cfg, block), r.started.Spec) {
		return false
	}
	settings, diags := block.Settings(r.Description().Schema)
	return !diags.HasErrors() && reflect.DeepEqual(settings, r.started.Settings)
}

// serving returns the revision that serves what is left on this one: itself as long as
// it has no successor.
func (r *Revision) serving() *Revision {
	for {
		r.mu.Lock()
		successor := r.successor
		r.mu.Unlock()
		if successor == nil {
			return r
		}
		r = successor
	}
}

// follow sends calls for this revision to the one after it from now on.
func (r *Revision) follow(successor *Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.successor = successor
}

// Supervise hands started plugins over to supervision, which configures them and
// keeps them running.
func (h *Host) Supervise(started []launch.Started) (revisions []*Revision) {
	for _, s := range started {
		revisions = append(revisions, h.supervise(s))
	}
	return revisions
}

func (h *Host) supervise(s launch.Started) *Revision {
	r := &Revision{started: s, log: audited.NewRecorder(s.Block.Label, h.Audit)}
	r.started.Process = nil
	abandoned := s.Abandoned
	keep, err := h.Starter.Dirs.KeepDir(s.Block.Label)
	if err != nil { // the provider says what it cannot do without
		h.Logger.Warn("a provider cannot keep anything beyond its process", "provider", s.Block.Label, "error", err)
	}
	// OnReady may come before Supervise has returned.
	known := make(chan struct{})
	defer close(known)
	r.Supervised = pluginhost.Supervise(h.Starter.Plugins, s.Spec, sdk.ConfigureRequest{
		Label:         s.Block.Label,
		BrokerID:      h.Starter.Dirs.ID(),
		StateDir:      s.StateDir,
		AbandonedDirs: abandoned,
		KeepDir:       keep,
		Settings:      s.Settings,
	}, pluginhost.SuperviseOptions{
		First: s.Process,
		OnReady: func(ctx context.Context, _ string, provider sdk.Provider) error {
			<-known
			if err := h.Starter.Dirs.RemoveAll(abandoned); err != nil {
				h.Logger.Warn("state directories of earlier plugins could not be removed", "provider", s.Block.Label, "error", err)
			}
			abandoned = nil // another process may get their names
			return h.reconcile(ctx, r, provider)
		},
		Logger: h.Logger.Named("plugins"),
	})
	return r
}

// reconcile lets the instances agree with a provider that has started.
func (h *Host) reconcile(ctx context.Context, r *Revision, p sdk.Provider) error {
	p, err := r.log.Provider(p)
	if err != nil {
		return err
	}
	h.followNetwork(r, p)
	return h.Instances.Reconcile(origin.With(ctx, origin.Origin{Cause: origin.Reconcile}), r, p)
}

// stopAll ends plugins side by side.
func stopAll(ctx context.Context, revisions []*Revision) {
	var group sync.WaitGroup
	for _, r := range revisions {
		group.Go(func() { r.Stop(ctx) })
	}
	group.Wait()
}

// AwaitTried waits until each revision was tried. A setting that a plugin refuses is a
// mistake in the file; a back end that is down may come back, and supervision goes on.
func (h *Host) AwaitTried(ctx context.Context, revisions []*Revision) error {
	var diags config.Diagnostics
	for _, r := range revisions {
		err := r.Started(ctx)
		if sdk.CodeOf(err) == sdk.CodeInvalidConfig {
			diags = diags.With(r.diagnose(err))
		} else if err != nil && ctx.Err() == nil {
			h.Logger.Error("a provider is not ready", "provider", r.Label(), "error", err)
		}
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

// AwaitHealthy waits until each revision is well, and says of each why not.
func AwaitHealthy(ctx context.Context, revisions []*Revision) error {
	bounded, cancel := context.WithTimeout(ctx, healthyTimeout)
	defer cancel()
	problems := make([]error, len(revisions))
	var group sync.WaitGroup
	for i, r := range revisions {
		group.Go(func() { problems[i] = r.AwaitHealthy(bounded) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var diags config.Diagnostics
	for i, err := range problems {
		diags = diags.With(revisions[i].diagnose(err))
	}
	if diags.HasErrors() {
		return diags
	}
	return nil
}

func (r *Revision) diagnose(err error) config.Diagnostics {
	return r.Block().Diagnose(err, r.Description().Schema)
}
