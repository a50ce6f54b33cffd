package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type record struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{LockTimeout: 50 * time.Millisecond})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	return open(t, filepath.Join(scratch.Dir(t), "state.db"))
}

func put(key string, r record) func(store.Tx) error {
	return func(tx store.Tx) error { return store.Put(tx, store.Instances, key, r) }
}

func get(t *testing.T, s *store.Store, key string) (r record, found bool) {
	t.Helper()
	assert.NilError(t, s.View(func(tx store.Tx) (err error) {
		found, err = store.Get(tx, store.Instances, key, &r)
		return err
	}))
	return r, found
}

// crashed is the store as another broker finds it after this one was killed.
func crashed(t *testing.T, s *store.Store) *store.Store {
	t.Helper()
	content, err := os.ReadFile(s.Path())
	assert.NilError(t, err)
	path := filepath.Join(t.TempDir(), "state.db")
	assert.NilError(t, os.WriteFile(path, content, 0o600))
	return open(t, path)
}

// waitForLine waits until so many updates wait for the writer.
func waitForLine(t *testing.T, s *store.Store, n int) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.InLine() < n {
			return poll.Continue("%d in line", s.InLine())
		}
		return poll.Success()
	}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
}

func TestWhatUpdateReturnedForIsThereAfterACrash(t *testing.T) {
	s := newStore(t)
	for n := 1; n <= 5; n++ {
		assert.NilError(t, s.Update(t.Context(), put(strconv.Itoa(n), record{Count: n})))
		after := crashed(t, s)
		for m := 1; m <= n; m++ {
			got, found := get(t, after, strconv.Itoa(m))
			assert.Assert(t, found)
			assert.Equal(t, got.Count, m)
		}
	}
}

func TestTheFileIsPrivate(t *testing.T) {
	s := newStore(t)
	info, err := os.Stat(s.Path())
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
}

func TestManyUpdatesAtOnceAreAllDone(t *testing.T) {
	s := newStore(t)
	const callers, each = 40, 10
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				assert.Check(t, s.Update(t.Context(), func(tx store.Tx) error {
					var r record
					if _, err := store.Get(tx, store.Instances, "sum", &r); err != nil {
						return err
					}
					r.Count++
					return store.Put(tx, store.Instances, "sum", r)
				}))
			}
		})
	}
	group.Wait()
	sum, _ := get(t, s, "sum")
	assert.Equal(t, sum.Count, callers*each)
}

func TestUpdatesThatWaitShareOneTransaction(t *testing.T) {
	s := newStore(t)
	held, release := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		assert.Check(t, s.Update(t.Context(), func(store.Tx) error {
			close(held)
			<-release
			return nil
		}))
	})
	<-held
	var mu sync.Mutex
	transactions := map[int]bool{}
	for n := range 10 {
		group.Go(func() {
			assert.Check(t, s.Update(t.Context(), func(tx store.Tx) error {
				mu.Lock()
				transactions[store.NumberOf(tx)] = true
				mu.Unlock()
				return put(strconv.Itoa(n), record{})(tx)
			}))
		})
	}
	waitForLine(t, s, 10)
	close(release)
	group.Wait()
	assert.Equal(t, len(transactions), 1)
}

func TestAnUpdateThatFailsSpoilsNothing(t *testing.T) {
	s := newStore(t)
	wrong := errors.New("no")
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			err := s.Update(t.Context(), func(tx store.Tx) error {
				if err := put(strconv.Itoa(n), record{Count: n})(tx); err != nil {
					return err
				}
				switch n % 3 {
				case 1:
					return wrong
				case 2:
					panic("oops")
				}
				return nil
			})
			switch n % 3 {
			case 0:
				assert.Check(t, err)
			case 1:
				assert.Check(t, errors.Is(err, wrong))
			case 2:
				assert.Check(t, strings.Contains(err.Error(), "oops"))
			}
		})
	}
	group.Wait()
	for n := range 30 {
		_, found := get(t, s, strconv.Itoa(n))
		assert.Equal(t, found, n%3 == 0, "%d", n)
	}
}

func TestAnUpdateWhoseCallerHasGoneIsNotDone(t *testing.T) {
	s := newStore(t)
	held, release := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		assert.Check(t, s.Update(t.Context(), func(store.Tx) error {
			close(held)
			<-release
			return nil
		}))
	})
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() {
		assert.Check(t, errors.Is(s.Update(ctx, put("late", record{})), context.Canceled))
	})
	waitForLine(t, s, 1)
	cancel()
	close(release)
	group.Wait()
	assert.NilError(t, s.Update(t.Context(), put("next", record{})))
	_, found := get(t, s, "late")
	assert.Assert(t, !found)
}

func TestCloseFinishesWhatHasBegun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path)
	var group sync.WaitGroup
	done := make([]bool, 50)
	for n := range done {
		group.Go(func() {
			err := s.Update(t.Context(), put(strconv.Itoa(n), record{}))
			done[n] = err == nil
			if err != nil {
				assert.Check(t, sdk.CodeOf(err) == sdk.CodeUnavailable, "%v", err)
			}
		})
	}
	assert.NilError(t, s.Close())
	group.Wait()
	again := open(t, path)
	for n := range done {
		_, found := get(t, again, strconv.Itoa(n))
		assert.Equal(t, found, done[n], "%d", n)
	}
	assert.ErrorContains(t, s.Update(t.Context(), put("x", record{})), "shutting down")
	assert.ErrorContains(t, s.View(func(store.Tx) error { return nil }), "shutting down")
}

func TestAnUpdateIsRefusedWhenTheDiskTakesTooLong(t *testing.T) {
	for name, test := range map[string]struct{ patience, deadline time.Duration }{
		"for the store":  {10 * time.Millisecond, time.Minute},
		"for its caller": {time.Minute, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.SetPatience(test.patience)
			entered, release := make(chan struct{}), make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			t.Cleanup(free)
			busy := make(chan error, 1)
			go func() {
				busy <- s.Update(t.Context(), func(store.Tx) error { close(entered); <-release; return nil })
			}()
			<-entered
			ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
			defer cancel()
			err := s.Update(ctx, put("late", record{}))
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
			assert.ErrorContains(t, err, "the broker cannot write its state in time, since its disk is slow")
			free()
			if err := <-busy; test.patience == time.Minute {
				assert.NilError(t, err)
			}
			s.SetPatience(0)
			assert.NilError(t, s.Update(t.Context(), put("next", record{})))
			assert.Check(t, s.Disk().State().Count > 0)
		})
	}
}

func TestTwoStoresOfOneFileAreRefused(t *testing.T) {
	s := newStore(t)
	_, err := store.Open(s.Path(), store.Options{LockTimeout: time.Millisecond})
	assert.ErrorContains(t, err, "another process has the state file")
}

func TestWhatIsNoStateFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	assert.NilError(t, os.WriteFile(path, []byte(strings.Repeat("not a database\n", 4096)), 0o600))
	_, err := store.Open(path, store.Options{})
	assert.ErrorContains(t, err, "is not a state file")
}

func TestSchema(t *testing.T) {
	t.Run("an older file is brought up to date, and kept beside", func(t *testing.T) {
		s := newStore(t)
		assert.NilError(t, s.Update(t.Context(), put("a", record{Count: 1})))
		assert.NilError(t, s.Close())
		later, err := store.OpenWith(s.Path(), put("b", record{Count: 2}), put("c", record{Count: 3}))
		assert.NilError(t, err)
		for key, count := range map[string]int{"a": 1, "b": 2, "c": 3} {
			got, _ := get(t, later, key)
			assert.Equal(t, got.Count, count)
		}
		assert.NilError(t, later.Close())
		before := open(t, s.Path()+".form1")
		_, found := get(t, before, "b")
		assert.Assert(t, !found)
	})
	t.Run("a newer file is refused", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state.db")
		later, err := store.OpenWith(path, put("b", record{}))
		assert.NilError(t, err)
		assert.NilError(t, later.Close())
		_, err = store.Open(path, store.Options{})
		assert.ErrorContains(t, err, "newer broker (form 2, this one knows 1)")
	})
	t.Run("a migration that fails changes nothing", func(t *testing.T) {
		s := newStore(t)
		assert.NilError(t, s.Close())
		_, err := store.OpenWith(s.Path(), put("b", record{}), func(store.Tx) error { return errors.New("no") })
		assert.ErrorContains(t, err, "from form 1 to 3: no")
		again := open(t, s.Path())
		_, found := get(t, again, "b")
		assert.Assert(t, !found)
	})
}

func TestADamagedRecordIsPassedWithTheReason(t *testing.T) {
	s := newStore(t)
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		return errors.Join(put("a", record{Count: 1})(tx), tx.Put(store.Instances, "b", []byte("{")))
	}))
	seen := map[string]bool{}
	assert.NilError(t, s.View(func(tx store.Tx) error {
		return store.Each(tx, store.Instances, func(key string, _ record, err error) error {
			seen[key] = err == nil
			return nil
		})
	}))
	assert.DeepEqual(t, seen, map[string]bool{"a": true, "b": false})
}
