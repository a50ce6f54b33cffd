package executions

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Limits of what is remembered.
type Limits struct {
	// LogBytes bounds the log of one execution, AllBytes those of all together.
	LogBytes, AllBytes int64
	// Time is how long an execution is remembered after its end.
	Time time.Duration
	// DiskTimeout bounds what is written when nobody waits.
	DiskTimeout time.Duration
}

const (
	// executionOverhead is what an execution takes beside its log and its result, in bytes.
	executionOverhead = 512
	// maxDetached bounds what a tenant has detached, those that have ended included: the
	// oldest of these make room.
	maxDetached = 1000
	// maxAttached bounds how many that have ended a tenant can look at which are not
	// detached.
	maxAttached = 1000
)

// Store is where detached executions are kept; *store.Store is it.
type Store interface {
	Update(ctx context.Context, change func(tx store.Tx) error) error
	View(read func(tx store.Tx) error) error
}

// Webhooks deliver reports; *webhook.Deliverer does.
type Webhooks interface {
	// NewID names a report; empty means that it cannot be delivered. Add takes it on in
	// a transaction of the store, and Added is called when that is durable.
	NewID(tenant string) string
	Add(tx store.Tx, id, tenant, execution, url string, body []byte) error
	Added(id, tenant string)
}

// Options of Open.
type Options struct {
	Store  Store
	Limits Limits
	Logger hclog.Logger
	// Webhooks may be nil: then there are none.
	Webhooks Webhooks
	// Report makes the body of the webhook of an execution that has ended. It may be nil
	// where Webhooks is.
	Report func(Info) []byte
	// Others are asked for executions of theirs. It may be nil: then there are none.
	Others *peer.Others
	// Now is time.Now unless given.
	Now func() time.Time
}

// Keeper remembers executions. Its methods may be called concurrently.
type Keeper struct {
	store    Store
	webhooks Webhooks
	report   func(Info) []byte
	others   *peer.Others
	logger   hclog.Logger
	now      func() time.Time
	tasks    *background.Group
	life     context.Context
	stop     context.CancelFunc

	mu      sync.Mutex
	limits  Limits
	all     map[key]*Execution
	tenants map[string]*holding
	cost    int64
}

// holding is what of a tenant is remembered.
type holding struct {
	cost int64
	// running, and those that have ended, the oldest first.
	running            map[*Execution]struct{}
	attached, detached []*Execution
}

// Open returns a keeper that knows what the store does. Close must be called.
func Open(opts Options) (*Keeper, error) {
	k := &Keeper{
		store: opts.Store, webhooks: opts.Webhooks, report: opts.Report, others: opts.Others, logger: opts.Logger, limits: opts.Limits, now: opts.Now,
		tasks: background.NewGroup(opts.Logger), all: map[key]*Execution{}, tenants: map[string]*holding{},
	}
	if k.now == nil {
		k.now = time.Now
	}
	k.life, k.stop = context.WithCancel(context.Background())
	if err := k.load(); err != nil {
		k.stop()
		return nil, err
	}
	k.SetLimits(opts.Limits) // what earlier processes have left may be too much by them
	k.tasks.Go("forget executions", k.sweep)
	return k, nil
}

// Close ends the detached executions that still run, and returns when they have ended.
func (k *Keeper) Close() {
	k.stop()
	k.tasks.Wait()
}

// SetLimits changes them. What is too much by them goes.
func (k *Keeper) SetLimits(l Limits) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limits = l
	for _, x := range k.all {
		k.trim(x)
	}
	k.makeRoom()
}

// Start says what begins.
type Start struct {
	// ID is the caller's name for it; empty for one of the keeper's.
	ID       string
	Detached bool
	// Webhook is where its report goes; empty for nowhere.
	Webhook string
	// Cancel ends it.
	Cancel func(cause error)
}

// Begin remembers an execution from now on. The caller must call its End, or Abandon. Of
// a detached one the state file has it when Begin returns. Errors carry SB014 for an ID of
// one that runs, SB008 for a tenant that has too many, and SB009.
func (k *Keeper) Begin(ctx context.Context, who tenant.Tenant, s Start) (*Execution, error) {
	x := &Execution{
		keeper: k, key: key{who.Name, cmp.Or(s.ID, "x-"+strings.ToLower(rand.Text()[:20]))}, since: who.Since,
		nonce: strings.ToLower(rand.Text()[:8]), detached: s.Detached, webhook: s.Webhook, cancel: s.Cancel,
		log: newLog(), info: Info{State: Running, Created: k.now()},
	}
	if s.Webhook != "" {
		x.info.Webhook = "pending"
	}
	if err := k.enter(x); err != nil {
		return nil, err
	}
	if x.detached {
		if err := k.save(ctx, x, nil); err != nil {
			x.Abandon()
			return nil, err
		}
	}
	return x, nil
}

func (k *Keeper) enter(x *Execution) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.all[x.key]; old != nil {
		if old.info.State == Running {
			return sdk.FieldErrorf(sdk.CodeConflict, "execution_id", "an execution of that name is in progress")
		}
		x.replace = old
	}
	h := k.holding(x.key.tenant)
	if x.detached {
		detached := len(h.detached)
		for r := range h.running {
			if r.detached {
				detached++
			}
		}
		if detached >= maxDetached {
			if len(h.detached) == 0 {
				return sdk.Errorf(sdk.CodeQuotaExceeded, "%d detached executions are in progress, and there may be no more: wait for some to end", detached)
			}
			oldest := h.detached[0]
			k.forget(oldest)
			k.eraseLater(oldest.key)
		}
	}
	k.all[x.key] = x
	h.running[x] = struct{}{}
	k.charge(x, executionOverhead)
	return nil
}

// Go does the work of a detached execution, until it has ended or the keeper is closed.
func (k *Keeper) Go(work func(ctx context.Context)) {
	k.tasks.Go("detached execution", func() { work(k.life) })
}

// Find returns an execution of the tenant. The error is SB013.
func (k *Keeper) Find(who tenant.Tenant, id string) (*Execution, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.all[key{who.Name, id}]
	if x == nil || !x.of(who) {
		return nil, sdk.Errorf(sdk.CodeNotFound, "no execution of this ID is remembered: it may have ended too long ago, or with the broker, which keeps detached ones only")
	}
	return x, nil
}

// List returns the tenant's executions, the newest first.
func (k *Keeper) List(who tenant.Tenant) []Info {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Info
	if h := k.tenants[who.Name]; h != nil {
		for _, x := range slices.Concat(slices.Collect(maps.Keys(h.running)), h.attached, h.detached) {
			if x.of(who) {
				list = append(list, x.snapshot())
			}
		}
	}
	slices.SortStableFunc(list, newestFirst)
	return list
}

func (x *Execution) of(who tenant.Tenant) bool { return x.loaded || x.since == who.Since }

// Forget forgets the executions of tenants that are not known.
func (k *Keeper) Forget(known func(tenant string) bool) {
	k.mu.Lock()
	var keys []key
	for _, x := range k.all {
		if known(x.key.tenant) {
			continue
		}
		if x.info.State == Running {
			x.cancel(errForgotten)
		}
		k.forget(x)
		if x.detached {
			keys = append(keys, x.key)
		}
	}
	k.mu.Unlock()
	k.erase(keys...)
}

// Remove forgets one that has ended. The error is SB014 for one that runs.
func (k *Keeper) Remove(x *Execution) error {
	k.mu.Lock()
	if x.info.State == Running {
		k.mu.Unlock()
		return sdk.Errorf(sdk.CodeConflict, "the execution is in progress: interrupt it first")
	}
	k.forget(x)
	k.mu.Unlock()
	if x.detached {
		k.erase(x.key)
	}
	return nil
}

func (k *Keeper) holding(tenant string) *holding {
	h := k.tenants[tenant]
	if h == nil {
		h = &holding{running: map[*Execution]struct{}{}}
		k.tenants[tenant] = h
	}
	return h
}

func (k *Keeper) charge(x *Execution, cost int64) {
	k.cost += cost
	k.holding(x.key.tenant).cost += cost
}

// append adds an event. Those below are called with the lock held, as it is.
func (k *Keeper) append(x *Execution, name string, data []byte) int64 {
	e, cost := x.log.append(name, data)
	if x.gone {
		x.log.clear()
		return e.Number
	}
	k.charge(x, cost)
	k.trim(x)
	k.makeRoom()
	return e.Number
}

// trim has the log within its own bound.
func (k *Keeper) trim(x *Execution) {
	for x.log.cost > k.limits.LogBytes && !x.gone {
		k.charge(x, -x.log.drop())
	}
}

// settle forgets what has had the ID of one that has been taken on.
func (k *Keeper) settle(x *Execution) {
	if old := x.replace; old != nil {
		k.forget(old)
		x.replace = nil
	}
}

func (k *Keeper) end(x *Execution, outcome Outcome) {
	k.settle(x)
	x.info.State, x.info.Result, x.info.Ended = outcome.State, outcome.Result, k.now()
	x.unsaved = x.detached
	if !x.gone {
		k.charge(x, int64(len(outcome.Result)))
	}
	if outcome.Last.Name != "" {
		outcome.Last.Number = k.append(x, outcome.Last.Name, outcome.Last.Data)
	}
	x.info.Last = outcome.Last
	x.log.tell()
	if x.gone {
		return
	}
	k.shelve(x)
	k.makeRoom()
}

// shelve moves it to those that have ended.
func (k *Keeper) shelve(x *Execution) {
	h := k.holding(x.key.tenant)
	delete(h.running, x)
	if x.detached {
		h.detached = append(h.detached, x)
		return
	}
	h.attached = append(h.attached, x)
	if len(h.attached) > maxAttached {
		k.forget(h.attached[0])
	}
}

// forget takes an execution out of everything.
func (k *Keeper) forget(x *Execution) {
	if x.gone {
		return
	}
	x.gone = true
	if k.all[x.key] == x {
		delete(k.all, x.key)
	}
	h := k.holding(x.key.tenant)
	delete(h.running, x)
	others := func(o *Execution) bool { return o == x }
	if x.detached {
		h.detached = slices.DeleteFunc(h.detached, others)
	} else {
		h.attached = slices.DeleteFunc(h.attached, others)
	}
	k.charge(x, -x.log.clear()-int64(len(x.info.Result))-executionOverhead)
	x.log.tell()
	if len(h.running)+len(h.attached)+len(h.detached) == 0 {
		delete(k.tenants, x.key.tenant)
	}
}

// makeRoom forgets of the tenant that takes the most, until all are within their bound:
// first what nobody counts on, an execution that has ended with its request; then events of
// detached ones that have ended; at last, whatever takes more, the oldest ones of what runs,
// or the oldest detached one that has ended. Of who has nothing of that, the next is taken.
func (k *Keeper) makeRoom() {
	var spent []*holding
	for k.cost > k.limits.AllBytes {
		var most *holding
		for _, h := range k.tenants {
			if (most == nil || h.cost > most.cost) && !slices.Contains(spent, h) {
				most = h
			}
		}
		if most == nil {
			return
		}
		if !k.takeFrom(most) {
			spent = append(spent, most)
		}
	}
}

func (k *Keeper) takeFrom(h *holding) bool {
	if len(h.attached) > 0 {
		k.forget(h.attached[0])
		return true
	}
	for _, x := range h.detached {
		if x.log.count() > 1 {
			for x.log.count() > 1 {
				k.charge(x, -x.log.drop())
			}
			return true
		}
	}
	var longest *Execution
	for x := range h.running {
		if longest == nil || x.log.cost > longest.log.cost {
			longest = x
		}
	}
	var ended int64
	var oldest *Execution
	for _, x := range h.detached {
		ended += x.log.cost + int64(len(x.info.Result))
		if oldest == nil && !x.unsaved { // else its report would be lost with it
			oldest = x
		}
	}
	switch runs := longest != nil && longest.log.count() > 0; {
	case runs && (oldest == nil || longest.log.cost >= ended):
		k.charge(longest, -longest.log.drop())
	case oldest != nil:
		k.forget(oldest)
		k.eraseLater(oldest.key)
	default:
		return false
	}
	return true
}

// sweepInterval is how late an execution may be forgotten.
const sweepInterval = time.Second

// sweep forgets what has been over for long, and writes what the disk did not take.
func (k *Keeper) sweep() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			k.Sweep()
		case <-k.life.Done():
			return
		}
	}
}

// Sweep forgets what has been over for long. It is called every second.
func (k *Keeper) Sweep() {
	var erased []key
	var unsaved []*Execution
	k.mu.Lock()
	before := k.now().Add(-k.limits.Time)
	for _, h := range k.tenants {
		for _, x := range slices.Concat(h.attached, h.detached) {
			switch {
			case x.unsaved:
				unsaved = append(unsaved, x)
			case x.info.Ended.Before(before):
				k.forget(x)
				if x.detached {
					erased = append(erased, x.key)
				}
			}
		}
	}
	k.mu.Unlock()
	for _, x := range unsaved {
		k.saveEnd(x)
	}
	k.erase(erased...)
}
