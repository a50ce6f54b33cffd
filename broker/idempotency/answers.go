// Package idempotency keeps what requests with an Idempotency-Key were answered, in
// the state file, for a day: who asks again with the same key gets the same answer,
// also from the next process of the broker. So it does with what a front door begins once.
// What a request is, and which answers are worth keeping, is decided in package api.
//
// Of a request only a SHA-256 is kept. Answers are kept as they were sent.
package idempotency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Bounds of what is kept.
const (
	// Life of a key, from its answer on.
	Life = 24 * time.Hour
	// MaxBody is the largest body that is kept, in bytes.
	MaxBody = 1 << 20
	// MaxKeys and MaxBytes are what one tenant may have kept.
	MaxKeys  = 10_000
	MaxBytes = 64 << 20
	// MaxGroup is how many keys of one group a tenant may have kept.
	MaxGroup = 4096
	// maxPruned bounds how many outdated answers one new key removes.
	maxPruned = 100
)

// ID is a key of a tenant; administrators have no tenant, and share theirs. Since tells
// the tenant from one that had its name before; it is not kept. Keys of a Group have a
// bound of their own together; it is empty for those that have none.
type ID struct {
	Tenant, Key, Group string
	Since              int
}

func (id ID) String() string { return id.Tenant + "\x00" + id.Key }

// tenantIn returns the tenant of a record's key.
func tenantIn(key string) string {
	tenant, _, _ := strings.Cut(key, "\x00")
	return tenant
}

// Fingerprint stands for a request: who sends another one with a used key has made a
// mistake.
type Fingerprint [32]byte

// Answer to a request.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Headers beside Content-Type that are part of the answer.
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`
	// Dropped says that the body was too large to be kept.
	Dropped bool `json:"dropped,omitempty"`
}

// State of a key when a request comes.
type State int

const (
	// Fresh keys have never been used: the request is to be carried out.
	Fresh State = iota
	// Answered keys have an Answer.
	Answered
	// Running means that the same request is being carried out by this process.
	Running
	// Interrupted means that it was being carried out when the process before this
	// one ended; nobody knows how far it came. It may be carried out once more.
	Interrupted
	// Reused means that the key was used for another request.
	Reused
)

// Store is where answers are kept; *store.Store is it.
type Store interface {
	Update(ctx context.Context, change func(tx store.Tx) error) error
	View(read func(tx store.Tx) error) error
}

// Answers are the kept ones. Methods may be called concurrently.
type Answers struct {
	store             Store
	maxKeys, maxBytes int
	maxGroup          int

	mu      sync.Mutex
	running map[ID]Fingerprint
	held    map[holder]usage
}

// holder is a tenant, or a group of its keys.
type holder struct{ tenant, group string }

// usage is what one has kept.
type usage struct{ keys, bytes int }

// record is what the store has of a key.
type record struct {
	Tenant      string      `json:"tenant"`
	Group       string      `json:"group,omitempty"`
	At          time.Time   `json:"at"`
	Fingerprint Fingerprint `json:"fingerprint"`
	Answer      *Answer     `json:"answer,omitempty"` // nil as long as there is none
}

func (r record) size() int {
	if r.Answer == nil {
		return 0
	}
	return len(r.Answer.Body)
}

// Open returns the answers that a store holds.
func Open(s Store) (*Answers, error) {
	a := &Answers{store: s, maxKeys: MaxKeys, maxBytes: MaxBytes, maxGroup: MaxGroup, running: map[ID]Fingerprint{}, held: map[holder]usage{}}
	err := s.View(func(tx store.Tx) error {
		return store.Each(tx, store.Answers, func(_ string, r record, err error) error {
			if err == nil {
				a.count(r, 1)
			}
			return nil //nolint:nilerr // a damaged one is replaced by its next use
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the kept answers: %w", err)
	}
	return a, nil
}

// Begin asks what is to be done with a request. After Fresh and Interrupted the
// caller carries it out and calls End; what it does then is durably announced.
// Errors carry SB008 for a tenant that has kept too much, and SB009.
func (a *Answers) Begin(ctx context.Context, id ID, f Fingerprint) (State, Answer, error) {
	if state, busy := a.reserve(id, f); busy {
		return state, Answer{}, nil
	}
	state, answer, err := a.begin(ctx, id, f)
	if err != nil || state != Fresh && state != Interrupted {
		a.release(id)
	}
	return state, answer, err
}

// reserve takes the key for one request of this process.
func (a *Answers) reserve(id ID, f Fingerprint) (state State, busy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	other, busy := a.running[id]
	switch {
	case !busy:
		a.running[id] = f
		return Fresh, false
	case other != f:
		return Reused, true
	default:
		return Running, true
	}
}

func (a *Answers) release(id ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, id)
}

func (a *Answers) begin(ctx context.Context, id ID, f Fingerprint) (State, Answer, error) {
	state, r, err := a.kept(id)
	if err != nil {
		return Fresh, Answer{}, err
	}
	switch {
	case r != nil && r.Fingerprint != f:
		return Reused, Answer{}, nil
	case state == Answered:
		return Answered, *r.Answer, nil
	case state == Interrupted:
		return Interrupted, Answer{}, nil
	}
	if err := a.room(id); err != nil {
		// Some of what is kept may be outdated.
		if pruned, pruneErr := a.prune(ctx); pruneErr != nil || !pruned {
			return Fresh, Answer{}, errors.Join(pruneErr, err)
		}
		if err := a.room(id); err != nil {
			return Fresh, Answer{}, err
		}
	}
	fresh := record{Tenant: id.Tenant, Group: id.Group, At: time.Now(), Fingerprint: f}
	if err = a.write(ctx, id, &fresh, true); errors.Is(err, errCame) {
		return a.begin(ctx, id, f)
	}
	return Fresh, Answer{}, err
}

// errCame says that a record of a fresh key has come meanwhile: where several brokers share a
// database, what a dead one has of a key is brought over to who is asked with it, and the same
// transaction is tried again then, beside others, before anybody has looked at that.
var errCame = errors.New("the key is not fresh any more")

// kept reads what the store has of a key: Fresh without a record for one that it has not,
// and Interrupted without one where that is damaged.
func (a *Answers) kept(id ID) (state State, r *record, err error) {
	err = a.store.View(func(tx store.Tx) error {
		state, r = Fresh, nil
		var read record
		found, err := store.Get(tx, store.Answers, id.String(), &read)
		switch {
		case err != nil && !found: // it could not be asked for: an answer may be there
			return err
		case err != nil: // of a damaged one nobody knows how far it came
			state = Interrupted
		case !found || time.Since(read.At) > Life: // outdated: as if it had never been
		case read.Answer != nil:
			state, r = Answered, &read
		default:
			state, r = Interrupted, &read
		}
		return nil //nolint:nilerr // it is told as the state
	})
	return state, r, err
}

// Find says what is known of a key, for whatever request: Fresh of one that was not used,
// else Answered, Running or Interrupted. It changes nothing. Errors carry SB009.
func (a *Answers) Find(id ID) (State, Answer, error) {
	if a.isRunning(id) {
		return Running, Answer{}, nil
	}
	state, r, err := a.kept(id)
	if state == Interrupted {
		// Or it was begun just now. Nothing is while mu is held.
		a.mu.Lock()
		defer a.mu.Unlock()
		if _, running := a.running[id]; running {
			return Running, Answer{}, nil
		}
		state, r, err = a.kept(id)
	}
	if err != nil || state != Answered {
		return state, Answer{}, err
	}
	return Answered, *r.Answer, nil
}

func (a *Answers) isRunning(id ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, running := a.running[id]
	return running
}

// room says whether the tenant may use one more key.
func (a *Answers) room(id ID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if held := a.held[holder{tenant: id.Tenant}]; held.keys >= a.maxKeys || held.bytes >= a.maxBytes {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "too many answers are kept for this tenant (%d, of %d bytes, within 24 hours); send the request without an Idempotency-Key", held.keys, held.bytes)
	}
	if held := a.held[holder{id.Tenant, id.Group}]; id.Group != "" && held.keys >= a.maxGroup {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "too many answers are kept of this kind (%d within 24 hours)", held.keys)
	}
	return nil
}

// End keeps the answer, and frees the key if there is none to be kept. It is called
// once after Begin, whatever happens. When the disk does not take the answer the key
// counts as Interrupted from then on.
func (a *Answers) End(ctx context.Context, id ID, answer *Answer) error {
	defer a.release(id)
	a.mu.Lock()
	f, wanted := a.running[id]
	a.mu.Unlock()
	switch {
	case !wanted: // its tenant was removed meanwhile
		return nil
	case answer == nil:
		return a.write(ctx, id, nil, false)
	}
	kept := *answer
	if len(kept.Body) > MaxBody {
		kept.Body, kept.Dropped = nil, true
	}
	return a.write(ctx, id, &record{Tenant: id.Tenant, Group: id.Group, At: time.Now(), Fingerprint: f, Answer: &kept}, false)
}

// Abandon frees the key in this process alone: the request counts as Interrupted.
func (a *Answers) Abandon(id ID) { a.release(id) }

// write puts a record in place of the one that is there; nil for none. What is kept is
// counted as it is committed: also where the caller has gone before it learns that it was.
func (a *Answers) write(ctx context.Context, id ID, r *record, fresh bool) error {
	return a.store.Update(ctx, func(tx store.Tx) error {
		var removed []record
		remove := removing(tx, &removed)
		if fresh {
			var came record
			switch found, err := store.Get(tx, store.Answers, id.String(), &came); {
			case found && (err != nil || time.Since(came.At) <= Life):
				return errCame
			case err != nil:
				return err
			}
			if err := pruneOutdated(tx, remove); err != nil {
				return err
			}
		}
		if err := remove(id.String()); err != nil {
			return err
		}
		tx.OnCommit(func() { a.exchange(removed, r) })
		if r == nil {
			return nil
		}
		return errors.Join(
			store.Put(tx, store.Answers, id.String(), r),
			tx.Put(store.AnswersByAge, ageKey(r.At, id.String()), nil))
	})
}

// exchange counts a record, nil for none, in place of those that were removed.
func (a *Answers) exchange(removed []record, r *record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, old := range removed {
		a.count(old, -1)
	}
	if r != nil {
		a.count(*r, 1)
	}
}

// Reindex writes the order of the answers' times anew, in a store that was restored.
func Reindex(tx store.Tx) error {
	var stale []string
	if err := tx.Scan(store.AnswersByAge, "", func(key string, _ []byte) (bool, error) {
		stale = append(stale, key)
		return true, nil
	}); err != nil {
		return err
	}
	for _, key := range stale {
		if err := tx.Delete(store.AnswersByAge, key); err != nil {
			return err
		}
	}
	return store.Each(tx, store.Answers, func(key string, r record, err error) error {
		if err != nil {
			return err
		}
		return tx.Put(store.AnswersByAge, ageKey(r.At, key), nil)
	})
}

// take removes a record and returns it, nil for none or a damaged one.
func take(tx store.Tx, key string) (*record, error) {
	var old record
	found, err := store.Get(tx, store.Answers, key, &old)
	if !found {
		return nil, err
	}
	if delErr := store.Delete(tx, store.Answers, key); delErr != nil || err != nil {
		return nil, delErr
	}
	return &old, tx.Delete(store.AnswersByAge, ageKey(old.At, key))
}

// prune removes some of the answers whose time is over, and reports whether there were
// any.
func (a *Answers) prune(ctx context.Context) (pruned bool, err error) {
	limit := ageKey(time.Now().Add(-Life), "")
	outdated := false
	if err := a.store.View(func(tx store.Tx) error {
		outdated = false
		return tx.Scan(store.AnswersByAge, "", func(oldest string, _ []byte) (bool, error) {
			outdated = oldest < limit
			return false, nil
		})
	}); err != nil || !outdated {
		return false, err
	}
	return true, a.store.Update(ctx, func(tx store.Tx) error {
		var removed []record
		if err := pruneOutdated(tx, removing(tx, &removed)); err != nil {
			return err
		}
		tx.OnCommit(func() { a.exchange(removed, nil) })
		return nil
	})
}

// removing returns what takes records away, and notes them.
func removing(tx store.Tx, removed *[]record) func(key string) error {
	return func(key string) error {
		old, err := take(tx, key)
		if old != nil {
			*removed = append(*removed, *old)
		}
		return err
	}
}

// pruneOutdated removes some of the answers whose time is over.
func pruneOutdated(tx store.Tx, remove func(key string) error) error {
	limit := ageKey(time.Now().Add(-Life), "")
	var keys []string
	if err := tx.Scan(store.AnswersByAge, "", func(key string, _ []byte) (bool, error) {
		if key >= limit || len(keys) == maxPruned {
			return false, nil
		}
		keys = append(keys, key)
		return true, nil
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if len(k) > 8 {
			if err := remove(k[8:]); err != nil {
				return err
			}
		}
		if err := tx.Delete(store.AnswersByAge, k); err != nil {
			return err
		}
	}
	return nil
}

// ageKey sorts by time.
func ageKey(at time.Time, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))) + key
}

// count adds a record to what its tenant has kept, or takes it off. The caller holds mu,
// or is alone.
func (a *Answers) count(r record, sign int) {
	a.countFor(holder{tenant: r.Tenant}, sign, sign*r.size())
	if r.Group != "" {
		a.countFor(holder{r.Tenant, r.Group}, sign, sign*r.size())
	}
}

func (a *Answers) countFor(h holder, keys, size int) {
	held := a.held[h]
	held.keys += keys
	held.bytes += size
	if a.held[h] = held; held.keys <= 0 {
		delete(a.held, h)
	}
}
