package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type record struct {
	Count int    `json:"count"`
	Text  string `json:"text,omitempty"`
}

func options(url string) postgres.Options {
	return postgres.Options{URL: url, Broker: "a", Holder: "here", Version: "test"}
}

func open(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), o)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

func put(key string, r record) func(store.Tx) error {
	return func(tx store.Tx) error { return store.Put(tx, store.Instances, key, r) }
}

func get(t testing.TB, s store.State, key string) (r record, found bool) {
	t.Helper()
	assert.NilError(t, s.View(func(tx store.Tx) (err error) {
		found, err = store.Get(tx, store.Instances, key, &r)
		return err
	}))
	return r, found
}

// TestOnAServer is what needs no server of its own, since nothing is done to it.
func TestOnAServer(t *testing.T) {
	s := server.Start(t)
	for name, test := range map[string]func(t *testing.T, url string){
		"it does what the file does":                  doesWhatTheFileDoes,
		"what Update returned for outlives a process": outlivesTheProcess,
		"an update that fails spoils nothing":         failureSpoilsNothing,
		"many at once are all done":                   manyAtOnce,
		"records of brokers do not mix":               recordsDoNotMix,
		"what is odd comes back as it was":            oddComesBack,
		"a lease is one process's":                    leaseIsOnes,
		"who was taken over can do nothing":           takenOver,
		"a file is moved once":                        fileMoves,
		"what all have in common is said once":        sharedOnce,
		"a database that does not know the broker":    lossIsNoted,
		"the tables go back and forth":                backAndForth,
		"brokers agree to a configuration":            generationsAreAgreed,
		"ends of audit logs are in one order":         headsAreInOneOrder,
		"a broker on newer tables than it knows":      olderOnNewer,
		"an update whose caller has gone is not done": callerHasGone,
		"a session is with one broker":                sessionIsOnes,
		"a session of a dead broker goes to another":  sessionOfTheDead,
		"sessions are one broker's in any race":       sessionsInARace,
		"a key is with one broker":                    keyIsOnes,
		"the name of a volume is with one broker":     nameIsOnes,
		"names of volumes in a race":                  namesInARace,
		"a snapshot is found":                         snapshotIsFound,
		"a key of a dead broker":                      keyOfTheDead,
		"a quota holds on all brokers together":       quotaHolds,
		"owners are found":                            ownersAreFound,
		"a closed store says so":                      closedSaysSo,
		"what a dead broker had is adopted":           deadIsAdopted,
		"it is adopted once in any race":              adoptedInARace,
		"one of an earlier version is left alone":     earlierIsLeft,
		"who adopts reads only what is sought":        onlySoughtIsRead,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s.Database())
		})
	}
}

func keys(tx store.Tx, bucket store.Bucket, from string) (all []string, err error) {
	err = tx.Scan(bucket, from, func(key string, _ []byte) (bool, error) {
		all = append(all, key)
		return true, nil
	})
	return all, err
}

// doesWhatTheFileDoes does the same at random with a file and with a database.
func doesWhatTheFileDoes(t *testing.T, url string) {
	file, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	defer func() { assert.Check(t, file.Close()) }()
	db := open(t, options(url))
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	buckets := []store.Bucket{store.Instances, store.Ended, store.AnswersByAge}
	for range 150 {
		plan := random.Uint64()
		fails := random.IntN(5) == 0
		step := func(s store.State) (told string) {
			var b strings.Builder
			err := s.Update(t.Context(), func(tx store.Tx) error {
				b.Reset()
				r := rand.New(rand.NewPCG(plan, 1)) //nolint:gosec // not a secret
				for range 1 + r.IntN(8) {
					bucket, key := buckets[r.IntN(len(buckets))], fmt.Sprintf("%c\x00\xff%d", 'a'+r.IntN(3), r.IntN(12))
					switch r.IntN(6) {
					case 0, 1:
						assert.Check(t, tx.Put(bucket, key, fmt.Appendf(nil, `{"n":%d}`, r.IntN(1000))))
					case 2:
						assert.Check(t, tx.Delete(bucket, key))
					case 3:
						value, err := tx.Get(bucket, key)
						fmt.Fprintf(&b, "get %q %s %v\n", key, value, err)
					case 4:
						n, err := tx.Next(bucket)
						fmt.Fprintf(&b, "next %d %v\n", n, err)
					default:
						most := r.IntN(20)
						assert.Check(t, tx.Scan(bucket, key, func(key string, value []byte) (bool, error) {
							fmt.Fprintf(&b, "%q=%s ", key, value)
							most--
							return most > 0, nil
						}))
						b.WriteString("\n")
					}
				}
				if fails {
					return errors.New("no")
				}
				return nil
			})
			return fmt.Sprintf("%s%v", b.String(), err)
		}
		assert.Equal(t, step(db), step(file))
	}
	all := func(s store.State) (told string) {
		assert.NilError(t, s.View(func(tx store.Tx) error {
			for _, bucket := range buckets {
				found, err := keys(tx, bucket, "")
				assert.NilError(t, err)
				told += fmt.Sprintf("%q\n", found)
			}
			return nil
		}))
		return told
	}
	assert.Equal(t, all(db), all(file))
}

func outlivesTheProcess(t *testing.T, url string) {
	first := open(t, options(url))
	assert.NilError(t, first.Update(t.Context(), put("a", record{Count: 7})))
	first.Abandon()
	began := time.Now()
	second := open(t, options(url))
	assert.Check(t, time.Since(began) < time.Minute, "whoever locks the directory need not wait for the end of a lease")
	got, found := get(t, second, "a")
	assert.Check(t, found)
	assert.Check(t, is.Equal(got.Count, 7))
}

func failureSpoilsNothing(t *testing.T, url string) {
	s := open(t, options(url))
	wrong := errors.New("no")
	var group sync.WaitGroup
	for n := range 60 {
		group.Go(func() {
			err := s.Update(t.Context(), func(tx store.Tx) error {
				if err := put(fmt.Sprint(n), record{Count: n})(tx); err != nil {
					return err
				}
				switch n % 3 {
				case 0:
					return wrong
				case 1:
					if n == 31 {
						panic("a mistake")
					}
					return nil
				}
				return nil
			})
			switch {
			case n%3 == 0:
				assert.Check(t, is.ErrorIs(err, wrong))
			case n == 31:
				assert.Check(t, is.ErrorContains(err, "a mistake"))
			default:
				assert.Check(t, err)
			}
		})
	}
	group.Wait()
	for n := range 60 {
		_, found := get(t, s, fmt.Sprint(n))
		assert.Check(t, is.Equal(found, n%3 != 0 && n != 31), "%d", n)
	}
	// What the database refuses is one update's fault: text has no zeros.
	for n := range 20 {
		group.Go(func() {
			err := s.Update(t.Context(), func(tx store.Tx) error {
				if n == 7 {
					return tx.Put(store.Usage, "zero", []byte("\x00"))
				}
				return tx.Put(store.Usage, fmt.Sprint(n), []byte("1"))
			})
			assert.Check(t, is.Equal(err != nil, n == 7), "%d: %v", n, err)
		})
	}
	group.Wait()
}

func manyAtOnce(t *testing.T, url string) {
	s := open(t, options(url))
	var group sync.WaitGroup
	var committed atomic.Int64
	for range 20 {
		group.Go(func() {
			for range 20 {
				assert.Check(t, s.Update(t.Context(), func(tx store.Tx) error {
					var r record
					if _, err := store.Get(tx, store.Instances, "sum", &r); err != nil {
						return err
					}
					r.Count++
					tx.OnCommit(func() { committed.Add(1) })
					return store.Put(tx, store.Instances, "sum", r)
				}))
			}
		})
	}
	group.Wait()
	got, _ := get(t, s, "sum")
	assert.Equal(t, got.Count, 400)
	assert.Equal(t, committed.Load(), int64(400))
}

func recordsDoNotMix(t *testing.T, url string) {
	first := open(t, options(url))
	o := options(url)
	o.Broker, o.Holder = "b", "there"
	second := open(t, o)
	assert.NilError(t, first.Update(t.Context(), put("x", record{Count: 1})))
	_, found := get(t, second, "x")
	assert.Check(t, !found)
	assert.NilError(t, second.Update(t.Context(), func(tx store.Tx) error { return tx.Delete(store.Instances, "x") }))
	_, found = get(t, first, "x")
	assert.Check(t, found)
}

func oddComesBack(t *testing.T, url string) {
	s := open(t, options(url))
	for name, text := range map[string]string{
		"zeros":  "a\x00b",
		"quotes": `'; DROP TABLE sandbox_record; --`,
		"large":  strings.Repeat("x", 3<<20),
		"others": "ä \u2028 \U0001f600 \xff",
	} {
		assert.NilError(t, s.Update(t.Context(), put(name, record{Text: text})), name)
		got, found := get(t, s, name)
		assert.Check(t, found, name)
		assert.Check(t, got.Text == strings.ToValidUTF8(text, "\ufffd"), name)
	}
	// Nothing is not the same as no record.
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error { return tx.Put(store.AnswersByAge, "\x00\x01", nil) }))
	assert.NilError(t, s.View(func(tx store.Tx) error {
		value, err := tx.Get(store.AnswersByAge, "\x00\x01")
		assert.Check(t, value != nil && len(value) == 0)
		return err
	}))
}

const shortLease = 400 * time.Millisecond

func leaseIsOnes(t *testing.T, url string) {
	first, err := postgres.OpenFor(t.Context(), options(url), shortLease)
	assert.NilError(t, err)
	elsewhere := options(url)
	elsewhere.Holder = "elsewhere"
	_, err = postgres.OpenFor(t.Context(), elsewhere, shortLease)
	assert.ErrorContains(t, err, "another broker with the ID a uses the database")
	assert.NilError(t, first.Update(t.Context(), put("a", record{Count: 1})))
	// Once nobody renews it, it ends.
	first.Abandon()
	second, err := postgres.OpenFor(t.Context(), elsewhere, shortLease)
	assert.NilError(t, err)
	_, found := get(t, second, "a")
	assert.Check(t, found)
	// And who closes gives it back.
	assert.NilError(t, second.Close())
	third, err := postgres.OpenFor(t.Context(), options(url), time.Hour)
	assert.NilError(t, err)
	assert.NilError(t, third.Close())
}

func takenOver(t *testing.T, url string) {
	var log bytes.Buffer
	o := options(url)
	o.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
	first, err := postgres.OpenFor(t.Context(), o, time.Hour) // it notices by nothing but the fence
	assert.NilError(t, err)
	defer first.Close()
	assert.NilError(t, first.Held())
	second := open(t, options(url))
	err = first.Update(t.Context(), put("late", record{Count: 1}))
	assert.ErrorContains(t, err, "another process has taken over")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	<-first.Lost()
	assert.ErrorContains(t, first.Err(), "another process")
	assert.ErrorContains(t, first.Held(), "another process")
	_, found := get(t, second, "late")
	assert.Check(t, !found)
	assert.NilError(t, second.Update(t.Context(), put("own", record{})))
	assert.NilError(t, first.Close())
	assert.NilError(t, second.Held(), "who was taken over gives nothing back")
	assert.Check(t, is.Contains(log.String(), "can do nothing any more"))

	// And who only renews notices it too.
	third, err := postgres.OpenFor(t.Context(), options(url), shortLease)
	assert.NilError(t, err)
	defer third.Close()
	fourth := open(t, options(url))
	defer fourth.Close()
	<-third.Lost()
}

// fileMoves brings a state file into a database, once.
func fileMoves(t *testing.T, url string) {
	file, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	defer func() { assert.Check(t, file.Close()) }()
	assert.NilError(t, file.Update(t.Context(), func(tx store.Tx) error {
		for n := range 1000 {
			assert.NilError(t, put(fmt.Sprint(n), record{Count: n})(tx))
		}
		assert.NilError(t, tx.Put(store.AnswersByAge, "\x00\xff", nil))
		return tx.Skip(store.Ended, 7)
	}))
	s := open(t, options(url))
	moved, err := store.Move(t.Context(), file, s)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(moved, 1001))
	got, found := get(t, s, "999")
	assert.Check(t, found && got.Count == 999)
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		next, err := tx.Next(store.Ended)
		assert.Check(t, is.Equal(next, uint64(8)))
		assert.NilError(t, tx.Delete(store.Instances, "999"))
		return err
	}))
	moved, err = store.Move(t.Context(), file, s)
	assert.NilError(t, err)
	assert.Check(t, is.Equal(moved, 0))
	_, found = get(t, s, "999")
	assert.Check(t, !found)
}

func sharedOnce(t *testing.T, url string) {
	var group sync.WaitGroup
	said := make([]string, 8)
	for n := range said {
		o := options(url)
		o.Broker = fmt.Sprint(n)
		s := open(t, o)
		group.Go(func() {
			value, err := s.Shared(t.Context(), "key", fmt.Append(nil, "of ", n))
			assert.Check(t, err)
			said[n] = string(value)
		})
	}
	group.Wait()
	assert.Check(t, is.Len(slices.Compact(said), 1), "%q", said)
}

func lossIsNoted(t *testing.T, url string) {
	o := options(url)
	o.Expected = true
	s := open(t, o)
	loss, found, err := store.LossOf(s)
	assert.NilError(t, err)
	assert.Check(t, found)
	assert.Check(t, is.Contains(loss.What, "database"))
	assert.NilError(t, store.ForgetLoss(t.Context(), s))
	assert.NilError(t, s.Close())
	_, found, err = store.LossOf(open(t, o))
	assert.NilError(t, err)
	assert.Check(t, !found)
}

func backAndForth(t *testing.T, url string) {
	s := open(t, options(url))
	assert.NilError(t, s.Down(t.Context()))
	assert.Equal(t, sdk.CodeOf(s.Update(t.Context(), put("a", record{}))), sdk.CodeUnavailable)
	assert.NilError(t, s.Up(t.Context()))
	s.Abandon()
	assert.NilError(t, open(t, options(url)).Update(t.Context(), put("a", record{})))
}

func callerHasGone(t *testing.T, url string) {
	s := open(t, options(url))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Check(t, is.ErrorIs(s.Update(ctx, put("a", record{})), context.Canceled))
}

func closedSaysSo(t *testing.T, url string) {
	s := open(t, options(url))
	assert.NilError(t, s.Close())
	assert.Check(t, is.ErrorContains(s.Update(t.Context(), put("a", record{})), "shutting down"))
	assert.Check(t, is.ErrorContains(s.View(func(store.Tx) error { return nil }), "shutting down"))
}

func TestAWrongURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, url := range []string{
		"postgres://broker:hunter2@127.0.0.1:1/none",
		"postgres://broker:hunter2@127.0.0.1:port/none",
		"postgres://broker:hunter2@/%zz",
		"postgres://broker:hunter2@127.0.0.1/none?sslmode=odd",
	} {
		_, err := postgres.Open(t.Context(), options(url))
		assert.Check(t, err != nil, url)
		assert.Check(t, !strings.Contains(fmt.Sprint(err), "hunter2"), "%v", err)
	}
}

// The database goes away and comes back.
func TestADatabaseThatIsAway(t *testing.T) {
	away := server.Start(t)
	s, err := postgres.OpenFor(t.Context(), options(away.Database()), 2*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	assert.NilError(t, s.Update(t.Context(), put("before", record{Count: 1})))
	refused := func() {
		t.Helper()
		err := s.Update(t.Context(), put("meanwhile", record{}))
		coded, ok := errors.AsType[*sdk.Error](err)
		assert.Assert(t, ok, "%v", err)
		assert.Check(t, is.Equal(coded.Code, sdk.CodeUnavailable))
		assert.Check(t, coded.RetryAfter > 0)
	}
	back := func() {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if err := s.Update(t.Context(), put("after", record{Count: 2})); err != nil {
				return poll.Continue("%v", err)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		assert.NilError(t, s.Held())
		got, found := get(t, s, "before")
		assert.Check(t, found && got.Count == 1)
	}
	for name, end := range map[string]func(){"in order": away.Down, "by a loss of power": away.Kill} {
		end()
		refused()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if s.Held() == nil {
				return poll.Continue("the lease lasts")
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		refused()
		assert.Check(t, s.Err(), "%s: it comes back, and nothing is wrong for good", name)
		away.Up()
		back()
	}
	// One that does not answer holds nobody up for longer than the lease.
	away.Signal(syscall.SIGSTOP)
	var group sync.WaitGroup
	for range 300 {
		group.Go(refused)
	}
	group.Wait()
	away.Signal(syscall.SIGCONT)
	back()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	away.Signal(syscall.SIGSTOP)
	assert.Equal(t, sdk.CodeOf(s.Update(ctx, put("hasty", record{}))), sdk.CodeUnavailable)
	away.Signal(syscall.SIGCONT)
	back()
}

// The database is killed while many count: what was confirmed is there, and nothing else than
// what was asked for.
func TestCountsAreExactThroughKillsOfTheDatabase(t *testing.T) {
	killed := server.Start(t)
	s := open(t, options(killed.Database()))
	const workers = 8
	var confirmed, unknown [workers]atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := s.Update(t.Context(), func(tx store.Tx) error {
					var r record
					if _, err := store.Get(tx, store.Instances, fmt.Sprint(n), &r); err != nil {
						return err
					}
					r.Count++
					return store.Put(tx, store.Instances, fmt.Sprint(n), r)
				})
				if err == nil {
					confirmed[n].Add(1)
				} else {
					unknown[n].Add(1)
				}
			}
		})
	}
	for round := range int64(4) {
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			for n := range workers {
				if confirmed[n].Load() < 50*(round+1) {
					return poll.Continue("worker %d has %d", n, confirmed[n].Load())
				}
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		killed.Kill()
		killed.Up()
	}
	close(stop)
	group.Wait()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.View(func(tx store.Tx) error { _, err := tx.Get(store.Instances, "0"); return err }) != nil {
			return poll.Continue("it is not back")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	for n := range workers {
		got, _ := get(t, s, fmt.Sprint(n))
		least, most := confirmed[n].Load(), confirmed[n].Load()+unknown[n].Load()
		assert.Check(t, int64(got.Count) >= least && int64(got.Count) <= most, "worker %d: %d, of %d to %d", n, got.Count, least, most)
	}
}

// BenchmarkUpdate is an update of one record, alone and with 32 side by side, in a file and in
// a database on the same disk.
func BenchmarkUpdate(b *testing.B) {
	file, err := store.Open(filepath.Join(b.TempDir(), "state.db"), store.Options{})
	assert.NilError(b, err)
	defer file.Close()
	db, err := postgres.Open(b.Context(), options(server.Start(b, "fsync=on").Database()))
	assert.NilError(b, err)
	defer db.Close()
	for name, s := range map[string]store.State{"file": file, "postgres": db} {
		b.Run(name+"/alone", func(b *testing.B) {
			for b.Loop() {
				assert.NilError(b, s.Update(b.Context(), put("x", record{Count: 1})))
			}
		})
		b.Run(name+"/32", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := s.Update(b.Context(), put("x", record{Count: 1})); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
