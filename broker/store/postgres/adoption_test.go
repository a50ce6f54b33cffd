package postgres_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
)

// made is the record of an instance in a cloud.
type made struct {
	Provider  string `json:"provider"`
	Made      string `json:"made,omitempty"`
	Ephemeral bool   `json:"ephemeral,omitempty"`
	Ending    bool   `json:"ending,omitempty"`
	OneShot   bool   `json:"one_shot,omitempty"`
	Fork      string `json:"fork,omitempty"`
	Volumes   []int  `json:"volumes,omitempty"`
	Created   int64  `json:"created,omitempty"`
	Carries   string `json:"carries,omitempty"`
	Deadline  string `json:"deadline,omitempty"`
}

func has(t *testing.T, s *postgres.Store, bucket store.Bucket, values map[string]any) {
	t.Helper()
	assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
		for key, value := range values {
			if err := store.Put(tx, bucket, key, value); err != nil {
				return err
			}
		}
		return nil
	}))
}

// found is what a broker finds in its account of what broker a had, which is dead.
func found(t *testing.T, s *postgres.Store, labels ...string) []postgres.Forsaken {
	t.Helper()
	all, err := s.ForsakenOf(t.Context(), "a", peer.Sought{})
	assert.NilError(t, err)
	all = slices.DeleteFunc(all, func(f postgres.Forsaken) bool { return !slices.Contains(labels, f.Provider) })
	for n := range all {
		all[n].Carries = "a"
	}
	slices.SortFunc(all, func(a, b postgres.Forsaken) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func instancesOf(t *testing.T, s *postgres.Store) (all []string) {
	t.Helper()
	assert.NilError(t, s.View(func(tx store.Tx) (err error) { all, err = keys(tx, store.Instances, ""); return err }))
	return all
}

func deadIsAdopted(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	has(t, a, store.Snapshots, map[string]any{
		"off":  map[string]any{"transient": true},
		"done": map[string]any{"transient": true, "forked": true},
	})
	has(t, a, store.Instances, map[string]any{
		"acme:s:1":         made{Provider: "cloud", Made: "x1", Created: 1 << 60, Deadline: "2999-11-28T17:48:30.123456789+01:00"},
		"acme:over:1":      made{Provider: "cloud", Made: "x13", Deadline: "2026-01-02T03:04:05.123456789Z"},
		"acme:s:2":         made{Provider: "cloud", Made: "x2", Carries: "c"},
		"acme:done:1":      made{Provider: "cloud", Made: "x3", Fork: "done"},
		"acme:intended:1":  made{Provider: "cloud"},
		"acme:machine:1":   made{Provider: "machine", Made: "x4", Ephemeral: true},
		"acme:ending:1":    made{Provider: "cloud", Made: "x5", Ending: true},
		"acme:once:1":      made{Provider: "cloud", Made: "x6", OneShot: true},
		"acme:cutoff:1":    made{Provider: "cloud", Made: "x7", Fork: "off"},
		"acme:volume:1":    made{Provider: "cloud", Made: "x8", Volumes: []int{1}},
		"acme:elsewhere:1": made{Provider: "other", Made: "x9"},
		"acme:mixed:1":     made{Provider: "cloud", Made: "x10"},
		"acme:mixed:2":     made{Provider: "cloud", Made: "x11", Ending: true},
		"acme:mixed:3":     made{Provider: "bound", Made: "x12"},
		"acme:mixed:4":     made{Provider: "cloud"}, // is being made
	})
	deaths, err := b.Dead(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(deaths, 0))
	candidates := found(t, b, "cloud", "machine")
	adopted, err := b.Adopt(t.Context(), "a", candidates)
	assert.NilError(t, err)
	assert.Check(t, is.Len(adopted, 0), "it lives")
	assert.NilError(t, a.Update(t.Context(), put("acme:alive:1", record{})))

	dies(t, a, b)
	deaths, err = b.Dead(t.Context())
	assert.NilError(t, err)
	assert.Assert(t, is.Len(deaths, 1))
	for _, what := range []peer.Sought{{Instance: "acme:s:1"}, {Session: "acme:s"}, {Session: "acme:machine"}} {
		of, err := b.DeadOwner(t.Context(), what)
		assert.NilError(t, err)
		assert.Check(t, is.DeepEqual(of, deaths), "%+v", what)
	}
	of, err := b.DeadOwner(t.Context(), peer.Sought{Session: "acme:never"})
	assert.NilError(t, err)
	assert.Check(t, is.Len(of, 0))
	var ids []string
	for _, f := range candidates {
		ids = append(ids, f.ID)
	}
	assert.Check(t, is.DeepEqual(ids, []string{"acme:done:1", "acme:mixed:1", "acme:s:1", "acme:s:2"}))

	for sought, session := range map[peer.Sought][]string{
		{Instance: "acme:s:1"}:         {"acme:s:1", "acme:s:2"},
		{Name: "3"}:                    {"acme:mixed:1", "acme:mixed:3"},
		{Session: "acme:mixed"}:        {"acme:mixed:1", "acme:mixed:3"},
		{Instance: "acme:never:1"}:     {},
		{Instance: "acme:intended:1"}:  {},
		{Instance: "acme:elsewhere:1"}: {"acme:elsewhere:1"},
	} {
		of, err := b.ForsakenOf(t.Context(), "a", sought)
		assert.NilError(t, err)
		ids := []string{}
		for _, f := range of {
			ids = append(ids, f.ID)
		}
		slices.Sort(ids)
		assert.Check(t, is.DeepEqual(ids, session), "%+v", sought)
	}

	// What has become another one in the meantime is not what was found.
	other := slices.Clone(candidates)
	for n := range other {
		other[n].Made = "other"
	}
	adopted, err = b.Adopt(t.Context(), "a", other)
	assert.NilError(t, err)
	assert.Check(t, is.Len(adopted, 0))

	// One session at a time, each of them whole.
	for _, chunk := range [][]postgres.Forsaken{candidates[:1], candidates[1:2], candidates[2:], candidates} {
		adopted, err := b.Adopt(t.Context(), "a", chunk)
		assert.NilError(t, err)
		sessions := map[string]int{}
		for _, text := range adopted {
			var r made
			assert.NilError(t, json.Unmarshal(text, &r))
			assert.Check(t, is.Equal(r.Carries, "a"))
			sessions[r.Made]++
			if r.Made == "x1" {
				assert.Check(t, is.Equal(r.Created, int64(1<<60)))
				assert.Check(t, is.Len(adopted, 2))
			}
		}
	}
	assert.Check(t, is.DeepEqual(instancesOf(t, b), ids))
	kept, err := b.Adopted(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(kept, len(ids)))

	// They are b's with all that follows: the session, its end, and what others are told.
	c := brokers(t, url, "c")[0]
	elsewhere(t, c.Update(t.Context(), put("acme:s:3", record{})), "b")
	owner, ok, err := c.OwnerOf(t.Context(), "acme", "acme:s:1")
	assert.NilError(t, err)
	assert.Check(t, ok && owner.ID == "b")
	asked := map[string]string{"x1": "1", "x2": "", "x99": "", "y": "never", "twin": "1"}
	others, own, err := c.HeldInstances(t.Context(), "cloud", asked)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(others, map[string]bool{"x1": true, "x2": true, "twin": true}))
	assert.Check(t, is.Len(own, 0))
	_, own, err = b.HeldInstances(t.Context(), "cloud", asked)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(own, map[string]bool{"x1": true, "x2": true}), "a twin has the name alone")
	for _, id := range []string{"acme:s:1", "acme:s:2"} {
		elsewhere(t, c.Update(t.Context(), put("acme:s:3", record{})), "b")
		assert.NilError(t, b.Update(t.Context(), end(id)))
	}
	assert.NilError(t, c.Update(t.Context(), put("acme:s:3", record{})))

	// It comes back, and has the rest. What it had left of a session that was adopted it has not: a session is with one broker.
	o := options(url)
	o.Holder = "directory of a"
	a = open(t, o)
	assert.Check(t, is.DeepEqual(instancesOf(t, a), []string{
		"acme:alive:1", "acme:cutoff:1", "acme:elsewhere:1", "acme:ending:1", "acme:intended:1", "acme:machine:1", "acme:once:1", "acme:over:1", "acme:volume:1",
	}))
	elsewhere(t, a.Update(t.Context(), put("acme:mixed:3", record{})), "b")
	assert.NilError(t, b.Update(t.Context(), end("acme:mixed:1")))
	assert.NilError(t, a.Update(t.Context(), put("acme:mixed:3", record{})))
}

// adoptedInARace has many adopt the same at once: each instance has one owner, and the dead one
// writes nothing more.
func adoptedInARace(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c", "d")
	a, others := all[0], all[1:]
	const instances = 60
	had := map[string]any{}
	for n := range instances {
		had[fmt.Sprintf("acme:s%d:%d", n/2, n)] = made{Provider: "cloud", Made: fmt.Sprint("x", n)}
	}
	has(t, a, store.Instances, had)
	// It only seems to be dead: its lease is over for the others, and not for itself.
	candidates := found(t, others[0], "cloud")
	assert.Assert(t, is.Len(candidates, instances))
	assert.NilError(t, others[0].Exec(t.Context(), `UPDATE sandbox_broker SET expires_at = now() - interval '1 minute' WHERE id = 'a'`))
	var mu sync.Mutex
	owners := map[string]int{}
	var group sync.WaitGroup
	for n, s := range others {
		for range 3 {
			group.Go(func() {
				for chunk := range slices.Chunk(candidates, 8) {
					adopted, err := s.Adopt(t.Context(), "a", chunk)
					if !assert.Check(t, err) {
						return
					}
					mu.Lock()
					for _, text := range adopted {
						var r made
						assert.Check(t, json.Unmarshal(text, &r))
						before, twice := owners[r.Made]
						assert.Check(t, !twice, "%s is that of %d and of %d", r.Made, before, n)
						owners[r.Made] = n
					}
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	// It may have renewed its lease before the first of them: then it has all of it still.
	if len(owners) == 0 {
		assert.Check(t, is.Len(instancesOf(t, a), instances))
		return
	}
	// Who met another one on its way leaves its sessions for the next round.
	for _, s := range others {
		adopted, err := s.Adopt(t.Context(), "a", candidates)
		assert.NilError(t, err)
		for range adopted {
			owners[fmt.Sprint("late", len(owners))] = 0
		}
	}
	assert.Check(t, is.Len(owners, instances))
	assert.Check(t, a.Update(t.Context(), put("acme:s0:new", record{})) != nil)
	select {
	case <-a.Lost():
	case <-time.After(time.Minute):
		t.Error("the dead one does not know that it is")
	}
	total := 0
	for _, s := range others {
		total += len(instancesOf(t, s))
	}
	assert.Check(t, is.Equal(total, instances))
}

// earlierIsLeft has a broker alone that would not know at its next start what was adopted.
func earlierIsLeft(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	has(t, a, store.Instances, map[string]any{"acme:s:1": made{Provider: "cloud", Made: "x1"}})
	dies(t, a, b)
	assert.NilError(t, b.Exec(t.Context(), `UPDATE sandbox_broker SET version = 'earlier' WHERE id = 'a'`))
	deaths, err := b.Dead(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Len(deaths, 0))
	of, err := b.DeadOwner(t.Context(), peer.Sought{Session: "acme:s"})
	assert.NilError(t, err)
	assert.Check(t, is.Len(of, 0))
}

// onlySoughtIsRead has a dead broker have much: who asks for some of it reads nothing else, which
// would be an error here.
func onlySoughtIsRead(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	has(t, a, store.Instances, map[string]any{"acme:s:1": made{Provider: "cloud", Made: "x1"}, "acme:s:2": made{Provider: "cloud", Made: "x2"}})
	dies(t, a, b)
	assert.NilError(t, b.Exec(t.Context(), `CREATE OR REPLACE FUNCTION sandbox_json(record text) RETURNS json LANGUAGE sql AS $$ SELECT record::json $$`))
	assert.NilError(t, b.Exec(t.Context(), `INSERT INTO sandbox_record (broker, bucket, key, value)
		SELECT 'a', 'instances', convert_to(format('acme:other%s:%s', n, n), 'UTF8'), 'not JSON' FROM generate_series(1, 2000) n`))
	var sought []postgres.Forsaken
	for _, what := range []peer.Sought{{Name: "1"}, {Session: "acme:s"}, {Instance: "acme:s:1"}} {
		deaths, err := b.DeadOwner(t.Context(), what)
		assert.NilError(t, err)
		assert.Check(t, is.Len(deaths, 1))
		if what.Name == "" {
			sought, err = b.ForsakenOf(t.Context(), "a", what)
			assert.NilError(t, err)
			assert.Check(t, is.Len(sought, 2))
		}
	}
	adopted, err := b.Adopt(t.Context(), "a", sought)
	assert.NilError(t, err)
	assert.Check(t, is.Len(adopted, 2))
}
