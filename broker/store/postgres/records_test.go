package postgres_test

import (
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

// TestARecordThatCannotBeReadIsNobodyElses has records in the database that are no JSON, and one with a
// character that PostgreSQL has in no text: they keep nobody from what is in others.
func TestARecordThatCannotBeReadIsNobodyElses(t *testing.T) {
	url := server.Start(t).Database()
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	for _, s := range all {
		s.LimitInstances(func(string) int64 { return 5 })
	}
	has(t, a, store.Instances, map[string]any{
		"acme:s:1": made{Provider: "cloud", Made: "x1"},
		"acme:t:2": map[string]any{"provider": "cloud", "made": "x2", "metadata": map[string]string{"odd": "\x00 \\\x00\x00 \\u0000"}},
	})
	for bucket, key := range map[store.Bucket]string{store.Instances: "acme:u:3", store.Snapshots: "snap", store.Volumes: "data"} {
		assert.NilError(t, b.Exec(t.Context(), `ALTER TABLE sandbox_record DISABLE TRIGGER sandbox_name`))
		assert.NilError(t, b.Exec(t.Context(), `INSERT INTO sandbox_record (broker, bucket, key, value) VALUES ('a', $1, convert_to($2, 'UTF8'), '{"released":')`, string(bucket), key))
	}
	has(t, a, store.Snapshots, map[string]any{"other": map[string]any{"tenant": "acme"}})

	has(t, b, store.Instances, map[string]any{"acme:v:4": made{Provider: "cloud", Made: "x4"}})
	_, _, err := a.HeldInstances(t.Context(), "cloud", map[string]string{"x4": ""})
	assert.NilError(t, err)
	held, _, err := b.HeldInstances(t.Context(), "cloud", map[string]string{"x1": "", "x2": "", "x9": ""})
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(held, map[string]bool{"x1": true, "x2": true}))
	_, _, err = b.OwnerOfSnapshot(t.Context(), "acme", "snap")
	assert.NilError(t, err)

	dies(t, a, b)
	for kind, want := range map[store.Bucket]int{store.Snapshots: 1, store.Volumes: 0} {
		away, err := b.Away(t.Context(), string(kind), "acme")
		assert.NilError(t, err)
		assert.Check(t, is.Len(away, want), "%s", kind)
	}
	adopted, err := b.Adopt(t.Context(), "a", found(t, b, "cloud"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(adopted, 2))
	mine, err := b.Adopted(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(mine, 2))
	forsaken, err := b.ForsakenOf(t.Context(), "a", peer.Sought{})
	assert.NilError(t, err)
	assert.Check(t, is.Len(forsaken, 0))
}
