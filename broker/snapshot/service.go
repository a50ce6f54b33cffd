// Package snapshot keeps instances as they are at a moment, has others made that go on from
// there, and forks: the life of snapshots, from the intent in the state file to the
// confirmation that the provider has forgotten one. It knows nothing of HTTP and of
// configuration files.
//
// Start with Service. Make keeps an instance (make.go), Source is what a creation in package
// instance takes (source.go), Fork does both at once (fork.go). What ends a snapshot is in
// end.go. As instances are, snapshots are compared with what the providers list, again and
// again (reconcile.go): what nobody knows is deleted, what is no more is forgotten. The keys
// that snapshots are encrypted with come from a secret of the broker (key.go).
package snapshot

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// Instances are what snapshots are made of, and what is made of snapshots;
// instance.Service is it.
type Instances interface {
	Lease(ctx context.Context, who tenant.Tenant, id string, capability sdk.Capability) (*instance.Lease, error)
	Create(ctx context.Context, who tenant.Tenant, req instance.CreateRequest) (instance.Info, bool, error)
	Destroy(ctx context.Context, who tenant.Tenant, id string) error
	Get(ctx context.Context, who tenant.Tenant, id string) (instance.Info, error)
	List(who tenant.Tenant, req instance.ListRequest) instance.Page
	Settled(ctx context.Context, who tenant.Tenant, session, frontDoor string) (unknown []instance.Info)
}

// Quotas count snapshots; quota.Keeper does.
type Quotas interface {
	TakeSnapshot(tenant string, transient bool) (s *quota.Snapshot, room int64, err error)
	AdoptSnapshot(tenant string, transient bool, bytes int64) *quota.Snapshot
}

// Journal remembers snapshots for the next process. What a method did is durable when it
// returns. Errors carry SB009.
type Journal interface {
	// Write keeps records, in place of those with the same IDs: all of them, or none.
	Write(ctx context.Context, records ...Record) error
	// Remove drops one; that there is none is no error.
	Remove(ctx context.Context, id string) error
}

// Limits bound what one request may ask for.
type Limits struct {
	// DefaultTTL of a snapshot whose maker named none, and MaxTTL.
	DefaultTTL, MaxTTL time.Duration
	// Timeout of the making of one.
	Timeout time.Duration
	// DiskTimeout bounds what is written down when nobody waits.
	DiskTimeout time.Duration
}

// Options of a Service.
type Options struct {
	Instances Instances
	// Providers are those that can be asked: of the catalog, and those that are about to be
	// replaced. instance.Reachable has them.
	Providers func() []instance.Provider
	Quotas    Quotas
	Journal   Journal
	// Past are the records of the processes before this one.
	Past   []Record
	Limits Limits
	// Secret is what the keys of the tenants are derived from: see LoadSecret.
	Secret []byte
	// BrokerID is the one that providers were configured with. Empty makes every listed
	// snapshot the service's own.
	BrokerID string
	// Known reports whether there is such a tenant, now.
	Known  func(tenant string) bool
	Logger hclog.Logger
	// Finder knows which other brokers have what this one does not, and Others asks them. Their
	// zero values are those of a broker that is alone.
	Finder peer.Finder
	Others *peer.Others
}

// Service makes, lists and deletes snapshots. Its methods may be called concurrently. Close
// must be called.
type Service struct {
	instances Instances
	providers func() []instance.Provider
	quotas    Quotas
	journal   Journal
	secret    []byte
	brokerID  string
	known     func(tenant string) bool
	logger    hclog.Logger
	limits    atomic.Pointer[Limits]
	began     time.Time
	finder    peer.Finder
	others    *peer.Others

	tasks    *background.Group
	lifetime context.Context
	end      context.CancelFunc
	// look asks for a comparison with the providers soon.
	look chan struct{}
	// deleting bounds how many are deleted at once in the background.
	deleting chan struct{}
	// forking has one fork at a time for each key that a caller gave it.
	forking keylock.Locks[string]

	mu      sync.Mutex
	entries map[string]*entry
}

// entry is a snapshot that there is, or may be.
type entry struct {
	// Record is as the journal has it, or is about to.
	Record
	permit *quota.Snapshot
	// making means that its provider is being asked for it, and ending that it is being
	// asked to delete it: one goroutine has the entry then.
	making, ending bool
	// retryAt is when the deletion is tried again.
	retryAt time.Time
	// proofAt is from when on a list that lacks it proves that there is none, of one that
	// the provider did not say to have made.
	proofAt time.Time
}

// visible reports whether its owner finds it.
func (e *entry) visible() bool { return e.Made != "" && !e.Ending && !e.Transient }

// NewService returns a service that works until Close.
func NewService(o Options) *Service {
	s := &Service{
		instances: o.Instances, providers: o.Providers, quotas: o.Quotas, journal: o.Journal, secret: o.Secret, brokerID: o.BrokerID, known: o.Known,
		finder: o.Finder, others: o.Others,
		logger: o.Logger, began: time.Now(), tasks: background.NewGroup(o.Logger), look: make(chan struct{}, 1),
		deleting: make(chan struct{}, parallelDeletions), entries: map[string]*entry{},
	}
	s.lifetime, s.end = context.WithCancel(context.Background())
	s.SetLimits(o.Limits)
	for _, r := range o.Past {
		// A fork that an earlier process has begun is over.
		r.Ending = r.Ending || r.Transient
		s.entries[r.ID] = &entry{
			Record: r, permit: o.Quotas.AdoptSnapshot(r.Tenant, r.Transient, r.Bytes), proofAt: s.began.Add(listDelay(r.Ephemeral)),
		}
	}
	s.tasks.Go("reap snapshots", s.reap)
	s.tasks.Go("reconcile snapshots", s.reconcile)
	return s
}

// SetLimits changes what requests may ask for from now on.
func (s *Service) SetLimits(l Limits) { s.limits.Store(&l) }

// Close ends what goes on in the background. Snapshots stay for the next process.
func (s *Service) Close() {
	s.end()
	s.tasks.Wait()
}

// Get returns a snapshot of the tenant, or SB013.
func (s *Service) Get(who tenant.Tenant, id string) (Info, error) {
	r, err := s.found(who.Name, id)
	if err != nil {
		return Info{}, err
	}
	return infoOf(r), nil
}

// found returns the record of one that the tenant may use. The error is a peer.ElsewhereError
// for one that another broker has.
func (s *Service) found(owner, id string) (Record, error) {
	s.mu.Lock()
	e, err := s.find(owner, id)
	r := e.record()
	s.mu.Unlock()
	if err != nil {
		return Record{}, s.elsewhere(owner, id, err)
	}
	return r, nil
}

// elsewhere is the error for a snapshot that is not here: another broker may have it. The owner
// is empty for the snapshot of whomever.
func (s *Service) elsewhere(owner, id string, absent error) error {
	if !isID(id) {
		return absent
	}
	return s.finder.SnapshotElsewhere(owner, id, absent)
}

// find returns one that the tenant may use. The caller holds mu.
func (s *Service) find(owner, id string) (*entry, error) {
	e := s.entries[id]
	if e == nil || e.Tenant != owner || !e.visible() || !time.Now().Before(e.Expires) {
		return nil, sdk.Errorf(sdk.CodeNotFound, "no such snapshot: it never existed, was deleted or has expired")
	}
	return e, nil
}

// ListRequest says what of a list is wanted. What it does not name does not matter.
type ListRequest struct {
	// Labels that all must be there.
	Labels map[string]string
	// Instance and Provider that snapshots are of, by the broker's ID and by label.
	Instance, Provider string
	// FrontDoor that they were asked for at; empty for any.
	FrontDoor string
	// After is an ID, or "": only those behind it.
	After string
	Limit int
}

// Page is a part of a list.
type Page struct {
	Snapshots []Info
	// More says that the limit left some out.
	More bool
}

// List returns the tenant's snapshots in the order of their IDs.
func (s *Service) List(who tenant.Tenant, req ListRequest) Page {
	return s.page(req, func(e *entry) bool { return e.Tenant == who.Name })
}

// ListAll is List for the tenant of that name, or for all tenants if it is empty.
func (s *Service) ListAll(owner string, req ListRequest) Page {
	return s.page(req, func(e *entry) bool { return owner == "" || e.Tenant == owner })
}

func (s *Service) page(req ListRequest, of func(*entry) bool) Page {
	now := time.Now()
	var found []Record
	s.mu.Lock()
	for _, e := range s.entries {
		if of(e) && e.visible() && now.Before(e.Expires) && req.wants(e.Record) {
			found = append(found, e.Record)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(found, func(a, b Record) int { return strings.Compare(a.ID, b.ID) })
	page := Page{Snapshots: []Info{}, More: len(found) > req.Limit}
	for _, r := range found[:min(len(found), req.Limit)] {
		page.Snapshots = append(page.Snapshots, infoOf(r))
	}
	return page
}

func (req ListRequest) wants(r Record) bool {
	if r.ID <= req.After || req.Instance != "" && r.Instance != req.Instance || req.Provider != "" && r.Provider != req.Provider || req.FrontDoor != "" && r.FrontDoor != req.FrontDoor {
		return false
	}
	for name, value := range req.Labels {
		if got, has := r.Labels[name]; !has || got != value {
			return false
		}
	}
	return true
}

// Count is how many snapshots there are, and their bytes.
type Count struct{ Snapshots, Bytes int64 }

// CountByProvider counts all that there are or may be, those of forks included, by the label
// of their provider.
func (s *Service) CountByProvider() map[string]Count {
	counts := map[string]Count{}
	for _, p := range s.providers() {
		if supports(p) {
			counts[p.Label()] = Count{}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		c := counts[e.Provider]
		c.Snapshots++
		c.Bytes += e.Bytes
		counts[e.Provider] = c
	}
	return counts
}

func supports(p instance.Provider) bool {
	return slices.Contains(p.Description().Capabilities, sdk.CapabilitySnapshots)
}

// noting is the time in which something is written down that must be, whoever waits.
func (s *Service) noting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.limits.Load().diskTimeout())
}

func (l *Limits) diskTimeout() time.Duration {
	if l.DiskTimeout == 0 {
		return 30 * time.Second
	}
	return l.DiskTimeout
}
