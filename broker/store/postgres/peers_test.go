package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// brokers opens stores of brokers with these IDs.
func brokers(t *testing.T, url string, ids ...string) []*postgres.Store {
	t.Helper()
	var all []*postgres.Store
	for _, id := range ids {
		o := options(url)
		o.Broker, o.Holder = id, "directory of "+id
		s := open(t, o)
		s.PeersAt(id + ":1")
		all = append(all, s)
	}
	return all
}

// dies ends the process of broker a, longer ago than anybody waits for it.
func dies(t *testing.T, a, others *postgres.Store) {
	t.Helper()
	a.Abandon()
	assert.NilError(t, others.Exec(t.Context(), `UPDATE sandbox_broker SET expires_at = now() - interval '1 minute' WHERE id = 'a'`))
}

func elsewhere(t *testing.T, err error, id string) {
	t.Helper()
	p, found := peer.Of(err)
	assert.Assert(t, found, "%v", err)
	assert.Check(t, is.DeepEqual(p, peer.Peer{ID: id, Address: id + ":1"}))
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
}

func end(key string) func(store.Tx) error {
	return func(tx store.Tx) error { return tx.Delete(store.Instances, key) }
}

func sessionIsOnes(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	update := func(s *postgres.Store, change func(store.Tx) error) error { return s.Update(t.Context(), change) }
	assert.NilError(t, update(a, put("acme:s:1", record{})))
	assert.NilError(t, update(a, put("acme:s:1", record{Count: 2})), "the same again")
	assert.NilError(t, update(a, put("acme:s:2", record{})), "another of the session, while the first ends")
	elsewhere(t, update(b, put("acme:s:3", record{})), "a")
	assert.NilError(t, update(b, put("rival:s:1", record{})), "another tenant's")
	assert.NilError(t, update(a, end("acme:s:1")))
	elsewhere(t, update(b, put("acme:s:3", record{})), "a")
	assert.NilError(t, update(a, end("acme:s:2")))
	assert.NilError(t, update(b, put("acme:s:3", record{})))
	elsewhere(t, update(a, put("acme:s:4", record{})), "b")
	// In one transaction with others, it is that one's fault alone.
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			err := update(a, put(fmt.Sprintf("acme:%d:1", n), record{}))
			assert.Check(t, err)
			if n%3 == 0 {
				_, refused := peer.Of(update(a, put(fmt.Sprint("acme:s:", n), record{})))
				assert.Check(t, refused)
			}
		})
	}
	group.Wait()
}

func sessionOfTheDead(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	assert.NilError(t, a.Update(t.Context(), put("acme:s:1", record{})))
	assert.NilError(t, a.Update(t.Context(), put("acme:other:1", record{})))
	dies(t, a, b)
	_, found, err := b.OwnerOfSession(t.Context(), "acme", "s")
	assert.NilError(t, err)
	assert.Check(t, !found)
	assert.NilError(t, b.Update(t.Context(), put("acme:s:2", record{})))
	// Its next process does not have that any more, and the rest.
	o := options(url)
	o.Holder = "directory of a"
	a = open(t, o)
	_, found = get(t, a, "acme:s:1")
	assert.Check(t, !found)
	_, found = get(t, a, "acme:other:1")
	assert.Check(t, found)

	// One that only seemed to be dead can do nothing any more.
	assert.NilError(t, a.Exec(t.Context(), `UPDATE sandbox_broker SET expires_at = now() - interval '1 minute' WHERE id = 'a'`))
	if err := b.Update(t.Context(), put("acme:other:2", record{})); err == nil { // else it has just renewed its lease
		<-a.Lost()
	}
}

// sessionsInARace has brokers ask for the same sessions at once, and give them up again.
func sessionsInARace(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c")
	var group sync.WaitGroup
	var holders [4]atomic.Int64
	for n, s := range all {
		for worker := range 4 {
			group.Go(func() {
				random := rand.New(rand.NewPCG(uint64(n), uint64(worker))) //nolint:gosec // not a secret
				for round := range 60 {
					session := random.IntN(len(holders))
					key := fmt.Sprintf("acme:%d:%d-%d-%d", session, n, worker, round)
					err := s.Update(t.Context(), put(key, record{}))
					if _, other := peer.Of(err); other {
						continue
					}
					assert.Check(t, err)
					// Several of one broker may have it, and never those of two.
					before := holders[session].Add(1 << (16 * n))
					for other := range all {
						assert.Check(t, other == n || before>>(16*other)&0xffff == 0, "%x", before)
					}
					holders[session].Add(-1 << (16 * n))
					assert.Check(t, s.Update(t.Context(), end(key)))
				}
			})
		}
	}
	group.Wait()
	var left int
	assert.NilError(t, all[0].QueryRow(t.Context(), `SELECT count(*) FROM sandbox_session`, &left))
	assert.Equal(t, left, 0)
}

func keyIsOnes(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	answer := func(text string) func(store.Tx) error {
		return func(tx store.Tx) error {
			return errors.Join(store.Put(tx, store.Answers, "acme\x00key", record{Text: text}), tx.Put(store.AnswersByAge, "12345678acme\x00key", nil))
		}
	}
	assert.NilError(t, a.Update(t.Context(), answer("of a")))
	assert.NilError(t, a.Update(t.Context(), answer("of a, again")))
	elsewhere(t, b.Update(t.Context(), answer("of b")), "a")
	dies(t, a, b)
	err := b.Update(t.Context(), answer("of b"))
	assert.ErrorContains(t, err, "ask again")
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	assert.NilError(t, b.View(func(tx store.Tx) error {
		var r record
		found, err := store.Get(tx, store.Answers, "acme\x00key", &r)
		assert.Check(t, found)
		assert.Check(t, is.Equal(r.Text, "of a, again"))
		ages, ageErr := keys(tx, store.AnswersByAge, "")
		assert.Check(t, is.Len(ages, 1))
		return errors.Join(err, ageErr)
	}))
}

// announcing is a store that tells of its first update.
type announcing struct {
	*postgres.Store
	once    sync.Once
	updates chan struct{}
}

func (a *announcing) Update(ctx context.Context, change func(tx store.Tx) error) error {
	a.once.Do(func() { close(a.updates) })
	return a.Store.Update(ctx, change)
}

// keyOfTheDead asks with a key of a dead broker, beside writes that share the transaction: what that
// one was answered is the answer.
func keyOfTheDead(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	id, request := idempotency.ID{Tenant: "acme", Key: "key"}, idempotency.Fingerprint{1}
	answered := idempotency.Answer{Status: 200, Body: []byte("of a")}
	before, err := idempotency.Open(a)
	assert.NilError(t, err)
	state, _, err := before.Begin(t.Context(), id, request)
	assert.NilError(t, err)
	assert.Equal(t, state, idempotency.Fresh)
	assert.NilError(t, before.End(t.Context(), id, &answered))
	dies(t, a, b)

	asked, held := make(chan struct{}), make(chan struct{})
	after, err := idempotency.Open(&announcing{Store: b, updates: asked})
	assert.NilError(t, err)
	var group sync.WaitGroup
	for n := range 30 { // the first of them holds the writer up, and the others wait together
		group.Go(func() {
			assert.Check(t, b.Update(t.Context(), func(tx store.Tx) error {
				<-held
				return store.Put(tx, store.Executions, fmt.Sprint("acme:", n), record{Text: "other"})
			}))
		})
	}
	var got idempotency.Answer
	group.Go(func() {
		var err error
		state, got, err = after.Begin(t.Context(), id, request)
		if err != nil { // it is told to ask again
			assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
			state, got, err = after.Begin(t.Context(), id, request)
		}
		assert.Check(t, err)
	})
	<-asked
	close(held)
	group.Wait()
	assert.Equal(t, state, idempotency.Answered)
	assert.DeepEqual(t, got, answered)
}

// quotaHolds has three brokers make instances for the same tenants at once, end some, and resume
// what was paused.
func quotaHolds(t *testing.T, url string) {
	const most = 7
	all := brokers(t, url, "a", "b", "c")
	for _, s := range all {
		s.LimitInstances(func(tenant string) int64 { return map[string]int64{"acme": most, "rival": most}[tenant] })
	}
	instance := func(released bool) func(tx store.Tx, key string) error {
		return func(tx store.Tx, key string) error {
			return store.Put(tx, store.Instances, key, map[string]any{"released": released})
		}
	}
	running, paused := instance(false), instance(true)
	var mu sync.Mutex
	made := map[string][]string{}
	var group sync.WaitGroup
	for n, s := range all {
		for worker := range 12 {
			for _, tenant := range []string{"acme", "rival", "free"} {
				group.Go(func() {
					key := fmt.Sprintf("%s:%d-%d:x", tenant, n, worker)
					err := s.Update(t.Context(), func(tx store.Tx) error { return running(tx, key) })
					if err != nil {
						assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded), "%v", err)
						assert.Check(t, is.ErrorContains(err, "max_instances = 7"))
						return
					}
					mu.Lock()
					defer mu.Unlock()
					made[tenant] = append(made[tenant], fmt.Sprint(n)+key)
				})
			}
		}
	}
	group.Wait()
	assert.Check(t, is.Len(made["acme"], most))
	assert.Check(t, is.Len(made["rival"], most))
	assert.Check(t, is.Len(made["free"], 36), "without a quota there is no end")
	on := func(name string, change func(tx store.Tx, key string) error) error {
		return all[name[0]-'0'].Update(t.Context(), func(tx store.Tx) error { return change(tx, name[1:]) })
	}
	one := made["acme"][0]
	another := func() error { return on("2acme:another:x", running) }
	assert.NilError(t, on(one, running), "what is there may be written again")
	assert.Check(t, another() != nil)
	// A paused one that holds nothing makes room, which it must find again.
	assert.NilError(t, on(one, paused))
	assert.NilError(t, another())
	assert.Equal(t, sdk.CodeOf(on(one, running)), sdk.CodeQuotaExceeded)
	assert.NilError(t, on("2acme:another:x", func(tx store.Tx, key string) error { return tx.Delete(store.Instances, key) }))
	assert.NilError(t, on(one, running))
	// Those of a dead broker do not count.
	dies(t, all[0], all[1])
	for n := range most {
		_ = on(fmt.Sprintf("1acme:new%d:x", n), running)
	}
	var count int
	assert.NilError(t, all[1].QueryRow(t.Context(), `SELECT count(*) FROM sandbox_record WHERE bucket = 'instances' AND broker <> 'a' AND key::text LIKE '%' AND encode(key, 'escape') LIKE 'acme:%'`, &count))
	assert.Equal(t, count, most)
}

func ownersAreFound(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	assert.NilError(t, a.Update(t.Context(), put("acme:s:one", record{})))
	look := func(s *postgres.Store) (of []string) {
		for _, ask := range []func() (peer.Peer, bool, error){
			func() (peer.Peer, bool, error) { return s.OwnerOf(t.Context(), "acme", "acme:s:one") },
			func() (peer.Peer, bool, error) { return s.OwnerOfNamed(t.Context(), "one") },
			func() (peer.Peer, bool, error) { return s.OwnerOfSession(t.Context(), "acme", "s") },
		} {
			p, found, err := ask()
			assert.NilError(t, err)
			if found {
				of = append(of, p.ID+"@"+p.Address)
			}
		}
		return of
	}
	assert.DeepEqual(t, look(b), []string{"a@a:1", "a@a:1", "a@a:1"})
	assert.Check(t, is.Len(look(a), 0), "it asks for what it does not have")
	a.PeersAt("elsewhere:2")
	assert.DeepEqual(t, look(b), []string{"a@elsewhere:2", "a@elsewhere:2", "a@elsewhere:2"})
	epoch, alive, err := b.Lives(t.Context(), "a")
	assert.NilError(t, err)
	assert.Check(t, alive && epoch > 0)
	_, alive, err = b.Lives(t.Context(), "nobody")
	assert.NilError(t, err)
	assert.Check(t, !alive)
	dies(t, a, b)
	again, alive, err := b.Lives(t.Context(), "a")
	assert.NilError(t, err)
	assert.Check(t, !alive && again == epoch)
	assert.Check(t, is.Len(look(b), 0))
	_, found, err := b.OwnerOf(t.Context(), "acme", "acme:s:two")
	assert.NilError(t, err)
	assert.Check(t, !found)
}

// volume is what the database reads of a volume's record.
type volume struct {
	Tenant    string `json:"tenant"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Ownerless bool   `json:"ownerless,omitempty"`
}

func nameIsOnes(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	put := func(s *postgres.Store, key string, v volume) error {
		return s.Update(t.Context(), func(tx store.Tx) error { return store.Put(tx, store.Volumes, key, v) })
	}
	data := volume{Tenant: "acme", Name: "data", State: "making"}
	ready, removing, ownerless := data, data, data
	ready.State, removing.State, ownerless.Ownerless = "ready", "removing", true
	assert.NilError(t, put(a, "1", data))
	elsewhere(t, put(b, "2", data), "a")
	assert.NilError(t, put(a, "1", ready))
	assert.NilError(t, put(a, "other", data), "what one broker does with its own names is not the database's business")
	elsewhere(t, put(b, "2", data), "a")
	assert.NilError(t, put(b, "3", volume{Tenant: "rival", Name: "data", State: "making"}))
	p, found, err := b.OwnerOfVolume(t.Context(), "acme", "data")
	assert.NilError(t, err)
	assert.Check(t, found && p.ID == "a")
	_, found, err = a.OwnerOfVolume(t.Context(), "acme", "data")
	assert.NilError(t, err)
	assert.Check(t, !found, "its own")
	// The name is free when the volume is about to go, or is its tenant's no more.
	assert.NilError(t, put(a, "1", removing))
	assert.NilError(t, put(b, "2", data))
	elsewhere(t, put(a, "4", data), "b")
	assert.NilError(t, put(a, "1", ready), "one that is there is never refused")
	assert.NilError(t, put(b, "2", ownerless))
	assert.NilError(t, put(a, "4", data))
	assert.NilError(t, a.Update(t.Context(), func(tx store.Tx) error { return tx.Delete(store.Volumes, "4") }))
	assert.NilError(t, put(b, "5", data))
	// A dead broker keeps the names of what is on its disk.
	assert.NilError(t, put(a, "6", volume{Tenant: "acme", Name: "kept", State: "ready"}))
	dies(t, a, b)
	err = put(b, "7", volume{Tenant: "acme", Name: "kept", State: "making"})
	assert.ErrorIs(t, err, peer.ErrDown)
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	_, _, err = b.OwnerOfVolume(t.Context(), "acme", "kept")
	assert.ErrorIs(t, err, peer.ErrDown)
}

// namesInARace has brokers make volumes of the same names at once.
func namesInARace(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c")
	const names = 20
	var made, refused atomic.Int64
	var group sync.WaitGroup
	for n, s := range all {
		for name := range names {
			group.Go(func() {
				err := s.Update(t.Context(), func(tx store.Tx) error {
					return store.Put(tx, store.Volumes, fmt.Sprintf("%d-%d", n, name), volume{Tenant: "acme", Name: fmt.Sprint("v", name), State: "making"})
				})
				if _, other := peer.Of(err); other {
					refused.Add(1)
					return
				}
				assert.Check(t, err)
				made.Add(1)
			})
		}
	}
	group.Wait()
	assert.Equal(t, made.Load(), int64(names))
	assert.Equal(t, refused.Load(), int64(names*(len(all)-1)))
}

func snapshotIsFound(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	type snapshot struct {
		Tenant  string    `json:"tenant"`
		Expires time.Time `json:"expires"`
		Ending  bool      `json:"ending,omitempty"`
	}
	for id, s := range map[string]snapshot{
		"snap-1": {"acme", time.Now().Add(time.Hour), false}, "snap-2": {"acme", time.Now().Add(-time.Hour), false}, "snap-3": {"acme", time.Now().Add(time.Hour), true},
	} {
		assert.NilError(t, a.Update(t.Context(), func(tx store.Tx) error { return store.Put(tx, store.Snapshots, id, s) }))
	}
	for _, tenant := range []string{"acme", ""} {
		p, found, err := b.OwnerOfSnapshot(t.Context(), tenant, "snap-1")
		assert.NilError(t, err)
		assert.Check(t, found)
		assert.Check(t, is.DeepEqual(p, peer.Peer{ID: "a", Address: "a:1"}))
	}
	for id, tenant := range map[string]string{"snap-1": "rival", "snap-2": "acme", "snap-3": "acme", "snap-4": "acme"} {
		_, found, err := b.OwnerOfSnapshot(t.Context(), tenant, id)
		assert.NilError(t, err)
		assert.Check(t, !found, "%s of %s", id, tenant)
	}
	peers, err := b.Peers(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(peers, []peer.Peer{{ID: "a", Address: "a:1"}}))
	away, err := b.Away(t.Context(), string(store.Snapshots), "acme")
	assert.NilError(t, err)
	assert.Check(t, is.Len(away, 0))
	dies(t, a, b)
	away, err = b.Away(t.Context(), string(store.Snapshots), "acme")
	assert.NilError(t, err)
	assert.Check(t, is.Len(away, 3))
	away, err = b.Away(t.Context(), string(store.Snapshots), "rival")
	assert.NilError(t, err)
	assert.Check(t, is.Len(away, 0))
	_, _, err = b.OwnerOfSnapshot(t.Context(), "acme", "snap-1")
	assert.ErrorIs(t, err, peer.ErrDown)
	peers, err = b.Peers(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(peers, 0))
}
