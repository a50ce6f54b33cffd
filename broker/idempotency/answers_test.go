package idempotency_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	key   = idempotency.ID{Tenant: "acme", Key: "k"}
	one   = idempotency.Fingerprint{1}
	other = idempotency.Fingerprint{2}
)

func openStore(t testing.TB, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

// inTurn carries updates out in the caller's goroutine: a bubble cannot wait for the
// store's own.
type inTurn struct{ db *bbolt.DB }

func (m inTurn) Update(_ context.Context, change func(tx store.Tx) error) error {
	return m.db.Update(func(tx *bbolt.Tx) error { return change(store.InFile(tx)) })
}

func (m inTurn) View(read func(tx store.Tx) error) error {
	return m.db.View(func(tx *bbolt.Tx) error { return read(store.InFile(tx)) })
}

// inTurnOf is a store of that kind.
func inTurnOf(t *testing.T) inTurn {
	t.Helper()
	made := newStore(t)
	assert.NilError(t, made.Close())
	db, err := bbolt.Open(made.Path(), 0o600, &bbolt.Options{Timeout: time.Second})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, db.Close()) })
	return inTurn{db}
}

func open(t testing.TB, s idempotency.Store) *idempotency.Answers {
	t.Helper()
	a, err := idempotency.Open(s)
	assert.NilError(t, err)
	return a
}

func newStore(t testing.TB) *store.Store {
	t.Helper()
	return openStore(t, filepath.Join(scratch.Dir(t), "state.db"))
}

// crashed is the store as the next process finds it after a kill -9.
func crashed(t *testing.T, s *store.Store) *store.Store {
	t.Helper()
	content, err := os.ReadFile(s.Path())
	assert.NilError(t, err)
	path := filepath.Join(scratch.Dir(t), "state.db")
	assert.NilError(t, os.WriteFile(path, content, 0o600))
	return openStore(t, path)
}

func expect(t *testing.T, a *idempotency.Answers, id idempotency.ID, f idempotency.Fingerprint, want idempotency.State) idempotency.Answer {
	t.Helper()
	state, answer, err := a.Begin(t.Context(), id, f)
	assert.NilError(t, err)
	assert.Equal(t, state, want)
	return answer
}

func TestTheLifeOfAKey(t *testing.T) {
	s := newStore(t)
	a := open(t, s)
	expect(t, a, key, one, idempotency.Fresh)
	expect(t, a, key, one, idempotency.Running)
	expect(t, a, key, other, idempotency.Reused)
	expect(t, a, idempotency.ID{Tenant: "umbrella", Key: "k"}, other, idempotency.Fresh)

	after := crashed(t, s)
	next := open(t, after)
	expect(t, next, key, other, idempotency.Reused)
	expect(t, next, key, one, idempotency.Interrupted)
	expect(t, next, key, one, idempotency.Running)
	next.Abandon(key)
	expect(t, next, key, one, idempotency.Interrupted)

	want := idempotency.Answer{Status: 201, ContentType: "application/json", Headers: map[string]string{"ETag": "x"}, Body: []byte("{\"a\":\x00\xff}")}
	assert.NilError(t, a.End(t.Context(), key, &want))
	for range 2 {
		assert.DeepEqual(t, expect(t, a, key, one, idempotency.Answered), want)
		expect(t, a, key, other, idempotency.Reused)
		a = open(t, crashed(t, s))
	}
}

// bringing is a store in which something comes before its first update.
type bringing struct {
	*store.Store
	come func()
	once sync.Once
}

func (b *bringing) Update(ctx context.Context, change func(tx store.Tx) error) error {
	b.once.Do(b.come)
	return b.Store.Update(ctx, change)
}

// What another broker was answered is brought over between the look for a key and its first
// record: it is not taken for fresh.
func TestAKeyThatIsBroughtOverMeanwhileIsNotFresh(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	before := open(t, s)
	brought := idempotency.Answer{Status: 200, Body: []byte("once")}
	after := open(t, &bringing{Store: s, come: func() {
		expect(t, before, key, one, idempotency.Fresh)
		assert.NilError(t, before.End(t.Context(), key, &brought))
	}})
	assert.DeepEqual(t, expect(t, after, key, one, idempotency.Answered), brought)
	expect(t, after, key, other, idempotency.Reused)

	unanswered := open(t, &bringing{Store: s, come: func() {
		expect(t, before, idempotency.ID{Tenant: "acme", Key: "l"}, one, idempotency.Fresh)
	}})
	expect(t, unanswered, idempotency.ID{Tenant: "acme", Key: "l"}, one, idempotency.Interrupted)
}

func TestAKeyWithoutAnAnswerToKeepIsFreeAgain(t *testing.T) {
	a := open(t, newStore(t))
	expect(t, a, key, one, idempotency.Fresh)
	assert.NilError(t, a.End(t.Context(), key, nil))
	expect(t, a, key, other, idempotency.Fresh)
}

func TestOfManyEqualRequestsAtOnceOneIsCarriedOut(t *testing.T) {
	a := open(t, newStore(t))
	var group sync.WaitGroup
	states := make([]idempotency.State, 50)
	for i := range states {
		group.Go(func() {
			state, _, err := a.Begin(t.Context(), key, one)
			assert.Check(t, err)
			states[i] = state
		})
	}
	group.Wait()
	fresh := 0
	for _, state := range states {
		if state == idempotency.Fresh {
			fresh++
		}
	}
	assert.Equal(t, fresh, 1)
}

func TestALargeAnswerIsKeptWithoutItsBody(t *testing.T) {
	a := open(t, newStore(t))
	expect(t, a, key, one, idempotency.Fresh)
	assert.NilError(t, a.End(t.Context(), key, &idempotency.Answer{Status: 200, Body: make([]byte, idempotency.MaxBody+1)}))
	got := expect(t, a, key, one, idempotency.Answered)
	assert.DeepEqual(t, got, idempotency.Answer{Status: 200, Dropped: true})
}

func TestATenantsAnswersAreBounded(t *testing.T) {
	for name, bound := range map[string][2]int{"in number": {3, 1000}, "in bytes": {1000, 30}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			a := open(t, s)
			a.Bound(bound[0], bound[1])
			for n := range 3 {
				id := idempotency.ID{Tenant: "acme", Key: strconv.Itoa(n)}
				expect(t, a, id, one, idempotency.Fresh)
				assert.NilError(t, a.End(t.Context(), id, &idempotency.Answer{Status: 200, Body: []byte("0123456789")}))
			}
			for range 2 {
				_, _, err := a.Begin(t.Context(), idempotency.ID{Tenant: "acme", Key: "more"}, one)
				assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
				expect(t, a, idempotency.ID{Tenant: "acme", Key: "0"}, one, idempotency.Answered)
				expect(t, a, idempotency.ID{Tenant: "umbrella", Key: "k"}, one, idempotency.Fresh)
				assert.NilError(t, a.End(t.Context(), idempotency.ID{Tenant: "umbrella", Key: "k"}, nil))
				a = open(t, s) // counts anew
				a.Bound(bound[0], bound[1])
			}
		})
	}
}

func TestADayLaterAKeyIsFree(t *testing.T) {
	s := inTurnOf(t)
	synctest.Test(t, func(t *testing.T) {
		a := open(t, s)
		old := idempotency.ID{Tenant: "acme", Key: "old"}
		expect(t, a, old, one, idempotency.Fresh)
		assert.NilError(t, a.End(t.Context(), old, &idempotency.Answer{Status: 200, Body: []byte("x")}))
		time.Sleep(idempotency.Life - time.Second)
		expect(t, a, old, one, idempotency.Answered)
		time.Sleep(2 * time.Second)
		expect(t, a, key, one, idempotency.Fresh)
		expect(t, a, old, other, idempotency.Fresh)
	})
	var left, index int
	assert.NilError(t, s.View(func(tx store.Tx) error {
		left, index = count(tx, store.Answers), count(tx, store.AnswersByAge)
		return nil
	}))
	assert.Equal(t, left, 2)
	assert.Equal(t, index, 2)
}

// FuzzRecord reads answers that no broker wrote.
func FuzzRecord(f *testing.F) {
	s := newStore(f)
	for _, seed := range []string{`{"tenant":"acme","at":"2026-11-21T00:00:00Z","fingerprint":[1],"answer":{"status":200}}`, `{"at":1}`, `{`, `null`, `{"answer":{"body":"!"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
			return tx.Put(store.Answers, key.String(), value)
		}))
		a := open(t, s)
		state, _, err := a.Begin(t.Context(), key, one)
		assert.NilError(t, err)
		if state == idempotency.Fresh || state == idempotency.Interrupted {
			assert.NilError(t, a.End(t.Context(), key, &idempotency.Answer{Status: 204}))
			expect(t, a, key, one, idempotency.Answered)
		}
	})
}

// count returns how many records a bucket has.
func count(tx store.Tx, bucket store.Bucket) (n int) {
	_ = tx.Scan(bucket, "", func(string, []byte) (bool, error) { n++; return true, nil })
	return n
}
