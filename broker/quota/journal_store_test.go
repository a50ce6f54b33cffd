package quota_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

// The file is copied after each step, as kill -9 would leave it, and the next broker
// begins with the copy.
func TestTheCountsSurviveAKillAtAnyStep(t *testing.T) {
	dir := fs.NewDir(t, "state")
	path := dir.Join("state.db")
	c := noon()
	limits := quota.Limits{ExecutionsPerDay: 100}
	logger := hclog.NewNullLogger()
	k := keeper(t, limits, at(c), func(o *quota.Options) { o.Journal = quota.NewStoreJournal(open(t, path), logger) })
	granted, reserved := 0.0, 0.0
	for step := range 10 {
		e := admit(t, k, execution(10*time.Second)).Execution
		e.Start()
		granted, reserved = granted+1, reserved+10
		content, err := os.ReadFile(path)
		assert.NilError(t, err)
		copied := dir.Join("copy" + string(rune('0'+step)))
		assert.NilError(t, os.WriteFile(copied, content, 0o600))
		next := keeper(t, limits, at(c), func(o *quota.Options) { o.Journal = quota.NewStoreJournal(open(t, copied), logger) })
		assert.Equal(t, used(t, next, quota.ExecutionsPerDay), granted)
		assert.Equal(t, used(t, next, quota.ExecutionTimePerDay), reserved)
	}
}

func TestARecordThatCannotBeReadIsCountedAnew(t *testing.T) {
	s := open(t, fs.NewDir(t, "state").Join("state.db"))
	assert.NilError(t, s.Update(context.Background(), func(tx store.Tx) error {
		return tx.Put(store.Usage, "acme", []byte("{"))
	}))
	k := keeper(t, quota.Limits{}, func(o *quota.Options) { o.Journal = quota.NewStoreJournal(s, hclog.NewNullLogger()) })
	admit(t, k, execution(time.Second))
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 1.0)
}

func BenchmarkReserveAndSettleDurably(b *testing.B) {
	s, err := store.Open(b.TempDir()+"/state.db", store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	k := keeper(b, quota.Limits{ExecutionsPerDay: 1_000_000_000}, func(o *quota.Options) { o.Journal = quota.NewStoreJournal(s, hclog.NewNullLogger()) })
	for b.Loop() {
		g, err := k.Admit(context.Background(), execution(time.Second))
		if err != nil {
			b.Fatal(err)
		}
		g.Execution.Start()
		g.Release()
	}
}
