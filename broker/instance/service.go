package instance

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
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
	// Quotas may be nil: then there are none.
	Quotas Quotas
	// Router may be nil for one that is not shared.
	Router Router
	// Observer may be nil.
	Observer Observer
}

// Service makes, uses and destroys instances. All its methods may be called
// concurrently.
type Service struct {
	catalog Catalog
	bounds  atomic.Pointer[Limits]
	logger  hclog.Logger
	journal Journal
	// brokerID is put on instances as a label; started is told to owners of those
	// that ended before.
	brokerID string
	started  time.Time

	mu       sync.Mutex
	draining bool
	entries  map[string]*entry // by ID; all states
	sessions map[sessionKey]*entry
	running  map[executionKey]*running
	retired  map[Provider]*retirement // until it has no entries
	// recovered is what an earlier process left, by ID, as long as nobody knows what
	// became of it; graves is what ended.
	recovered map[string]Record
	// counted is what the quotas count for those meanwhile, by the same ID.
	counted map[string]*quota.Instance
	graves  graves
	loss    loss
	// orphans are those that are to be destroyed and not in entries.
	orphans map[orphanKey]orphan
	looks   map[Provider]*look

	// calls counts requests in progress and creations. Add is called under mu
	// and never when draining, as WaitGroup demands.
	calls sync.WaitGroup
	// lifetime ends executions and creations when the broker stops, cleanup
	// ends destruction when that has taken too long.
	// watching ends already when the drain begins, for those who only look on.
	lifetime    context.Context
	endLifetime context.CancelCauseFunc
	watching    context.Context
	endWatching context.CancelFunc
	cleanup     context.Context
	endCleanup  context.CancelFunc
	tasks       *background.Group

	quotas   Quotas
	payments payments
	observer Observer

	router Router
	// ways are held by the requests that look for a provider for a session; guarded
	// by mu.
	ways map[workKey]*way
}

// sessionKey names the one instance that a session has on a provider.
type sessionKey struct{ tenant, session, provider string }

// entry is one instance. The fields below the line are guarded by Service.mu.
type entry struct {
	id       ID
	provider Provider
	template string
	ttl      time.Duration
	idle     time.Duration
	labels   map[string]string
	// claimed and intended are as in its Record. oneShot means that it is destroyed
	// after one execution.
	claimed, oneShot bool
	intended         time.Time
	// ready is closed when it is certain how the creation has ended, well or not, and
	// unclear when it has ended and that is not certain yet.
	ready, unclear chan struct{}
	cancel         context.CancelFunc
	// installing has room for the one installation that is in progress.
	installing chan struct{}
	// makingContext has room for the one default context that is being made.
	makingContext chan struct{}
	// permit is what the quotas have granted for it. It belongs to the creation
	// until ready closes.
	permit *quota.Instance
	// verdict says who is to blame for a creation that failed. It belongs to the
	// creation until ready closes.
	verdict verdict
	doubt   doubt
	// routing is why it is on its provider.
	routing Routing
	// maxQueue is how long its creation may wait for room; nil for as long as the
	// provider likes.
	maxQueue *time.Duration

	// ---
	state     state
	installed map[string]bool   // sets of requirements that were
	contexts  map[string]string // default contexts by language; replaced, never changed
	err       error             // why the creation failed; set before ready or unclear closes
	unclearAt time.Time         // since when its creation is unsettled
	forsaken  bool              // its session may have another one
	announced bool              // what it has made is being written down
	left      chan struct{}     // closed when it is forsaken
	abandoned bool              // nobody waited for the creation any more, and it was cancelled
	waiters   int               // callers that wait for ready
	instance  sdk.Instance      // what the provider made
	holds     int               // uses in progress
	running   int               // executions among them
	paused    bool
	// switching means that it is being paused or resumed, and frozen that no
	// execution begins in it meanwhile.
	switching, frozen bool
	disowned          bool      // its tenant was removed
	doomed            bool      // to be destroyed when the last hold is released
	shared            bool      // somebody got it beside who had it made
	stopped           string    // what executions in it are told, if somebody destroyed it with them
	created           time.Time // when the creation began, and once it has ended well, when that was
	lastUsed          time.Time
	expires           time.Time     // moved by use and by renewal, up to deadline
	deadline          time.Time     // no new work from then on
	retryAt           time.Time     // of a destruction that failed
	useNoted          bool          // the journal knows, or is being told, that it was used
	noting            chan struct{} // closed when it was told; nil if it never was
	reason            string        // for its owner, why it ended
	buried            bool          // the journal knows that it ended
}

type state int

const (
	creating  state = iota
	unsettled       // the creation failed, and nobody knows whether the provider has it
	live
	ending // destroyed or about to be; nobody sees it any more
)

func (e *entry) sessionKey() sessionKey {
	return sessionKey{e.id.Tenant, e.id.Session, e.provider.Label()}
}

// NewService returns a service that works until Shutdown, which the caller must
// call.
func NewService(opts Options) *Service {
	s := &Service{
		catalog:  opts.Catalog,
		logger:   opts.Logger,
		entries:  map[string]*entry{},
		sessions: map[sessionKey]*entry{},
		running:  map[executionKey]*running{},
		retired:  map[Provider]*retirement{},
		tasks:    background.NewGroup(opts.Logger),

		quotas:  opts.Quotas,
		journal: opts.Journal, brokerID: opts.BrokerID, started: time.Now(),
		recovered: map[string]Record{}, counted: map[string]*quota.Instance{},
		orphans: map[orphanKey]orphan{}, looks: map[Provider]*look{},

		router: opts.Router, ways: map[workKey]*way{},
	}
	if s.observer = opts.Observer; s.observer == nil {
		s.observer = noObserver{}
	}
	if s.router == nil {
		s.router = routing.New()
	}
	if s.quotas == nil {
		s.quotas = unlimited{}
	}
	if s.journal == nil {
		s.journal = noJournal{}
	}
	if opts.Past.Incomplete != nil {
		s.loss = loss{noted: opts.Past.Incomplete, listed: map[string]bool{}}
	}
	s.recover(opts.Past)
	s.SetLimits(opts.Limits)
	s.lifetime, s.endLifetime = context.WithCancelCause(context.Background())
	s.watching, s.endWatching = context.WithCancel(s.lifetime)
	s.cleanup, s.endCleanup = context.WithCancel(context.Background())
	s.tasks.Go("reaper", s.reap)
	s.tasks.Go("reconcile", s.reconcileAll)
	return s
}

// SetLimits changes what requests may ask for from now on. Instances and executions
// that there are keep what they were given.
func (s *Service) SetLimits(limits Limits) { s.bounds.Store(&limits) }

func (s *Service) limits() Limits { return *s.bounds.Load() }

// begin registers a call; the caller must call s.calls.Done when it ends.
func (s *Service) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return shuttingDown()
	}
	s.calls.Add(1)
	return nil
}

// noting returns a context for what is written down although nobody waits for it, or
// nobody may stop it.
func (s *Service) noting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.cleanup, cmp.Or(s.limits().DiskTimeout, 30*time.Second))
}

// bounded returns a context that ends with ctx, after d, or when the broker
// stops; its cause says which.
func (s *Service) bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(s.lifetime, func() { cancelCause(errShuttingDown) })
	return ctx, func() {
		stop()
		cancel()
		cancelCause(nil)
	}
}
