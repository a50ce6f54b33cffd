package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// ListDelay is how long a list may lack an instance that there is: the services of
	// clouds show what was made only after some seconds.
	ListDelay = time.Minute
	// ParallelDestroys bounds how many instances are destroyed at once.
	ParallelDestroys = 16
	// interval is how often every provider is asked what it has.
	interval = time.Minute
	// timeout bounds that.
	timeout = 30 * time.Second
)

// Journal is what the reconciler writes down.
type Journal interface {
	// Amend changes a record; without such a record it does nothing.
	Amend(ctx context.Context, id registry.ID, change func(*registry.Record)) error
}

// Registry is what the reconciler asks of the instances that there are;
// registry.Registry is it. It changes them through their entries.
type Registry interface {
	// ByName finds an instance by the last part of its ID, and ByProvidersID by what its
	// provider calls it; nil if there is none.
	ByName(instance string) (*registry.Entry, registry.Instance)
	ByProvidersID(label, id string) (*registry.Entry, registry.Instance)
	// Left are those of an earlier process that nothing is known of yet, on the providers
	// of a label; "" for all.
	Left(label string) []*registry.Entry
	// On are those on a provider whose creation has ended with a clear answer.
	On(p routing.Provider) []*registry.Entry
	// Watch notes what ends until it is closed.
	Watch() *registry.Watch
	// Retiring are providers that get no new instances, and have some still.
	Retiring() []routing.Provider
	// Lost reports whether nobody can reach a provider any more.
	Lost(p routing.Provider) bool
}

// Quotas count instances.
type Quotas interface {
	// Adopt counts in an instance that there is already, whatever the limits: among those that
	// are paused and hold no memory, or among the others.
	Adopt(tenant, provider string, paused bool) *quota.Instance
}

// Bounds of an instance's life: MaxLifetime, and by how much longer a provider may keep
// it.
type Bounds struct{ MaxLifetime, Slack time.Duration }

// Holders reports which broker the shared state has as the owner of instances that a provider of
// a label lists. The keys of names are the provider's IDs, the values the last parts of the
// instance IDs, or "" where they are not known. others are those of other brokers, dead or alive;
// own are those of which this broker has a record with that provider's ID.
type Holders interface {
	HeldInstances(ctx context.Context, label string, names map[string]string) (others, own map[string]bool, err error)
}

// Options of a Reconciler. All are required but Incomplete and Holders.
type Options struct {
	Catalog  routing.Catalog
	Registry Registry
	Journal  Journal
	// Ended has the journal told that an instance is no more, and what the quotas count
	// for it released then.
	Ended  func(t registry.Tombstone, permit *quota.Instance)
	Quotas Quotas
	Logger hclog.Logger
	Tasks  *background.Group
	// BrokerID is the label of the broker's own instances. Empty makes every listed
	// instance its own.
	BrokerID string
	// Began is when the broker started, which is told to owners of instances that ended
	// before.
	Began time.Time
	// Incomplete, if not nil, says that the journal has lost records. It is called once,
	// when every provider has said what it has.
	Incomplete func()
	// Holders says what other brokers have that share the state of this one; nil where there
	// are none. What they have is destroyed by nobody else.
	Holders Holders
	// Lifetime ends the work, and Writing returns the context of what is written down
	// although nobody waits for it.
	Lifetime context.Context
	Writing  func() (context.Context, context.CancelFunc)
	Bounds   func() Bounds
}

// Reconciler does it. All its methods may be called concurrently.
type Reconciler struct {
	Options

	mu      sync.Mutex
	orphans map[registry.SandboxKey]orphan
	lists   map[routing.Provider]*list
	// listed are the labels of the providers that have said what they have, as long as
	// Incomplete was not called.
	listed     map[string]bool
	incomplete func()
	// told are the entries of whose adoption the process of a provider knows.
	told map[routing.Provider]map[*registry.Entry]bool
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	return &Reconciler{
		Options: o, orphans: map[registry.SandboxKey]orphan{}, lists: map[routing.Provider]*list{},
		listed: map[string]bool{}, incomplete: o.Incomplete, told: map[routing.Provider]map[*registry.Entry]bool{},
	}
}

// Started reconciles with a plugin that was just started, before anybody else may use it:
// what owner should have and the provider no longer has is forgotten, what an earlier
// process of the broker left is adopted if somebody may ask for it, what the registry does
// not know is destroyed. Instances of another provider of the same label are left alone,
// listed or not, and so are those that carry another broker's ID.
func (r *Reconciler) Started(ctx context.Context, owner routing.Provider, provider sdk.Provider) error {
	r.forgetTold(owner)
	reason := registry.ReasonLost
	if owner.Description().Ephemeral {
		reason = registry.ReasonProcess
	}
	return r.reconcile(ctx, owner, provider, reason)
}

// reconcile does it; reason is why the owner has something no more.
func (r *Reconciler) reconcile(ctx context.Context, owner routing.Provider, provider sdk.Provider, reason string) error {
	asked := time.Now()
	// Those made while the provider is being asked are not expected, nor those of which
	// nobody knows.
	meanwhile := r.Registry.Watch()
	defer meanwhile.Close()
	expected, served := r.snapshots(owner), r.serves(owner)
	unsettled := r.tellAdopted(ctx, owner, provider)
	listed, err := provider.List(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of provider %q: %w", owner.Label(), err)
	}
	failpoint.Hit(failpoint.ReconcileListed)
	adopted, orphans := r.compare(comparison{owner: owner, expected: expected, meanwhile: meanwhile, served: served, listed: listed, reason: reason, asked: asked, unsettled: unsettled})
	if len(adopted) > 0 {
		failpoint.Hit(failpoint.ReconcileAdopted)
	}
	r.noteAdopted(ctx, adopted)
	known := r.spareHeld(ctx, owner, provider, listed, orphans, asked)
	err = r.destroyOrphans(ctx, owner, provider, orphans)
	if err == nil && known {
		r.hasListed(owner, asked)
	}
	return err
}

func (r *Reconciler) destroyOrphans(ctx context.Context, owner routing.Provider, provider sdk.Provider, orphans map[string]string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(ParallelDestroys)
	var failed atomic.Int64
	for id, tenant := range orphans {
		group.Go(func() error {
			// It is tried again the next time; this one shall not fail for it,
			// nor fill the log.
			err := provider.Destroy(ctx, id)
			if sdk.CodeOf(err) == sdk.CodeNotFound {
				err = nil // it was gone already, and the list is late
			}
			r.orphanDestroyed(registry.SandboxKey{Provider: owner.Label(), ID: id}, tenant, err)
			if err != nil && failed.Add(1) == 1 {
				r.Logger.Warn("an orphaned instance could not be destroyed", "provider", owner.Label(), "id", id, "error", err)
			}
			failpoint.Hit(failpoint.ReconcileOrphan)
			return nil
		})
	}
	err := group.Wait()
	if n := failed.Load(); n > 1 {
		r.Logger.Warn("orphaned instances could not be destroyed", "provider", owner.Label(), "count", n)
	}
	return err
}

func (r *Reconciler) snapshots(owner routing.Provider) map[*registry.Entry]registry.Instance {
	expected := map[*registry.Entry]registry.Instance{}
	for _, e := range r.Registry.On(owner) {
		expected[e] = e.Snapshot()
	}
	return expected
}

// serves reports whether a provider is in the catalog or has instances still.
func (r *Reconciler) serves(p routing.Provider) bool {
	return slices.Contains(r.Catalog.Providers(), p) || slices.Contains(r.Registry.Retiring(), p)
}

// noteAdopted writes down what was only intended when the earlier process ended: as it is
// when the journal takes it, since its owner may have changed it meanwhile.
func (r *Reconciler) noteAdopted(ctx context.Context, adopted []registry.Instance) {
	for _, i := range adopted {
		err := r.Journal.Amend(ctx, i.ID, func(record *registry.Record) {
			if e, now := r.Registry.ByName(i.ID.Instance); e != nil {
				paused, ending := record.Paused, record.Ending // these are told of what was done
				*record = now.Record()
				record.Paused, record.Ending = paused, ending
			}
		})
		if err != nil {
			r.Logger.Warn("an instance was adopted, which could not be written down", "instance", i.ID.String(), "error", err)
		}
	}
}

// Run reconciles with every provider that is ready, again and again, until the lifetime
// ends: a provider may have made, or lost, what it did not say.
func (r *Reconciler) Run() {
	ticker := time.NewTicker(failpoint.Hasten(interval))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.Lifetime.Done():
			return
		}
		r.giveUp()
		var round sync.WaitGroup
		for _, p := range r.Providers() {
			if !p.Status().Ready {
				continue
			}
			round.Add(1)
			r.Tasks.Go("reconcile "+p.Label(), func() {
				defer round.Done()
				r.reconcileOne(p)
			})
		}
		round.Wait()
	}
}

// InForce is called when the catalog has other providers. Those that have just come into
// force are asked once more for what earlier processes of the broker left: that they lack
// it did not count before.
func (r *Reconciler) InForce() {
	awaited := map[string]bool{}
	for _, e := range r.Registry.Left("") {
		awaited[e.Label()] = true
	}
	for _, p := range r.Catalog.Providers() {
		if awaited[p.Label()] && p.Status().Ready {
			r.Tasks.Go("reconcile "+p.Label(), func() { r.reconcileOne(p) })
		}
	}
}

// Soon reconciles with the provider of a label in the background, if that is ready.
func (r *Reconciler) Soon(label string) {
	if p := routing.Labelled(r.Catalog.Providers(), label); p != nil && p.Status().Ready {
		r.Tasks.Go("reconcile "+label, func() { r.reconcileOne(p) })
	}
}

func (r *Reconciler) reconcileOne(p routing.Provider) {
	ctx, cancel := context.WithTimeout(r.Lifetime, timeout)
	defer cancel()
	ready, err := p.Provider(ctx)
	if err == nil {
		err = r.reconcile(ctx, p, ready, registry.ReasonLost) // its process is the same as before
	}
	if err != nil && r.Lifetime.Err() == nil {
		r.Logger.Warn("a provider does not say what it has", "provider", p.Label(), "error", err)
	}
}

// Confirm asks the provider of an instance whether it has it, and ends it if that does not
// list it and its list cannot only be late.
func (r *Reconciler) Confirm(ctx context.Context, e *registry.Entry) error {
	i := e.Snapshot()
	provider, err := i.Provider.Provider(ctx)
	if err != nil {
		return err
	}
	listed, _, err := r.List(ctx, i.Provider, provider)
	if err != nil {
		return fmt.Errorf("list the instances of provider %q: %w", i.Label, err)
	}
	if r.Registry.Lost(i.Provider) {
		return nil // the list is of no use
	}
	there := map[string]bool{}
	for _, one := range listed {
		there[one.ID] = true
	}
	c := comparison{owner: i.Provider, expected: map[*registry.Entry]registry.Instance{e: i}, reason: registry.ReasonLost}
	if c.endUnlisted(there) > 0 {
		r.Logger.Info("an instance is lost, since its provider has it no more", "provider", i.Label, "instance", i.ID.String())
	}
	return nil
}

// Providers returns those in the catalog and those that still have instances.
func (r *Reconciler) Providers() []routing.Provider {
	all := slices.Clone(r.Catalog.Providers())
	for _, p := range r.Registry.Retiring() {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// list is what one provider has, for all who want to know at the same time: when a back
// end fails, many creations fail at once.
type list struct {
	users int           // who look or wait for their turn
	turn  chan struct{} // held by who looks
	began time.Time
	have  []sdk.Instance
	err   error
}

// List returns a list that began after it was asked for, and when that was. Two
// providers of one label, as there are after an upgrade, each have their own.
func (r *Reconciler) List(ctx context.Context, p routing.Provider, ready sdk.Provider) (have []sdk.Instance, began time.Time, err error) {
	asked := time.Now()
	l := r.enterList(p)
	defer r.leaveList(p, l)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, asked, ctx.Err()
	}
	defer func() { <-l.turn }()
	if !l.began.After(asked) {
		l.began = time.Now()
		l.have, l.err = ready.List(ctx)
	}
	return l.have, l.began, l.err
}

func (r *Reconciler) enterList(p routing.Provider) *list {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lists[p]
	if l == nil {
		l = &list{turn: make(chan struct{}, 1)}
		r.lists[p] = l
	}
	l.users++
	return l
}

// leaveList forgets the list with its last user: whoever comes later needs a newer one.
func (r *Reconciler) leaveList(p routing.Provider, l *list) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(r.lists, p)
	}
}
