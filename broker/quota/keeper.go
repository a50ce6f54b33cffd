package quota

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
)

// Options of a Keeper. The zero value has no limits and forgets at its end.
type Options struct {
	Rules Rules
	// Journal keeps the counts of days and months; nil for nowhere.
	Journal Journal
	// Now is the clock; nil for time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger hclog.Logger
	// Others are asked what tenants have used there. It may be nil: then there are none.
	Others *peer.Others
	// AdvanceEvery is for tests: how often the journal gets the line that the log is at,
	// where nothing else changes; a minute unless given.
	AdvanceEvery time.Duration
}

// Keeper keeps the accounts of all tenants. Its methods may be called
// concurrently.
type Keeper struct {
	now    func() time.Time
	books  *books       // nil without a journal
	others *peer.Others // nil where this broker is alone

	mu       sync.Mutex
	rules    Rules
	accounts map[string]*account
	// version of the last change of an account.
	version uint64
	// written is up to where the log was counted when the keeper was made.
	written Position
	// till is where more is asked for than this broker holds; nil where brokers share nothing.
	till *till
	// brokers are how many share the rates; 0 for this one alone.
	brokers int
	// turns are the tenants who wait, whose turn is next first.
	turns []*account
	// countVolumes is asked by Usage, without mu; nil for nobody.
	countVolumes func(tenant string) (volumes, bytes int64)
	providers    map[string]int64 // instances by the label of their provider
	gates        map[string]*gate
	meters       map[string]*meter // by the label of the provider
	closed       bool
}

// NewKeeper returns a keeper that goes on from what the journal has. Close must be
// called.
func NewKeeper(opts Options) (*Keeper, error) {
	k := &Keeper{
		now:       opts.Now,
		others:    opts.Others,
		rules:     opts.Rules,
		accounts:  map[string]*account{},
		providers: map[string]int64{},
		gates:     map[string]*gate{},
		meters:    map[string]*meter{},
	}
	if k.now == nil {
		k.now = time.Now
	}
	if opts.Journal == nil {
		return k, nil
	}
	records, written, err := opts.Journal.Load()
	if err != nil {
		return nil, err
	}
	k.written = written
	for tenant, record := range records {
		k.version = max(k.version, record.Version)
		a := k.account(tenant)
		a.used, a.rolls = record, time.Time{} // the record's day may be over
	}
	k.books = newBooks(opts, k.recordsOf)
	return k, nil
}

// Close writes what is not yet written. Nothing may be admitted any more.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	for provider := range k.gates {
		k.openGate(provider)
	}
	t := k.till
	k.mu.Unlock()
	if t != nil && t.end != nil {
		t.close()
	}
	if k.books != nil {
		k.books.close()
	}
}

// SetRules changes the limits. What is in use stays, be it more than is allowed
// now; who waits and may go on under the new ones does.
func (k *Keeper) SetRules(rules Rules) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = rules
	for _, a := range k.accounts {
		a.setLimits(rules.Tenants[a.tenant], k.brokers, k.now())
		a.tellAll()
	}
	k.serveAll()
}

// Forget ends the accounts of tenants that are not known: who gets such a name begins
// with nothing used. What is in use, or waits, goes on in an account that nobody finds.
func (k *Keeper) Forget(known func(tenant string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, a := range k.accounts {
		if !known(name) {
			delete(k.accounts, name)
			if k.till != nil {
				k.till.forget(a)
			}
			k.changed(a)
		}
	}
}

// account returns that of a tenant, up to date. The caller holds mu, or is the only
// one.
func (k *Keeper) account(tenant string) *account {
	now := k.now()
	a := k.accounts[tenant]
	if a == nil {
		a = &account{tenant: tenant, refused: map[Limit]int64{}}
		a.used.Version = k.version // what was noted of an earlier one of that name is over
		a.setLimits(k.rules.Tenants[tenant], k.brokers, now)
		k.accounts[tenant] = a
		if k.till != nil {
			k.till.open(a)
		}
	}
	a.roll(now)
	return a
}

// Request counts a request of a tenant against its rate, and says how many more may
// come at once; limit is 0 when there is none.
func (k *Keeper) Request(tenant string) (remaining, limit float64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, now := k.account(tenant), k.now()
	if a.bucket == nil {
		return 0, 0, nil
	}
	limit = a.limits.RequestsPerSecond
	r := a.bucket.ReserveN(now, 1)
	if delay := r.DelayFrom(now); delay > 0 {
		r.CancelAt(now)
		a.refused[RequestsPerSecond]++
		return 0, limit, &Refusal{Tenant: tenant, Limit: RequestsPerSecond, Max: limit, Used: limit, RetryAfter: delay}
	}
	return max(0, a.bucket.TokensAt(now)), limit, nil
}

// Demand is what a request needs.
type Demand struct {
	Tenant string
	// Execution with this Timeout.
	Execution bool
	Timeout   time.Duration
	// Instance on the provider of this label.
	Instance bool
	Provider string
	// Size of the instance, where it is not that of the provider's others.
	Size Size
	// Wait is how long to wait for a slot that others use; 0 to be refused at once.
	Wait time.Duration
	// Arrived is when the request came, where that is earlier than now: its place
	// in the queue is by that.
	Arrived time.Time
	// Noted says that the effects that it is for note what is granted: Grant.Reservation.
	Noted bool
}

// Grant is what a request may use. Each part must be released.
type Grant struct {
	Execution *Execution // nil unless asked for
	Instance  *Instance  // nil unless asked for

	// Reservation, if not nil, is to be noted by the first effect that uses the grant.
	Reservation *Reservation

	// durable says that it must be written before it is used: where a limit of the
	// day or the month hangs on it.
	durable bool
}

// Release gives all of it back when no instance was made.
func (g Grant) Release() {
	g.Execution.Release()
	g.Instance.Cancel()
}

// account is that of the tenant who has it, in a grant of something.
func (g Grant) account() *account {
	if g.Execution != nil {
		return g.Execution.account
	}
	return g.Instance.account
}

// Admit takes all that a request needs, or nothing. The error is a *Refusal, that of
// ctx, or SB009 when what is granted had to be durable and cannot be. What is granted is
// durable, unless it has a Reservation, which the caller asked for.
func (k *Keeper) Admit(ctx context.Context, d Demand) (Grant, error) {
	grant, err := k.admit(ctx, d)
	if err != nil {
		return Grant{}, err
	}
	failpoint.Hit(failpoint.QuotaReserved)
	if grant.durable && d.Noted && k.books.leaves() {
		grant.Reservation = &Reservation{keeper: k, account: grant.account()}
		return grant, nil
	}
	if grant.durable {
		if err := k.books.settled(ctx, d.Tenant); err != nil {
			grant.Release()
			return Grant{}, err
		}
		failpoint.Hit(failpoint.QuotaNoted)
	}
	return grant, nil
}

func (k *Keeper) admit(ctx context.Context, d Demand) (Grant, error) {
	if d.Arrived.IsZero() {
		d.Arrived = k.now()
	}
	began := time.Now()
	grant, err := k.await(ctx, k.enqueue(d), d.Wait)
	for wait := d.Wait; isShort(err); grant, err = k.ask(ctx, d) {
		d.Wait = max(0, wait-time.Since(began))
	}
	return grant, err
}

func isShort(err error) bool {
	refusal, ok := err.(*Refusal) //nolint:errorlint // it is from here
	return ok && refusal.short
}

// ask is admit for who needs more than this broker holds: it comes from the others first.
func (k *Keeper) ask(ctx context.Context, d Demand) (Grant, error) {
	k.mu.Lock()
	a := k.account(d.Tenant)
	demand := k.demandOf(d)
	needs := demand.needs()
	k.mu.Unlock()
	var w *waiter
	err := k.till.ask(ctx, a, needs, d.Arrived, func() *Refusal {
		w = k.put(d)
		select {
		case o := <-w.outcome:
			if o.refusal != nil && o.refusal.short {
				return o.refusal
			}
			w.outcome <- o
		default: // it waits
		}
		return nil
	})
	if err != nil {
		return Grant{}, err
	}
	return k.await(ctx, w, d.Wait)
}

// claim has try take something, with mu held, once it is held of what the brokers share. needs,
// with mu held, says how much that is.
func (k *Keeper) claim(ctx context.Context, a *account, needs func() []need, try func() *Refusal) error {
	k.mu.Lock()
	refusal := try()
	if refusal == nil || !refusal.short {
		defer k.mu.Unlock()
		if refusal == nil {
			return nil
		}
		return a.noted(refusal)
	}
	all, now := needs(), k.now()
	k.mu.Unlock()
	return k.till.ask(ctx, a, all, now, try)
}

// await returns what becomes of a waiter, who waits no longer than it may.
func (k *Keeper) await(ctx context.Context, w *waiter, wait time.Duration) (Grant, error) {
	select {
	case o := <-w.outcome:
		return o.get()
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case o := <-w.outcome:
		return o.get()
	case <-timer.C:
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case o := <-w.outcome: // at the last moment
		return o.get()
	default:
	}
	if ctx.Err() != nil {
		k.remove(w)
		return Grant{}, ctx.Err()
	}
	k.refuse(w, w.blocked)
	return (<-w.outcome).get()
}

// take grants a demand that fits. The caller holds mu.
func (k *Keeper) take(a *account, d *demand) Grant {
	var grant Grant
	if d.Execution {
		a.concurrent++
		a.used.Executions++
		a.used.ExecutionTime += d.Timeout
		a.open += d.Timeout
		a.changedIn(MaxConcurrent, ExecutionsPerDay, ExecutionTimePerDay)
		grant.Execution = &Execution{keeper: k, account: a, day: a.used.Day, reserved: d.Timeout}
	}
	if d.Instance {
		grant.Instance = k.newInstance(a, d)
	}
	if k.books != nil && (d.Execution || grant.Instance.costs()) {
		grant.durable = d.Execution && a.limits.countsExecutions() || grant.Instance.costs() && a.limits.countsMoney()
		k.changed(a)
	}
	return grant
}

// changed has a tenant's counts written some time soon. The caller holds mu.
func (k *Keeper) changed(a *account) {
	k.version++
	a.used.Version = k.version
	if k.books != nil {
		k.books.changed(a.tenant)
	}
}

func (k *Keeper) recordsOf(tenants []string) map[string]Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	records := map[string]Record{}
	for _, tenant := range tenants {
		records[tenant] = Record{Version: k.version} // what was noted of it before is over
		if a := k.accounts[tenant]; a != nil {
			records[tenant] = a.used
		}
	}
	return records
}
