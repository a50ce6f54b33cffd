// Package instance is the flow of the requests for sandboxes: it finds a provider, has an
// instance made or finds the session's, runs code in it and destroys it. It knows nothing
// of HTTP, of configuration files or of plugin processes.
//
// Start with Service. Which instances there are, and in which state each is, is in package
// registry; package reconcile brings that into agreement with the providers. A request
// looks for a provider (search.go; the choice itself is package routing's), claims an
// instance there and may have it made (creation.go); a creation without a clear answer is
// resolved (ambiguous.go). What must be known when this process is no more goes through a
// Journal (journal.go).
package instance

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Limits bound what one request may ask for.
type Limits struct {
	// Output in bytes, for stdout and for stderr each.
	Output int64
	// Artifacts of an execution; each names its own Files.
	Artifacts sdk.ArtifactLimits
	// DefaultTimeout of an execution that names none, and MaxTimeout.
	DefaultTimeout, MaxTimeout time.Duration
	// CreateTimeout bounds the creation of an instance on one provider, waiting until
	// that is ready included, but not Wait for a turn.
	CreateTimeout time.Duration
	// DefaultTTL of an instance whose creator named none.
	DefaultTTL time.Duration
	// MaxLifetime bounds an instance's life, renewals and use included. What
	// runs at its end may finish.
	MaxLifetime time.Duration
	// MaxIdle is the longest idle limit that a creator may name, and the one
	// of who names none.
	MaxIdle time.Duration
	// MaxWait is how long a request may ask to wait for its turn.
	MaxWait time.Duration
	// DiskTimeout bounds what is written down when nobody waits, or nobody may stop it;
	// 0 means 30 s.
	DiskTimeout time.Duration
}

// Options of a Service.
type Options struct {
	Catalog Catalog
	Limits  Limits
	Logger  hclog.Logger
	// Journal remembers instances for the next process; nil for none. Past is what
	// it remembers from those before.
	Journal Journal
	Past    Past
	// BrokerID is the one that providers were configured with. Empty makes every
	// listed instance the service's own.
	BrokerID string
	// Tenants may be nil: then what instances may reach does not change.
	Tenants Tenants
	// Quotas may be nil: then there are none.
	Quotas Quotas
	// Router may be nil for one that is not shared.
	Router Router
	// Observer may be nil.
	Observer Observer
	// Held says whether this broker still has its state, nil for always: once it may not,
	// others may have the sessions that it knows. Its errors have a code.
	Held func() error
	// Directory may be nil: then there are no other brokers.
	Directory peer.Directory
	// Others are asked for what they have. Holders says what of a provider's they hold, and Heir
	// goes on with what dead ones had. Each may be nil.
	Others  *peer.Others
	Holders reconcile.Holders
	Heir    peer.Heir
	// Placer may be nil: then new sessions stay with the broker that is asked.
	Placer Placer
}

// Observer is told what becomes of the work, for metrics. Its methods return at once.
type Observer interface {
	// Executed is called when an execution that was begun has ended. The context is that
	// of the request.
	Executed(ctx context.Context, e ExecutionOutcome)
	// Created is called when a provider has answered a creation, or has not in time, with
	// how long that took. The context says which request it was begun for.
	Created(ctx context.Context, provider string, outcome CreateOutcome, code sdk.Code, took time.Duration)
	// Admitted is called when the quotas have answered a request, with how long it has
	// waited for its turn.
	Admitted(ctx context.Context, outcome AdmitOutcome, waited time.Duration)
	// FailedOver is called for each provider that could not serve a request which got
	// a new instance of another, with the code of the reason.
	FailedOver(from, to string, code sdk.Code)
}

// ExecutionOutcome is what an Observer is told of an execution.
type ExecutionOutcome struct {
	// Provider by label.
	Provider string
	// Language is empty for code that runs in a context without naming one.
	Language sdk.Language
	// Status is one of sdk.Statuses, with its code, or StatusError with the code of the
	// error.
	Status sdk.Status
	Code   sdk.Code
	// Took is the time from when it had its instance to its result.
	Took time.Duration
	// PeakMemoryBytes is 0 where that is not known.
	PeakMemoryBytes int64
}

// StatusError is the status, for an Observer, of an execution that came to an error
// instead of a result.
const StatusError sdk.Status = "error"

// CreateOutcome is how a provider has answered a creation.
type CreateOutcome string

// The outcomes.
const (
	CreateMade    CreateOutcome = "made"
	CreateRefused CreateOutcome = "refused" // certainly nothing was made
	CreateUnclear CreateOutcome = "unclear" // something may have been
)

// AdmitOutcome is how the quotas have answered a request.
type AdmitOutcome string

// The outcomes.
const (
	AdmitGranted AdmitOutcome = "granted"
	AdmitRefused AdmitOutcome = "refused"
	AdmitLeft    AdmitOutcome = "left" // nobody waited for the answer any more
)

type noObserver struct{}

func (noObserver) Executed(context.Context, ExecutionOutcome) {}

func (noObserver) Created(context.Context, string, CreateOutcome, sdk.Code, time.Duration) {}

func (noObserver) Admitted(context.Context, AdmitOutcome, time.Duration) {}

func (noObserver) FailedOver(string, string, sdk.Code) {}

// Service makes, uses and destroys instances. All its methods may be called
// concurrently.
type Service struct {
	*lifecycle
	peer.Finder
	*lists
	catalog    Catalog
	journal    recorder
	registry   *registry.Registry
	reconciler *reconcile.Reconciler
	executions executions
	pauses     pauses
	providers  *providers
	creations  *creations
	admission  admission
	observer   Observer
	contexts   defaultContexts
	networks   *networks
	placing    placing
	// installing is held by the one who installs packages in an instance.
	installing keylock.Locks[*registry.Entry]
}

// NewService returns a service that works until Shutdown, which the caller must
// call.
func NewService(opts Options) *Service {
	life := newLifecycle(opts.Logger, opts.Limits)
	s := &Service{lifecycle: life, catalog: opts.Catalog, observer: opts.Observer, executions: newExecutions(life)}
	if s.observer == nil {
		s.observer = noObserver{}
	}
	if opts.Router == nil {
		opts.Router = routing.New()
	}
	if opts.Quotas == nil {
		opts.Quotas = unlimited{}
	}
	if opts.Journal == nil {
		opts.Journal = noJournal{}
	}
	s.journal = recorder{life, opts.Journal, newOwed()}
	s.contexts = defaultContexts{lifecycle: life, journal: s.journal, making: &keylock.Locks[*registry.Entry]{}}
	s.admission = admission{lifecycle: life, quotas: opts.Quotas, observer: s.observer}
	s.pauses = pauses{lifecycle: life, executions: s.executions, journal: s.journal}
	s.registry = registry.New(effects{s.journal, s.terminateLater, s.pauses.later})
	for _, r := range opts.Past.Records {
		s.registry.Load(r, opts.Quotas.Adopt(r.ID.Tenant, r.Provider, r.Released))
	}
	s.Finder = peer.NewFinder(life.lifetime, opts.Directory, opts.Heir, s.registry.HasSession, opts.Logger)
	s.lists = &lists{s.registry, opts.Others, opts.BrokerID}
	s.placing = placing{Finder: s.Finder, catalog: opts.Catalog, placer: opts.Placer, held: opts.Held, has: s.registry.HasSession}
	s.registry.Remember(opts.Past.Ended...)
	s.reconciler = reconcile.New(reconcile.Options{
		Catalog: opts.Catalog, Registry: s.registry, Journal: opts.Journal, Ended: s.journal.owe, Quotas: opts.Quotas, BrokerID: opts.BrokerID,
		Logger: opts.Logger, Tasks: life.tasks, Began: life.started, Incomplete: opts.Past.Incomplete, Holders: opts.Holders,
		Lifetime: life.lifetime, Writing: life.noting, Bounds: s.reconcilerBounds,
	})
	s.providers = &providers{lifecycle: life, catalog: opts.Catalog, registry: s.registry, router: opts.Router}
	s.networks = newNetworks(life, opts.Tenants, s.registry)
	s.creations = &creations{
		networks:  s.networks,
		lifecycle: life, catalog: opts.Catalog, registry: s.registry, reconciler: s.reconciler, journal: s.journal,
		admission: s.admission, router: opts.Router, observer: s.observer, brokerID: opts.BrokerID,
	}
	s.tasks.Go("reaper", s.reap)
	s.tasks.Go("reconcile", s.reconciler.Run)
	s.tasks.Go("networks", s.networks.run)
	return s
}

// effects are what follows from transitions in the registry.
type effects struct {
	recorder
	terminate, pause func(*registry.Entry)
}

// Pause implements registry.Effects.
func (e effects) Pause(entry *registry.Entry) { e.pause(entry) }

// Terminate implements registry.Effects.
func (e effects) Terminate(entry *registry.Entry) { e.terminate(entry) }

func (s *Service) reconcilerBounds() reconcile.Bounds {
	limits := s.limits()
	return reconcile.Bounds{MaxLifetime: limits.MaxLifetime, Slack: limits.slack()}
}

// SetLimits changes what requests may ask for from now on. Instances and executions
// that there are keep what they were given.
func (s *Service) SetLimits(limits Limits) { s.bounds.Store(&limits) }

// reapInterval is how late an instance may be destroyed after its time.
const reapInterval = time.Second

// reap destroys what has expired, until the service's lifetime ends.
func (s *Service) reap() {
	ticker := time.NewTicker(reapInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.registry.Expire(time.Now())
			s.chargeLives()
			s.journal.settleLater()
		case <-s.lifetime.Done():
			return
		}
	}
}

// Reconcile brings the registry and a provider into agreement; see
// reconcile.Reconciler.
func (s *Service) Reconcile(ctx context.Context, owner Provider, provider sdk.Provider) error {
	return s.reconciler.Started(ctx, owner, provider)
}

// InForce is called when the catalog has other providers, or other tenants.
func (s *Service) InForce() {
	s.reconciler.InForce()
	s.networks.look()
}

// Reachable are the providers that a service can ask: those of its catalog, and those that are
// about to be replaced and have instances still.
func Reachable(s *Service) []Provider { return s.reconciler.Providers() }

// Retire makes no more instances on a provider that is no longer in the catalog.
// Those that it has live on. What it returns is closed when none is left.
func (s *Service) Retire(p Provider) (empty <-chan struct{}) { return s.registry.Retire(p) }

// Lose forgets what is left on a provider that is no more: nobody can reach it. A
// creation that has not ended is forgotten when it has.
func (s *Service) Lose(p Provider) { s.registry.LoseAll(p, registry.ReasonRemoved) }

// EndWithProcess forgets what is left on a provider whose instances end with its process,
// which has ended.
func (s *Service) EndWithProcess(p Provider) { s.registry.LoseAll(p, registry.ReasonProcess) }

// Instances says how many there are on a provider, those that are being made or
// destroyed included.
func (s *Service) Instances(p Provider) int {
	all, _ := s.registry.Count(p)
	return all
}

// InUse says how many there are on a provider that somebody may have something of: those
// that were given up, and may be there still, do not count.
func (s *Service) InUse(p Provider) int {
	_, inUse := s.registry.Count(p)
	return inUse
}

// ReleaseTenants ends all that belongs to tenants which are none any more: nobody sees it
// from then on, so that who gets such a name gets nothing with it. Instances are destroyed
// in the background. known says which tenants there are; it is called with the catalog
// that Offer answers from.
func (s *Service) ReleaseTenants(known func(tenant string) bool) {
	ended := s.registry.RemoveTenants(known, errTenantRemoved.Error())
	for _, e := range ended {
		s.executions.stop(e, errTenantRemoved)
		if e.Snapshot().State == registry.Orphaned {
			s.journal.inBackground(func(ctx context.Context) error {
				return s.journal.journal.Amend(ctx, e.ID(), func(r *Record) { r.Ending = true })
			})
		}
	}
	if len(ended) > 0 {
		s.logger.Info("instances end with their tenants, which were removed", "count", len(ended))
	}
}

// Drain refuses new work from now on, ends what only watches, and waits until the running executions and
// creations have ended. When ctx ends first they are cancelled; it still waits
// for them to notice.
func (s *Service) Drain(ctx context.Context) { s.drain(ctx) }

// Draining reports whether new work is refused.
func (s *Service) Draining() bool { return s.isDraining() }

// cleanupTimeout bounds the destruction of everything at shutdown.
const cleanupTimeout = 10 * time.Second

// Shutdown drains until ctx ends, destroys all instances, which takes 10
// seconds at most, and returns when no goroutine of the service is left.
func (s *Service) Shutdown(ctx context.Context) {
	s.shutdown(ctx, func(registry.Instance) bool { return false })
}

// ShutdownKeeping is Shutdown that leaves to the next process, which finds them in the
// journal, what that can adopt: instances in clouds whose provider it will have. What was
// made for one execution is destroyed, and what ends with the process of its plugin.
func (s *Service) ShutdownKeeping(ctx context.Context) {
	offered := map[string]bool{}
	for _, p := range s.catalog.Providers() {
		offered[p.Label()] = true
	}
	s.shutdown(ctx, func(i registry.Instance) bool {
		return !i.OneShot && offered[i.Label] && !i.Provider.Description().Ephemeral
	})
}

func (s *Service) shutdown(ctx context.Context, keep func(registry.Instance) bool) {
	s.Drain(ctx)
	s.endLifetime(errShuttingDown)
	limit := time.AfterFunc(cleanupTimeout, s.endCleanup)
	defer limit.Stop()
	all, kept := s.registry.Shutdown(keep)
	if kept > 0 {
		s.logger.Info("instances stay in their clouds for the next start", "count", kept)
	}
	group := errgroup.Group{}
	group.SetLimit(reconcile.ParallelDestroys)
	for _, e := range all {
		group.Go(func() error {
			_ = s.terminate(s.cleanup, e) // it has logged it; nobody is left to retry
			return nil
		})
	}
	_ = group.Wait()
	s.tasks.Wait()
	s.endCleanup()
}

// The names under which the users of a Service know what its parts declare.
type (
	Provider    = routing.Provider
	Status      = routing.Status
	Catalog     = routing.Catalog
	Offer       = routing.Offer
	Patience    = routing.Patience
	Routing     = routing.Placement
	Tried       = routing.Tried
	ID          = registry.ID
	Record      = registry.Record
	Ended       = registry.Tombstone
	ListRequest = registry.ListRequest
	Directory   = peer.Directory
	Volume      = registry.Volume
)
