package webhook

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Operation is what the audit log calls an attempt.
const Operation = "deliver_webhook"

const (
	// maxPending bounds the reports of a tenant that wait: those beyond it are not
	// delivered.
	maxPending = 1000
	// maxBusy and maxBusyOfTenant bound the attempts that are made at a time.
	maxBusy, maxBusyOfTenant = 8, 2
)

// delays are the waits before each attempt: more than a day in all is what the
// specification advises; less than that is what an agent waits for.
func delays() []time.Duration {
	return []time.Duration{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
	}
}

// How a delivery stands, in the end.
const (
	Delivered = "delivered"
	Failed    = "failed"
)

// Store is where reports wait; *store.Store is it.
type Store interface {
	Update(ctx context.Context, change func(tx store.Tx) error) error
	View(read func(tx store.Tx) error) error
}

// Log is the audit log; *audit.Log is it.
type Log interface {
	Begin(ctx context.Context, effect audit.Effect) (*audit.Record, error)
}

// Options of Open.
type Options struct {
	Store  Store
	Log    Log
	Logger hclog.Logger
	// Rules of a tenant; false for one that may have nothing posted, or is none.
	Rules func(tenant string) (Rules, bool)
	// Ended is told how a delivery has ended. It may be nil.
	Ended func(tenant, execution, status string)
	// Delays before each attempt, and TLS with the authorities to trust: for tests. Nil
	// for the usual ones.
	Delays []time.Duration
	TLS    *tls.Config
}

// Deliverer posts reports. Its methods may be called concurrently.
type Deliverer struct {
	opts            Options
	public, private *http.Client
	tasks           *background.Group
	life            context.Context
	stop            context.CancelFunc
	wake            chan struct{}

	mu      sync.Mutex
	waiting map[string]*waiting
	ofOne   map[string]int // by tenant
	busy    map[string]int // by tenant
}

// waiting is a report that is to be delivered. Its text is in the store.
type waiting struct {
	tenant string
	next   time.Time
	busy   bool
}

// record is a report in the store.
type record struct {
	Tenant    string          `json:"tenant"`
	Execution string          `json:"execution"`
	URL       string          `json:"url"`
	Body      json.RawMessage `json:"body"`
	Attempts  int             `json:"attempts"`
	Next      time.Time       `json:"next"`
}

// Open returns a deliverer that goes on with what the store has, once Run is called.
func Open(opts Options) (*Deliverer, error) {
	if opts.Delays == nil {
		opts.Delays = delays()
	}
	d := &Deliverer{
		opts: opts, public: newClient(false, opts.TLS), private: newClient(true, opts.TLS), tasks: background.NewGroup(opts.Logger),
		wake: make(chan struct{}, 1), waiting: map[string]*waiting{}, ofOne: map[string]int{}, busy: map[string]int{},
	}
	d.life, d.stop = context.WithCancel(context.Background())
	err := opts.Store.View(d.read)
	if err != nil {
		d.stop()
		return nil, fmt.Errorf("read the reports that wait: %w", err)
	}
	return d, nil
}

// read finds the reports in the store.
func (d *Deliverer) read(tx store.Tx) error {
	return store.Each(tx, store.Webhooks, func(id string, r record, err error) error {
		if err != nil {
			d.opts.Logger.Warn("a report cannot be read, and is left out", "error", err)
			return nil
		}
		d.waiting[id] = &waiting{tenant: r.Tenant, next: r.Next}
		d.ofOne[r.Tenant]++
		return nil
	})
}

// Run begins to deliver.
func (d *Deliverer) Run() { d.tasks.Go("deliver webhooks", d.run) }

// Close gives up what is under way, which the next process does again.
func (d *Deliverer) Close() {
	d.stop()
	d.tasks.Wait()
}

// Check says whether a tenant may have reports posted to an address. The error is SB012 or
// SB010.
func (d *Deliverer) Check(tenant, address string) error {
	rules, ok := d.opts.Rules(tenant)
	if !ok {
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "webhook", "the operator allows this tenant no webhooks")
	}
	if _, err := rules.target(address); err != nil {
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "webhook.url", "%w", err)
	}
	return nil
}

// NewID returns a name for a report, empty if too many of the tenant wait.
func (d *Deliverer) NewID(tenant string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ofOne[tenant] >= maxPending {
		d.opts.Logger.Warn("a report is not delivered, since too many of its tenant wait", "tenant", tenant)
		return ""
	}
	return "msg_" + strings.ToLower(rand.Text())
}

// Add takes on a report in a transaction of the store, under an ID of NewID.
func (d *Deliverer) Add(tx store.Tx, id, tenant, execution, url string, body []byte) error {
	return store.Put(tx, store.Webhooks, id, record{Tenant: tenant, Execution: execution, URL: url, Body: body, Next: time.Now()})
}

// Added says that a report was taken on, which is durable now.
func (d *Deliverer) Added(id, tenant string) {
	d.mu.Lock()
	if d.waiting[id] == nil {
		d.waiting[id] = &waiting{tenant: tenant, next: time.Now()}
		d.ofOne[tenant]++
	}
	d.mu.Unlock()
	d.signal()
}

// Forget gives up the reports of tenants that are not known.
func (d *Deliverer) Forget(known func(tenant string) bool) {
	d.mu.Lock()
	var gone []string
	for id, w := range d.waiting {
		if !known(w.tenant) {
			gone = append(gone, id)
		}
	}
	d.mu.Unlock()
	for _, id := range gone {
		d.remove(id)
	}
}

func (d *Deliverer) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// idle is how long nothing is looked at when nothing waits.
const idle = time.Hour

func (d *Deliverer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-d.wake:
		case <-d.life.Done():
			return
		}
		timer.Reset(d.begin(time.Now()))
	}
}

// begin begins the attempts that are due, and says when the next one is.
func (d *Deliverer) begin(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, soonest := 0, idle
	for _, n := range d.busy {
		all += n
	}
	for id, w := range d.waiting {
		switch {
		case w.busy:
		case w.next.After(now):
			soonest = min(soonest, w.next.Sub(now))
		case all < maxBusy && d.busy[w.tenant] < maxBusyOfTenant: // else the end of one wakes it
			w.busy = true
			all++
			d.busy[w.tenant]++
			d.tasks.Go("deliver a webhook", func() {
				defer d.free(w)
				d.attempt(id)
			})
		}
	}
	return soonest
}

func (d *Deliverer) free(w *waiting) {
	d.mu.Lock()
	w.busy = false
	if d.busy[w.tenant]--; d.busy[w.tenant] == 0 {
		delete(d.busy, w.tenant)
	}
	d.mu.Unlock()
	d.signal()
}

// attempt makes one attempt for a report.
func (d *Deliverer) attempt(id string) {
	var r record
	var found bool
	err := d.opts.Store.View(func(tx store.Tx) (err error) {
		found, err = store.Get(tx, store.Webhooks, id, &r)
		return err
	})
	switch {
	case err != nil:
		d.opts.Logger.Warn("a report cannot be read, and is tried again", "error", err)
		d.postpone(id, time.Now().Add(unreadDelay))
		return
	case !found:
		d.remove(id)
		return
	}
	final, err := d.deliver(id, r)
	switch {
	case d.life.Err() != nil: // the next process does it again
	case err == nil:
		d.end(id, r, Delivered)
	case errors.Is(err, errNotRecorded):
		d.later(id, r, notRecordedDelay)
	case final || r.Attempts+1 >= len(d.opts.Delays):
		d.opts.Logger.Warn("a report was not delivered", "tenant", r.Tenant, "execution", r.Execution, "attempts", r.Attempts+1, "error", err)
		d.end(id, r, Failed)
	default:
		r.Attempts++
		d.later(id, r, d.opts.Delays[r.Attempts])
	}
}

// errNotRecorded says that the audit log does not take a line, without which nothing
// happens.
var errNotRecorded = errors.New("the audit log refuses")

const (
	notRecordedDelay = 5 * time.Second
	// unreadDelay is how long one rests that the store did not give out.
	unreadDelay = time.Minute
)

// deliver posts a report, with a line in the audit log. final says that no other attempt
// would help.
func (d *Deliverer) deliver(id string, r record) (final bool, err error) {
	rules, ok := d.opts.Rules(r.Tenant)
	if !ok {
		return true, errors.New("the operator allows this tenant no webhooks any more")
	}
	to, err := rules.target(r.URL)
	if err != nil {
		return true, err
	}
	secret, err := ParseSecret(rules.Secret)
	if err != nil {
		return true, err
	}
	begin, cancel := context.WithTimeout(d.life, postTimeout)
	defer cancel()
	line, err := d.opts.Log.Begin(begin, audit.Effect{
		Operation: Operation, Cause: string(origin.Broker), Tenant: r.Tenant, ExecutionID: r.Execution, To: to.url.Scheme + "://" + to.url.Host,
	})
	if err != nil {
		return false, errNotRecorded
	}
	client := d.public
	if to.private {
		client = d.private
	}
	err = post(d.life, client, to.url, secret, id, time.Now(), r.Body)
	size := int64(len(r.Body))
	outcome := audit.Outcome{Status: string(sdk.StatusSucceeded), Bytes: &size, Detail: fmt.Sprintf("attempt %d", r.Attempts+1)}
	if err != nil {
		outcome.Status, outcome.Error = audit.StatusError, sdk.CodeUnavailable
		outcome.Detail += ": " + err.Error()
	}
	if ended := line.End(outcome); ended != nil {
		d.opts.Logger.Warn("the outcome of a delivery", "error", ended)
	}
	return errors.Is(err, errGone) || errors.Is(err, errAddress), err
}

// later notes when the next attempt is.
func (d *Deliverer) later(id string, r record, delay time.Duration) {
	r.Next = time.Now().Add(delay)
	err := d.write(func(tx store.Tx) error {
		var now record
		// Of a tenant that was removed meanwhile it is there no more, and shall not go to
		// one of that name.
		if found, err := store.Get(tx, store.Webhooks, id, &now); err != nil || !found {
			return err
		}
		return store.Put(tx, store.Webhooks, id, r)
	})
	if err != nil {
		d.opts.Logger.Warn("a delivery could not be written down, and may be tried too often", "error", err)
	}
	d.postpone(id, r.Next)
}

// postpone has this process make the next attempt then.
func (d *Deliverer) postpone(id string, next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiting[id]; w != nil {
		w.next = next
	}
}

func (d *Deliverer) end(id string, r record, status string) {
	if d.remove(id) && d.opts.Ended != nil {
		d.opts.Ended(r.Tenant, r.Execution, status)
	}
}

// remove forgets a report. Where the disk does not take that, it is tried again.
func (d *Deliverer) remove(id string) bool {
	err := d.write(func(tx store.Tx) error { return store.Delete(tx, store.Webhooks, id) })
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiting[id]
	if err != nil {
		d.opts.Logger.Warn("a report that is done with could not be taken out of the state file, and is posted again", "error", err)
		if w != nil {
			w.next = time.Now().Add(notRecordedDelay)
		}
		return false
	}
	if w != nil {
		delete(d.waiting, id)
		if d.ofOne[w.tenant]--; d.ofOne[w.tenant] == 0 {
			delete(d.ofOne, w.tenant)
		}
	}
	return true
}

func (d *Deliverer) write(change func(tx store.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.life), 30*time.Second)
	defer cancel()
	return d.opts.Store.Update(ctx, change)
}
