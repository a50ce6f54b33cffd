package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func count(t *testing.T, path string) int {
	t.Helper()
	report, err := store.Verify(path)
	assert.NilError(t, err)
	return report.Records[store.Instances]
}

// leafInUse returns a page of a file whose loss costs some of its records, not all.
func leafInUse(t *testing.T, content []byte) int {
	t.Helper()
	path := filepath.Join(inMemory(t), "state.db")
	for page := 2; page < len(content)/pageSize; page++ {
		spoiled := bytes.Clone(content)
		clear(spoiled[page*pageSize : (page+1)*pageSize])
		assert.NilError(t, os.WriteFile(path, spoiled, 0o600))
		if _, err := store.Verify(path); err == nil || kindOf(content, page) != "leaf" {
			continue
		}
		done, err := store.Restore(path, store.Restoring{Now: noon})
		assert.NilError(t, err)
		if done.Kept[store.Instances] >= 100 {
			return page
		}
	}
	t.Fatal("there is no such page")
	return 0
}

func TestWhatIsLeftOfADamagedFileIsRead(t *testing.T) {
	whole := wholeFile(t)
	leaf := leafInUse(t, whole)
	for name, test := range map[string]struct {
		spoil func([]byte) []byte
		least int
	}{
		"a page is lost": {func(b []byte) []byte {
			clear(b[leaf*pageSize : (leaf+1)*pageSize])
			return b
		}, 100},
		"the second half is lost":  {func(b []byte) []byte { return b[:len(b)/2] }, 0},
		"nothing is lost":          {func(b []byte) []byte { return b }, 150},
		"the first page is zeroed": {func(b []byte) []byte { clear(b[:pageSize]); return b }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			spoiled := test.spoil(bytes.Clone(whole))
			assert.NilError(t, os.WriteFile(path, spoiled, 0o600))
			done, err := store.Restore(path, store.Restoring{Now: noon})
			assert.NilError(t, err)
			assert.Assert(t, done.Kept[store.Instances] >= test.least, "%d", done.Kept[store.Instances])
			assert.Equal(t, len(done.Unreadable) > 0, done.Kept[store.Instances] < 150, "what was lost is named: %v", done.Unreadable)
			assert.Equal(t, done.Aside, path+".aside-20261122T120000")
			aside, err := os.ReadFile(done.Aside)
			assert.NilError(t, err)
			assert.Assert(t, bytes.Equal(aside, spoiled))

			s := open(t, path)
			loss, found, err := store.LossOf(s)
			assert.NilError(t, err)
			assert.Assert(t, found)
			assert.Equal(t, loss.What, "the state file was restored")
			got := 0
			assert.NilError(t, s.View(func(tx store.Tx) error {
				return store.Each(tx, store.Instances, func(_ string, _ record, err error) error {
					got++
					return err
				})
			}))
			assert.Equal(t, got, done.Kept[store.Instances])
			assert.NilError(t, store.ForgetLoss(t.Context(), s))
			_, found, err = store.LossOf(s)
			assert.NilError(t, err)
			assert.Assert(t, !found)
		})
	}
}

func TestWhatAFileLacksComesFromTheNewestCopy(t *testing.T) {
	s := newStore(t)
	for n := range 100 {
		assert.NilError(t, s.Update(t.Context(), put(fmt.Sprintf("%0300d", n), record{Count: 1})))
	}
	assert.NilError(t, s.KeepCopy())
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		for n := range 200 {
			if err := put(fmt.Sprintf("%0300d", n), record{Count: 2})(tx); err != nil {
				return err
			}
		}
		return nil
	}))
	assert.NilError(t, s.Close())
	content, err := os.ReadFile(s.Path())
	assert.NilError(t, err)
	leaf := leafInUse(t, content)
	clear(content[leaf*pageSize : (leaf+1)*pageSize])
	assert.NilError(t, os.WriteFile(s.Path(), content, 0o600))
	done, err := store.Restore(s.Path(), store.Restoring{Now: noon})
	assert.NilError(t, err)
	kept, added := done.Kept[store.Instances], done.Added[store.Instances]
	assert.Assert(t, kept > 100 && kept < 200, "%d", kept)
	assert.Equal(t, done.Copy, s.Path()+".copy1")
	again := open(t, s.Path())
	got := map[int]int{}
	assert.NilError(t, again.View(func(tx store.Tx) error {
		return store.Each(tx, store.Instances, func(_ string, r record, err error) error {
			got[r.Count]++
			return err
		})
	}))
	assert.Equal(t, got[2], kept, "what is newer wins")
	assert.Equal(t, got[1], added)
}

// What a copy has of the quotas goes on where the log was when it was made.
func TestTheOlderLineOfTheAuditLogIsTaken(t *testing.T) {
	s := newStore(t)
	at := func(line int) func(store.Tx) error {
		return func(tx store.Tx) error { return store.Put(tx, store.UsageLog, "audit", record{Count: line}) }
	}
	assert.NilError(t, s.Update(t.Context(), at(1)))
	assert.NilError(t, s.KeepCopy())
	newest := store.Copies(s.Path())[0]
	copied, err := os.ReadFile(newest)
	assert.NilError(t, err)
	assert.NilError(t, s.Update(t.Context(), at(2)))
	assert.NilError(t, s.Close())
	assert.NilError(t, os.WriteFile(newest, copied, 0o600)) // the copy of the start may come last
	_, err = store.Restore(s.Path(), store.Restoring{Now: noon})
	assert.NilError(t, err)
	var r record
	assert.NilError(t, open(t, s.Path()).View(func(tx store.Tx) error {
		_, err := store.Get(tx, store.UsageLog, "audit", &r)
		return err
	}))
	assert.Equal(t, r.Count, 1)
}

func TestARestorationThatHasNothingToGoOnChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	assert.NilError(t, os.WriteFile(path, []byte("text"), 0o600))
	_, err := store.Restore(path, store.Restoring{Now: noon})
	assert.ErrorContains(t, err, "--empty")
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "text")
	_, err = store.Restore(path, store.Restoring{From: path, Now: noon})
	assert.ErrorIs(t, err, store.ErrDamaged)
	done, err := store.Restore(path, store.Restoring{Empty: true, Now: noon})
	assert.NilError(t, err)
	assert.Assert(t, done.Aside != "")
	assert.Equal(t, count(t, path), 0)
}

func TestCopiesAreKeptOfSeveralAges(t *testing.T) {
	s := newStore(t)
	assert.NilError(t, s.KeepCopy())
	_, err := os.Stat(s.Path() + ".copy1")
	assert.ErrorIs(t, err, os.ErrNotExist, "there is nothing to be kept")
	copies := store.Copies(s.Path())
	for n := 1; n <= 5; n++ {
		assert.NilError(t, s.Update(t.Context(), put(fmt.Sprint(n), record{Count: n})))
		assert.NilError(t, s.KeepCopy())
		assert.Equal(t, count(t, copies[0]), n)
		info, err := os.Stat(copies[0])
		assert.NilError(t, err)
		assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
		if n == 3 { // two hours pass
			old := time.Now().Add(-2 * time.Hour)
			for _, c := range copies[:2] {
				assert.NilError(t, os.Chtimes(c, old, old))
			}
		}
	}
	// The second place was taken by 1, then by 3 and 4, since what was there was two
	// hours old each time; the third is kept for a day.
	assert.Equal(t, count(t, copies[1]), 4)
	assert.Equal(t, count(t, copies[2]), 1)
	before, err := os.Stat(copies[0])
	assert.NilError(t, err)
	assert.NilError(t, s.KeepCopy())
	after, err := os.Stat(copies[0])
	assert.NilError(t, err)
	assert.Assert(t, os.SameFile(before, after), "nothing has changed")
}

func TestAFileThatIsMissingCountsAsLostWhereThereWasOne(t *testing.T) {
	for _, expected := range []bool{false, true} {
		s, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{Expected: expected})
		assert.NilError(t, err)
		_, found, err := store.LossOf(s)
		assert.NilError(t, err)
		assert.Equal(t, found, expected)
		assert.NilError(t, s.Close())
	}
}

func TestAStateFileIsThatOfOneBroker(t *testing.T) {
	s := newStore(t)
	assert.NilError(t, s.Belong(t.Context(), "a"))
	assert.NilError(t, s.Belong(t.Context(), "a"))
	assert.ErrorContains(t, s.Belong(t.Context(), "b"), "is of another broker")
}
