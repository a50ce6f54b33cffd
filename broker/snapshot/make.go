package snapshot

import (
	"context"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// MakeRequest asks for a snapshot of an instance.
type MakeRequest struct {
	// Name is for people; it may be empty, and that of others too.
	Name string
	// Labels are the tenant's own notes, by which it finds snapshots again.
	Labels map[string]string
	// TTL is how long it is kept; zero means the default.
	TTL time.Duration
	// Key is the caller's own name for this request; empty for none. Who asks again with it
	// for the same instance gets the same snapshot.
	Key string
	// FrontDoor names the front door that asks; empty for the broker's own API.
	FrontDoor string
}

var nameForm = regexp.MustCompile(`^[^\x00-\x1f\x7f]{0,100}$`)

func (req MakeRequest) check(limits *Limits) error {
	if !nameForm.MatchString(req.Name) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "name", "must have at most 100 characters, on one line")
	}
	if req.TTL < 0 || req.TTL > limits.MaxTTL {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0 and at most %g seconds", limits.MaxTTL.Seconds())
	}
	return instance.CheckLabels(req.Labels)
}

// Make keeps an instance of the tenant as it is now, and returns when the provider has it.
// The instance runs on. created says that it was made now, and not by an earlier request with
// the same key. Errors carry SB008, SB009, SB010, SB013, SB014 for an instance that is paused,
// or SB015.
func (s *Service) Make(ctx context.Context, who tenant.Tenant, instanceID string, req MakeRequest) (info Info, created bool, err error) {
	limits := s.limits.Load()
	if err := req.check(limits); err != nil {
		return Info{}, false, err
	}
	ttl := req.TTL
	if ttl == 0 {
		ttl = limits.DefaultTTL
	}
	made, created, err := s.make(ctx, who, Record{
		ID: idOf(who.Name, instanceID, req.Key), Tenant: who.Name, Name: req.Name, Labels: maps.Clone(req.Labels),
		Instance: instanceID, FrontDoor: req.FrontDoor, Keyed: req.Key != "", Expires: time.Now().Add(ttl),
	})
	if err != nil {
		return Info{}, false, err
	}
	return infoOf(made), created, nil
}

// make has a snapshot made that a record describes as far as the request does.
func (s *Service) make(ctx context.Context, who tenant.Tenant, r Record) (made Record, created bool, err error) {
	// The instance may be no more of what was made by its key.
	made, begun := s.begun(r)
	if made.Made != "" {
		return made, false, nil
	}
	lease, err := s.instances.Lease(ctx, who, r.Instance, sdk.CapabilitySnapshots)
	if begun && sdk.CodeOf(err) == sdk.CodeNotFound {
		s.lookSoon() // which says whether there is one
		return Record{}, false, inProgress()
	}
	if err != nil {
		return Record{}, false, err
	}
	defer lease.Release()
	provider, err := instance.Capable[sdk.Snapshotter](lease)
	if err != nil {
		return Record{}, false, err
	}
	info := lease.Info()
	if info.Paused {
		return Record{}, false, sdk.Errorf(sdk.CodeConflict, "the instance is paused; resume it first")
	}
	of, current := lease.Provider()
	r.Provider, r.Template, r.Contexts = info.Provider, info.Template, info.Contexts
	r.Ephemeral, r.Intended, r.Network = of.Description().Ephemeral, time.Now(), lease.Network()

	e, room, err := s.claim(r)
	if err != nil || e.Made != "" {
		return e.record(), false, err
	}
	w := making{s, e}
	if err := s.journal.Write(ctx, e.Record); err != nil {
		w.abandon() // whatever of it is on disk is no snapshot
		return Record{}, false, err
	}
	failpoint.Hit(failpoint.SnapshotIntended)
	key, err := s.keyOf(r.Tenant)
	if err != nil {
		w.abandon()
		return Record{}, false, err
	}
	var got sdk.Snapshot
	var said error
	left, err := lease.Call(ctx, s.limits.Load().Timeout, func(ctx context.Context) error {
		got, said = provider.Snapshot(ctx, sdk.SnapshotRequest{
			InstanceID: lease.InstanceID, Labels: s.labels(r), IdempotencyKey: s.brokerID + ":" + r.ID, Key: key,
			// What was made in a process that is about to be replaced is opened by the next.
			Transient: r.Transient && current, MaxBytes: room,
		})
		return said
	})
	w.narrow(lease.Network())
	if code := sdk.CodeOf(said); code == sdk.CodeNotFound || code == sdk.CodeConflict {
		left = false // of a snapshot these are refusals
	}
	switch {
	case err != nil && left:
		w.unclear()
		return Record{}, false, err
	case err != nil:
		w.abandon()
		return Record{}, false, err
	}
	failpoint.Hit(failpoint.SnapshotMade)
	if made, err = w.note(got); err != nil {
		return Record{}, false, err
	}
	failpoint.Hit(failpoint.SnapshotNoted)
	return made, true, nil
}

func (s *Service) labels(r Record) map[string]string {
	labels := map[string]string{sdk.LabelTenant: r.Tenant, sdk.LabelSnapshot: r.ID}
	if s.brokerID != "" {
		labels[sdk.LabelBroker] = s.brokerID
	}
	return labels
}

// record is a copy; that of nil is empty. The caller holds mu, or has the entry.
func (e *entry) record() Record {
	if e == nil {
		return Record{}
	}
	return e.Record
}

// begun finds what an earlier request with the same ID has made, and reports whether there
// was one of which that is not known yet.
func (s *Service) begun(r Record) (made Record, unclear bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[r.ID]
	if e == nil || e.ending || e.Ending || !time.Now().Before(e.Expires) || !s.known(r.Tenant) {
		return Record{}, false
	}
	if e.making || e.Made == "" {
		return Record{}, true
	}
	return e.Record, false
}

func inProgress() error {
	busy := sdk.Errorf(sdk.CodeConflict, "a request with this Idempotency-Key is in progress, or its snapshot is being deleted")
	busy.RetryAfter = time.Second
	return busy
}

// claim begins a snapshot, unless one with its ID is there. The entry is the caller's, as
// long as it has not been made. room is how many bytes it may have; 0 for no bound.
func (s *Service) claim(r Record) (e *entry, room int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known(r.Tenant) {
		return nil, 0, sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
	}
	if e = s.entries[r.ID]; e != nil {
		switch {
		case e.making || e.ending || e.Ending || !time.Now().Before(e.Expires):
			return nil, 0, inProgress()
		case e.Made != "":
			copied := *e
			return &copied, 0, nil
		}
		// An earlier attempt, of which nobody knows: the key finds what it has made.
		e.permit.Release()
		permit, room, err := s.quotas.TakeSnapshot(r.Tenant, r.Transient)
		if err != nil {
			e.permit = s.quotas.AdoptSnapshot(e.Tenant, e.Transient, 0)
			return nil, 0, err
		}
		r.Network = network.Both(e.Network, r.Network) // it may be that attempt's snapshot
		e.Record, e.permit, e.making = r, permit, true
		return e, room, nil
	}
	e = &entry{Record: r, making: true}
	if e.permit, room, err = s.quotas.TakeSnapshot(r.Tenant, r.Transient); err != nil {
		return nil, 0, err
	}
	s.entries[r.ID] = e
	return e, room, nil
}

// quit forgets an entry. The caller holds mu.
func (s *Service) quit(e *entry) {
	e.permit.Release()
	if s.entries[e.ID] == e {
		delete(s.entries, e.ID)
	}
}

// making is a snapshot whose provider is asked for it, by one goroutine.
type making struct {
	*Service
	e *entry
}

// narrow has what goes on from the snapshot ask for no more than that. The instance's network may
// have changed while the provider was asked: whichever of the two it had, the copies have both.
func (w making) narrow(to *network.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.e.Network = network.Both(w.e.Network, to)
}

// note writes down what the provider has made, before anybody is told.
func (w making) note(got sdk.Snapshot) (made Record, err error) {
	made = w.e.Record
	made.Made, made.Created, made.Bytes, made.Memory = got.ID, time.Now(), got.Bytes, got.Memory
	err = w.e.permit.Sized(got.Bytes)
	if err == nil {
		ctx, cancel := w.noting()
		defer cancel()
		err = w.journal.Write(ctx, made)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.e.Record, w.e.making = made, false
	switch {
	case err != nil:
		w.e.Ending = true // and it is deleted now
	case !w.known(made.Tenant):
		w.e.Ending = true
		err = sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
	}
	return made, err
}

// abandon takes the intent back of what was certainly not made.
func (w making) abandon() {
	ctx, cancel := w.noting()
	defer cancel()
	err := w.journal.Remove(ctx, w.e.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil { // its record is found again, and nothing by it
		w.e.making, w.e.Ending, w.e.proofAt = false, true, time.Now()
		return
	}
	w.quit(w.e)
}

// unclear leaves it to the comparison with the provider's list what was made. What nobody
// can ask for again is deleted.
func (w making) unclear() {
	ctx, cancel := w.noting()
	defer cancel()
	ending := w.e.Record
	ending.Ending = !ending.Keyed
	if err := w.journal.Write(ctx, ending); err != nil {
		w.logger.Warn("that a snapshot is to be deleted could not be written down", "snapshot", ending.ID, "error", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.e.Record, w.e.making = ending, false
	w.e.proofAt = time.Now().Add(listDelay(ending.Ephemeral))
	w.lookSoon()
}

// shown is a text for logs, cut where it is long.
func shown(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
