package journal_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/journal"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

func open(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Close()) })
	return s
}

func load(t testing.TB, j journal.Journal) instance.Past {
	t.Helper()
	past, err := j.Load(t.Context(), hclog.NewNullLogger())
	assert.NilError(t, err)
	return past
}

func record(name string) instance.Record {
	at := time.Now().Round(0).UTC()
	return instance.Record{
		ID: instance.ID{Tenant: "acme", Session: "s", Instance: name}, Provider: "cloud", Template: "python",
		Labels: map[string]string{"a": "b"}, TTL: time.Minute, Idle: time.Hour, Intended: at, Claimed: true,
		Made: "i-1", Metadata: map[string]string{"region": "here"}, Created: at, Expires: at.Add(time.Minute), Deadline: at.Add(time.Hour),
		Fixed: true, FrontDoor: "opensandbox", Note: "{\"its\": \"own\"}\n",
	}
}

func TestARecordComesBackAsItWas(t *testing.T) {
	j := journal.New(open(t))
	want := record("a")
	assert.NilError(t, j.Write(t.Context(), want))
	assert.DeepEqual(t, load(t, j).Records, []instance.Record{want})

	want.Used, want.Paused = true, true
	assert.NilError(t, j.Amend(t.Context(), want.ID, func(r *instance.Record) { r.Used, r.Paused = true, true }))
	assert.DeepEqual(t, load(t, j).Records, []instance.Record{want})
}

func TestWhatEndedIsNotAmendedBackToLife(t *testing.T) {
	j := journal.New(open(t))
	r := record("a")
	assert.NilError(t, j.Write(t.Context(), r))
	ended := instance.Ended{ID: r.ID, At: time.Now().Round(0).UTC(), Reason: "its time was over"}
	assert.NilError(t, j.End(t.Context(), ended, instance.Ended{ID: record("b").ID, At: time.Now()}))
	assert.NilError(t, j.Amend(t.Context(), r.ID, func(*instance.Record) { t.Error("there is nothing to be amended") }))
	past := load(t, j)
	assert.Check(t, is.Len(past.Records, 0))
	assert.DeepEqual(t, past.Ended, []instance.Ended{ended}) // without a reason there is nothing to tell
}

func TestEndsAreForgottenAfterADayAndAboveTheBound(t *testing.T) {
	j := journal.New(open(t))
	end := func(n int, age time.Duration) instance.Ended {
		return instance.Ended{ID: record(fmt.Sprint(n)).ID, At: time.Now().Add(-age), Reason: "r"}
	}
	assert.NilError(t, j.End(t.Context(), end(0, 25*time.Hour)))
	assert.Check(t, is.Len(load(t, j).Ended, 0))
	var all []instance.Ended
	for n := range registry.MaxTombstones + 5 {
		all = append(all, end(n, 0))
	}
	assert.NilError(t, j.End(t.Context(), all...))
	kept := load(t, j).Ended
	assert.Equal(t, len(kept), registry.MaxTombstones)
	assert.Equal(t, kept[0].ID.Instance, "5")
}

func TestADamagedRecordIsDropped(t *testing.T) {
	s := open(t)
	j := journal.New(s)
	assert.NilError(t, j.Write(t.Context(), record("a")))
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		assert.Check(t, tx.Put(store.Instances, "acme:s:b", []byte("{")))
		return store.Put(tx, store.Instances, "acme:s:c", record("other"))
	}))
	for range 2 {
		past := load(t, j)
		assert.Check(t, is.Len(past.Records, 1))
		assert.Equal(t, past.Records[0].ID.Instance, "a")
	}
	assert.NilError(t, s.View(func(tx store.Tx) error {
		count := 0
		defer func() { assert.Equal(t, count, 1) }()
		return tx.Scan(store.Instances, "", func(string, []byte) (bool, error) { count++; return true, nil })
	}))
}

// FuzzLoad reads records that no broker wrote.
func FuzzLoad(f *testing.F) {
	s := open(f)
	j := journal.New(s)
	for _, seed := range []string{`{"id":{"Tenant":"acme","Session":"s","Instance":"a"},"ttl":1}`, `{"id":1}`, `{"created":"x"}`, `null`} {
		f.Add([]byte(seed), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, made, ended []byte) {
		assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
			assert.NilError(t, tx.Put(store.Instances, "acme:s:a", made))
			return tx.Put(store.Ended, "anything", ended)
		}))
		for _, r := range load(t, j).Records {
			assert.Equal(t, r.ID.String(), "acme:s:a")
		}
		assert.NilError(t, j.End(t.Context(), instance.Ended{ID: record("z").ID, At: time.Now(), Reason: "r"}))
	})
}
