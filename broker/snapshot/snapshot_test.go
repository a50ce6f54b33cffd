package snapshot_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	acme     = tenant.Tenant{Name: "acme"}
	umbrella = tenant.Tenant{Name: "umbrella"}
)

// memory is a journal that a test looks into.
type memory struct {
	mu      sync.Mutex
	records map[string]snapshot.Record
	fail    error
}

func (m *memory) Write(_ context.Context, records ...snapshot.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, r := range records {
		m.records[r.ID] = r
	}
	return nil
}

func (m *memory) Remove(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	delete(m.records, id)
	return nil
}

func (m *memory) all() []snapshot.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.records))
}

func (m *memory) refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// scene is a service over a provider in memory, with an instance of acme's.
type scene struct {
	*snapshot.Service
	provider  *instancetest.Provider
	instances *instance.Service
	quotas    *quota.Keeper
	journal   *memory
	original  instance.Info
	// network is what acme has.
	network *sdk.NetworkPolicy
	removed map[string]bool
	mu      sync.Mutex
}

// Tenant implements instance.Tenants.
func (s *scene) Tenant(name string) (tenant.Tenant, bool) {
	if name != acme.Name {
		return tenant.Tenant{Name: name}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return tenant.Tenant{Name: name, Network: s.network}, true
}

// allow changes what acme may reach.
func (s *scene) allow(hosts ...string) {
	policy := &sdk.NetworkPolicy{}
	for _, host := range hosts {
		policy.Rules = append(policy.Rules, sdk.NetworkRule{Host: host})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.network = policy
}

func (s *scene) known(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.removed[name]
}

func (s *scene) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed[name] = true
}

// past is what an earlier process has left; change may change the scene before it begins.
func inBubble(t *testing.T, past []snapshot.Record, change func(*scene), test func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{
			provider: &instancetest.Provider{Name: "first", Snapshots: &instancetest.Snapshots{Bytes: 10}},
			journal:  &memory{records: map[string]snapshot.Record{}}, removed: map[string]bool{},
		}
		for _, r := range past {
			s.journal.records[r.ID] = r
		}
		if change != nil {
			change(s)
		}
		var err error
		s.quotas, err = quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Snapshots: 3, SnapshotBytes: 35, Instances: 6}}}})
		assert.NilError(t, err)
		defer s.quotas.Close()
		s.instances = instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{s.provider}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Quotas: s.quotas, Tenants: s,
		})
		defer s.instances.Shutdown(t.Context())
		s.begin(past)
		defer func() { s.Close() }()
		synctest.Wait() // a list of the same moment as what is made would lack it
		s.original, _, err = s.instances.Create(t.Context(), acme, instance.CreateRequest{Session: "original", TTL: 12 * time.Hour})
		assert.NilError(t, err)
		test(t, s)
	})
}

// begin starts a service with what the one before has left.
func (s *scene) begin(past []snapshot.Record) {
	s.Service = snapshot.NewService(snapshot.Options{
		Instances: s.instances, Providers: func() []instance.Provider { return instance.Reachable(s.instances) },
		Quotas: s.quotas, Journal: s.journal, Past: past, Secret: []byte(strings.Repeat("s", 32)), BrokerID: "b",
		Limits: snapshot.Limits{DefaultTTL: time.Hour, MaxTTL: 24 * time.Hour, Timeout: time.Minute},
		Known:  s.known, Logger: hclog.NewNullLogger(),
	})
}

func (s *scene) make(t *testing.T, req snapshot.MakeRequest) snapshot.Info {
	t.Helper()
	info, created, err := s.Make(t.Context(), acme, s.original.ID.String(), req)
	assert.NilError(t, err)
	assert.Assert(t, created)
	return info
}

func (s *scene) list(t *testing.T) (ids []string) {
	t.Helper()
	for _, info := range s.List(acme, snapshot.ListRequest{Limit: 100}).Snapshots {
		ids = append(ids, info.ID)
	}
	return ids
}

// settle waits as long as it takes, in the time of the bubble.
func settle(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func (s *scene) used(t *testing.T) (count, bytes float64) {
	t.Helper()
	for _, line := range s.quotas.Usage("acme").Lines {
		switch line.Limit {
		case quota.MaxSnapshots:
			count = line.Used
		case quota.MaxSnapshotBytes:
			bytes = line.Used
		}
	}
	return count, bytes
}

func (s *scene) nothingIsLeft(t *testing.T) {
	t.Helper()
	count, bytes := s.used(t)
	assert.Equal(t, count+bytes, 0.0)
	assert.Equal(t, len(s.provider.Kept()), 0)
	assert.Equal(t, len(s.journal.all()), 0)
	assert.Equal(t, len(s.list(t)), 0)
}

func code(t *testing.T, err error, want sdk.Code) {
	t.Helper()
	assert.Equal(t, sdk.CodeOf(err), want, "%v", err)
}

func TestASnapshotIsItsTenants(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{Name: "n", Labels: map[string]string{"a": "b"}, TTL: 2 * time.Hour})
		got, err := s.Get(acme, made.ID)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, made)
		assert.Equal(t, got.Bytes, int64(10))
		assert.Equal(t, time.Until(got.ExpiresAt), 2*time.Hour)
		asked := s.provider.Asked()[0]
		assert.DeepEqual(t, asked.Labels, map[string]string{"tenant": "acme", "snapshot": made.ID, "broker": "b"})
		assert.Equal(t, asked.MaxBytes, int64(35))
		assert.Assert(t, !asked.Transient)
		assert.Equal(t, len(asked.Key), sdk.SnapshotKeyBytes)

		_, err = s.Get(umbrella, made.ID)
		code(t, err, sdk.CodeNotFound)
		code(t, s.Delete(t.Context(), umbrella, made.ID), sdk.CodeNotFound)
		var req instance.CreateRequest
		code(t, s.Source(umbrella, made.ID, &req), sdk.CodeNotFound)
		_, _, err = s.Make(t.Context(), umbrella, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeNotFound)
		assert.Equal(t, len(s.List(umbrella, snapshot.ListRequest{Limit: 9}).Snapshots), 0)
		assert.Equal(t, len(s.ListAll("", snapshot.ListRequest{Limit: 9}).Snapshots), 1)

		assert.NilError(t, s.Source(acme, made.ID, &req))
		assert.Equal(t, req.Provider, "first")
		assert.DeepEqual(t, req.Snapshot.Key, asked.Key)
		for field, contradicts := range map[string]instance.CreateRequest{"provider": {Provider: "second"}, "template": {Template: "nodejs"}} {
			err := s.Source(acme, made.ID, &contradicts)
			assert.Check(t, is.ErrorContains(err, "SB010: "+field))
		}
		assert.NilError(t, s.Delete(t.Context(), acme, made.ID))
		code(t, s.Delete(t.Context(), acme, made.ID), sdk.CodeNotFound)
		s.nothingIsLeft(t)
	})
}

func TestPagesOfSnapshots(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		var made []string
		for _, label := range []string{"x", "y", "x"} {
			made = append(made, s.make(t, snapshot.MakeRequest{Labels: map[string]string{"l": label}}).ID)
		}
		slices.Sort(made)
		page := s.List(acme, snapshot.ListRequest{Limit: 2})
		assert.Assert(t, page.More)
		assert.Equal(t, page.Snapshots[1].ID, made[1])
		rest := s.List(acme, snapshot.ListRequest{Limit: 2, After: made[1]})
		assert.Assert(t, !rest.More && len(rest.Snapshots) == 1)
		assert.Equal(t, len(s.List(acme, snapshot.ListRequest{Limit: 9, Labels: map[string]string{"l": "x"}}).Snapshots), 2)
		assert.Equal(t, len(s.List(acme, snapshot.ListRequest{Limit: 9, Instance: "another"}).Snapshots), 0)
		assert.Equal(t, len(s.List(acme, snapshot.ListRequest{Limit: 9, Provider: "second"}).Snapshots), 0)
	})
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.provider.OnPause = func(context.Context, string, bool) error { return nil }
	}, func(t *testing.T, s *scene) {
		for name, test := range map[string]struct {
			req  snapshot.MakeRequest
			want string
		}{
			"an endless ttl":       {snapshot.MakeRequest{TTL: 25 * time.Hour}, "SB010: ttl"},
			"a name in two lines":  {snapshot.MakeRequest{Name: "a\nb"}, "SB010: name"},
			"a name without end":   {snapshot.MakeRequest{Name: strings.Repeat("x", 101)}, "SB010: name"},
			"a label of no form":   {snapshot.MakeRequest{Labels: map[string]string{"-": ""}}, "SB010: labels"},
			"a label without end":  {snapshot.MakeRequest{Labels: map[string]string{"a": strings.Repeat("x", 300)}}, "SB010: labels.a"},
			"a label with control": {snapshot.MakeRequest{Labels: map[string]string{"a": "\x1b"}}, "SB010: labels.a"},
		} {
			_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), test.req)
			assert.Check(t, is.ErrorContains(err, test.want), name)
		}
		_, err := s.instances.Pause(t.Context(), acme, s.original.ID.String())
		assert.NilError(t, err)
		_, _, err = s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeConflict)
		assert.Equal(t, len(s.provider.Asked()), 0)
		s.nothingIsLeft(t)
	})
}

func TestTheQuotasOfSnapshots(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		for range 3 {
			s.make(t, snapshot.MakeRequest{})
		}
		_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		assert.ErrorContains(t, err, "max_snapshots = 3")
		code(t, err, sdk.CodeQuotaExceeded)
		assert.NilError(t, s.Delete(t.Context(), acme, s.list(t)[0]))
		// What is larger than was left when it is there is not kept, whatever the provider was told.
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) { p.Bytes = 16 })
		_, _, err = s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		assert.ErrorContains(t, err, "max_snapshot_bytes = 35")
		asked := s.provider.Asked()
		assert.Equal(t, asked[len(asked)-1].MaxBytes, int64(15))
		settle(2 * time.Second)
		assert.Equal(t, len(s.provider.Kept()), 2)
		count, bytes := s.used(t)
		assert.Equal(t, count, 2.0)
		assert.Equal(t, bytes, 20.0)
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) { p.Bytes = 15 })
		s.make(t, snapshot.MakeRequest{})
		_, _, err = s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeQuotaExceeded)
	})
}

func TestASnapshotExpires(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{TTL: time.Minute})
		settle(59 * time.Second)
		assert.Equal(t, len(s.list(t)), 1)
		settle(time.Second)
		_, err := s.Get(acme, made.ID)
		code(t, err, sdk.CodeNotFound)
		settle(2 * time.Second)
		s.nothingIsLeft(t)
	})
}

func TestWhoAsksAgainWithTheKeyGetsTheSameSnapshot(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{Key: "k"})
		again, created, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{Key: "k"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
		assert.DeepEqual(t, again, made)
		assert.Assert(t, s.make(t, snapshot.MakeRequest{Key: "other"}).ID != made.ID)
		assert.Equal(t, len(s.provider.Kept()), 2)
	})
}

func TestAKeyFindsItsSnapshotWithoutTheInstance(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{Key: "k"})
		lost := sdk.Errorf(sdk.CodeConnectionFailed, "broken off")
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.After = func(context.Context, sdk.Snapshot) error { return lost }
			p.OnList = func(context.Context) error { return lost }
		})
		id := s.original.ID.String()
		_, _, err := s.Make(t.Context(), acme, id, snapshot.MakeRequest{Key: "unclear"})
		assert.Assert(t, err != nil)
		assert.NilError(t, s.instances.Destroy(t.Context(), acme, id))
		again, created, err := s.Make(t.Context(), acme, id, snapshot.MakeRequest{Key: "k"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
		assert.DeepEqual(t, again, made)
		_, _, err = s.Make(t.Context(), acme, id, snapshot.MakeRequest{Key: "other"})
		code(t, err, sdk.CodeNotFound)
		_, _, err = s.Make(t.Context(), umbrella, id, snapshot.MakeRequest{Key: "k"})
		code(t, err, sdk.CodeNotFound)
		_, _, err = s.Make(t.Context(), acme, id, snapshot.MakeRequest{Key: "unclear"})
		code(t, err, sdk.CodeConflict)
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) { p.OnList = nil })
		settle(time.Minute)
		_, created, err = s.Make(t.Context(), acme, id, snapshot.MakeRequest{Key: "unclear"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
	})
}

// TestAnAttemptWithoutAnAnswerLeavesNothingOrWhatItsKeyFinds has the provider make one, and
// break off the answer.
func TestAnAttemptWithoutAnAnswerLeavesNothingOrWhatItsKeyFinds(t *testing.T) {
	for name, test := range map[string]struct {
		key   string
		cloud bool
		early bool // who has the key asks before the list is looked at
		left  int
	}{
		"without a key":            {},
		"without a key in a cloud": {cloud: true},
		"with a key":               {key: "k", left: 1},
		"with a key, at once":      {key: "k", early: true, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *scene) { s.provider.Cloud = test.cloud }, func(t *testing.T, s *scene) {
				lost := sdk.Errorf(sdk.CodeConnectionFailed, "broken off")
				s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
					p.After = func(context.Context, sdk.Snapshot) error { return lost }
				})
				if test.early {
					s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
						p.OnList = func(context.Context) error { return lost }
					})
				}
				_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{Key: test.key})
				assert.Assert(t, err != nil)
				assert.Equal(t, len(s.journal.all()), 1)
				s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) { p.After = nil })
				if !test.early {
					settle(3 * time.Minute)
				}
				assert.Equal(t, len(s.provider.Kept()), test.left)
				if test.key == "" {
					s.nothingIsLeft(t)
					return
				}
				again, created, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{Key: test.key})
				assert.NilError(t, err)
				assert.Equal(t, created, test.early)
				assert.DeepEqual(t, s.list(t), []string{again.ID})
				assert.Equal(t, len(s.provider.Kept()), 1)
				count, bytes := s.used(t)
				assert.Equal(t, count+bytes, 11.0)
			})
		})
	}
}

func TestWhatIsCertainlyNotMadeLeavesNothing(t *testing.T) {
	for _, refusal := range []sdk.Code{sdk.CodeQuotaExceeded, sdk.CodeNotSupported, sdk.CodeConflict, sdk.CodeNotFound, sdk.CodeInvalidRequest} {
		inBubble(t, nil, nil, func(t *testing.T, s *scene) {
			s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
				p.OnSnapshot = func(context.Context, sdk.SnapshotRequest) error { return sdk.Errorf(refusal, "no") }
			})
			_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{Key: "k"})
			code(t, err, refusal)
			s.nothingIsLeft(t)
		})
	}
}

func TestWhatTheJournalDoesNotTakeIsNotKept(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		full := sdk.Errorf(sdk.CodeUnavailable, "the disk is full")
		s.journal.refuse(full)
		_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeUnavailable)
		assert.Equal(t, len(s.provider.Asked()), 0, "nobody is asked for what is not written down")
		s.journal.refuse(nil)
		settle(2 * time.Minute)
		s.nothingIsLeft(t)

		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.After = func(context.Context, sdk.Snapshot) error {
				s.journal.refuse(full)
				return nil
			}
		})
		_, _, err = s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeUnavailable)
		assert.Equal(t, len(s.list(t)), 0)
		s.journal.refuse(nil)
		settle(2 * time.Minute)
		s.nothingIsLeft(t)
	})
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.OnDelete = func(context.Context, string) error {
				return sdk.Errorf(sdk.CodeNotAuthenticated, "the token of the operator is wrong")
			}
		})
		err := s.Delete(t.Context(), acme, made.ID)
		code(t, err, sdk.CodeUnavailable)
		assert.Assert(t, !strings.Contains(err.Error(), "token"), "that is the operator's")
		assert.Equal(t, len(s.list(t)), 0)
		assert.Equal(t, s.journal.all()[0].Ending, true)
		count, _ := s.used(t)
		assert.Equal(t, count, 1.0, "it counts as long as it may be there")
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) { p.OnDelete = nil })
		settle(20 * time.Second)
		s.nothingIsLeft(t)
	})
}

func TestWhatAProviderHasAndNobodyKnowsIsDeleted(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.provider.Keep(sdk.Snapshot{ID: "stray", Labels: map[string]string{"broker": "b", "snapshot": "snap-x", "tenant": "acme"}})
		s.provider.Keep(sdk.Snapshot{ID: "of-another", Labels: map[string]string{"broker": "c", "snapshot": "snap-x"}})
	}, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		// A second one for the same intent is nobody's either.
		s.provider.Keep(sdk.Snapshot{ID: "twin", Labels: map[string]string{"broker": "b", "snapshot": made.ID}})
		settle(2 * time.Minute)
		var left []string
		for _, k := range s.provider.Kept() {
			left = append(left, k.ID)
		}
		assert.DeepEqual(t, left, []string{"kept-" + made.ID, "of-another"})
		assert.DeepEqual(t, s.list(t), []string{made.ID})
	})
}

func TestWhatAProviderHasLostIsForgotten(t *testing.T) {
	for name, cloud := range map[string]bool{"at once": false, "a cloud, after a while": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(s *scene) { s.provider.Cloud = cloud }, func(t *testing.T, s *scene) {
				s.make(t, snapshot.MakeRequest{})
				s.provider.LoseSnapshots()
				s.Reconcile(t.Context())
				assert.Equal(t, len(s.list(t)) == 1, cloud)
				settle(time.Minute)
				s.Reconcile(t.Context())
				s.nothingIsLeft(t)
			})
		})
	}
}

func TestNothingIsForgottenBecauseAProviderDoesNotAnswer(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.OnList = func(context.Context) error { return sdk.Errorf(sdk.CodeConnectionFailed, "no") }
		})
		settle(10 * time.Minute)
		assert.DeepEqual(t, s.list(t), []string{made.ID})
	})
}

func TestSnapshotsEndWithTheirTenant(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.After = func(context.Context, sdk.Snapshot) error {
				s.remove("acme") // while one is being made
				s.ReleaseTenants(s.known)
				return nil
			}
		})
		_, _, err := s.Make(t.Context(), acme, s.original.ID.String(), snapshot.MakeRequest{})
		code(t, err, sdk.CodeNotAuthenticated)
		_, err = s.Get(acme, made.ID)
		code(t, err, sdk.CodeNotFound)
		settle(2 * time.Second)
		s.nothingIsLeft(t)
	})
}

func TestThatSnapshotsEndWithTheirTenantIsWrittenAtOnce(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		for range 3 {
			s.make(t, snapshot.MakeRequest{})
		}
		s.remove("acme")
		s.ReleaseTenants(s.known) // before any is deleted
		assert.Equal(t, len(s.journal.all()), 3)
		for _, r := range s.journal.all() {
			assert.Check(t, r.Ending)
		}
		settle(2 * time.Second)
		s.nothingIsLeft(t)
	})
}

// TestWhatAnEarlierProcessLeft is what becomes of each kind of record.
func TestWhatAnEarlierProcessLeft(t *testing.T) {
	labels := func(id string) map[string]string {
		return map[string]string{"broker": "b", "snapshot": id, "tenant": "acme"}
	}
	later := time.Now().Add(100 * 365 * 24 * time.Hour) // bubbles begin in 2000
	record := func(id, made string, change func(*snapshot.Record)) snapshot.Record {
		r := snapshot.Record{ID: id, Tenant: "acme", Provider: "first", Instance: "acme:s:i", Expires: later, Made: made, Bytes: 3}
		if change != nil {
			change(&r)
		}
		return r
	}
	past := []snapshot.Record{
		record("snap-kept", "p-kept", nil),
		record("snap-fork", "p-fork", func(r *snapshot.Record) { r.Transient = true }),
		record("snap-ending", "p-ending", func(r *snapshot.Record) { r.Ending = true }),
		record("snap-keyed", "", func(r *snapshot.Record) { r.Keyed = true; r.Bytes = 0 }),
		record("snap-intended", "", nil),
		record("snap-nothing", "", func(r *snapshot.Record) { r.Keyed = true }),
		record("snap-gone", "p-gone", nil),
		record("snap-expired", "p-expired", func(r *snapshot.Record) { r.Expires = time.Time{} }),
		record("snap-elsewhere", "p-elsewhere", func(r *snapshot.Record) { r.Provider = "removed" }),
		record("snap-never", "", func(r *snapshot.Record) { r.Provider, r.Keyed, r.Expires = "removed", true, time.Time{} }),
	}
	inBubble(t, past, func(s *scene) {
		for _, id := range []string{"kept", "fork", "ending", "keyed", "intended", "expired"} {
			s.provider.Keep(sdk.Snapshot{ID: "p-" + id, Labels: labels("snap-" + id), Bytes: 4})
		}
	}, func(t *testing.T, s *scene) {
		settle(3 * time.Minute)
		assert.DeepEqual(t, s.list(t), []string{"snap-elsewhere", "snap-kept", "snap-keyed"})
		var left []string
		for _, k := range s.provider.Kept() {
			left = append(left, k.ID)
		}
		assert.DeepEqual(t, left, []string{"p-kept", "p-keyed"})
		keyed, err := s.Get(acme, "snap-keyed")
		assert.NilError(t, err)
		assert.Equal(t, keyed.Bytes, int64(4))
		count, bytes := s.used(t)
		assert.Equal(t, count, 3.0)
		assert.Equal(t, bytes, 10.0)
	})
}

func TestAForkIsAllOrNothing(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		id := s.original.ID.String()
		copies, err := s.Fork(t.Context(), acme, id, snapshot.ForkRequest{Count: 2, Labels: map[string]string{"a": "b"}, Env: map[string]string{"E": "1"}})
		assert.NilError(t, err)
		assert.Equal(t, len(copies), 2)
		assert.Assert(t, copies[0].ID.Session != copies[1].ID.Session && copies[0].ID.Session != "original")
		created := s.provider.Created()
		for i, info := range copies {
			assert.Equal(t, info.From, id)
			assert.Equal(t, info.Labels["a"], "b")
			assert.Equal(t, created[1+i].Snapshot.ID, "kept-"+s.provider.Asked()[0].Labels["snapshot"])
			assert.Equal(t, created[1+i].Env["E"], "1")
		}
		assert.Assert(t, s.provider.Asked()[0].Transient)
		synctest.Wait()
		s.nothingIsLeft(t)

		// There is room for three more, and they are asked for four.
		_, err = s.Fork(t.Context(), acme, id, snapshot.ForkRequest{Count: 4})
		code(t, err, sdk.CodeQuotaExceeded)
		settle(time.Second)
		assert.Equal(t, len(s.provider.Live()), 3)
		s.nothingIsLeft(t)

		_, err = s.Fork(t.Context(), acme, id, snapshot.ForkRequest{Count: 2, Sessions: []string{"new", "original"}})
		code(t, err, sdk.CodeConflict)
		settle(time.Second)
		assert.Equal(t, len(s.provider.Live()), 3)
		for name, req := range map[string]snapshot.ForkRequest{
			"none": {}, "too many": {Count: 65}, "sessions that do not fit": {Count: 2, Sessions: []string{"a"}},
			"one session twice": {Count: 2, Sessions: []string{"a", "a"}}, "one without a name": {Count: 1, Sessions: []string{""}},
		} {
			_, err := s.Fork(t.Context(), acme, id, req)
			assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest), name)
		}
		_, err = s.Fork(t.Context(), umbrella, id, snapshot.ForkRequest{Count: 1})
		code(t, err, sdk.CodeNotFound)
		s.nothingIsLeft(t)
	})
}

func TestTheSnapshotOfAForkStaysAsLongAsItsCopiesMayWait(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		var left time.Duration
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.OnSnapshot = func(context.Context, sdk.SnapshotRequest) error {
				left = time.Until(s.journal.all()[0].Expires)
				return sdk.Errorf(sdk.CodeQuotaExceeded, "no")
			}
		})
		_, err := s.Fork(t.Context(), acme, s.original.ID.String(), snapshot.ForkRequest{Count: 1, Wait: time.Hour})
		code(t, err, sdk.CodeQuotaExceeded)
		assert.Assert(t, left > time.Hour, "%s", left)
	})
}

func TestAForkWithAKeyIsMadeOnce(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		req := snapshot.ForkRequest{Count: 2, Key: "k"}
		first, err := s.Fork(t.Context(), acme, s.original.ID.String(), req)
		assert.NilError(t, err)
		again, err := s.Fork(t.Context(), acme, s.original.ID.String(), req)
		assert.NilError(t, err)
		assert.Equal(t, first[0].ID, again[0].ID)
		assert.Equal(t, first[1].ID, again[1].ID)
		assert.Equal(t, len(s.provider.Live()), 3)
		synctest.Wait()
		s.nothingIsLeft(t)
	})
}

// A caller that gave up waiting asks again while its first request is still served.
func TestAForkThatIsAskedForTwiceAtOnceIsMadeOnce(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		s.provider.OnCreate = func(context.Context, sdk.CreateRequest) error {
			<-time.After(time.Second)
			return nil
		}
		req := snapshot.ForkRequest{Count: 2, Key: "k"}
		var all sync.WaitGroup
		var copies [3][]instance.Info
		for i := range copies {
			all.Go(func() {
				<-time.After(time.Duration(i) * 300 * time.Millisecond)
				var err error
				copies[i], err = s.Fork(t.Context(), acme, s.original.ID.String(), req)
				assert.Check(t, err)
			})
		}
		all.Wait()
		for _, again := range copies[1:] {
			assert.Assert(t, is.Len(again, 2))
			assert.Check(t, again[0].ID == copies[0][0].ID && again[1].ID == copies[0][1].ID)
		}
		assert.Check(t, is.Len(s.provider.Asked(), 1))
		assert.Check(t, is.Len(s.provider.Live(), 3))
		synctest.Wait()
		s.nothingIsLeft(t)
	})
}

// Who asks again with the key after the broker has died gets all copies, if all were made, and
// else others: those of two attempts are not of one moment.
func TestAForkIsOfOneMomentHoweverOftenItIsAskedFor(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		id := s.original.ID.String()
		req := snapshot.ForkRequest{Count: 2, Key: "k"}
		first, err := s.Fork(t.Context(), acme, id, req)
		assert.NilError(t, err)
		assert.Assert(t, first[0].Fork != "" && first[0].Fork == first[1].Fork)
		s.Close()
		s.begin(nil)
		again, err := s.Fork(t.Context(), acme, id, req)
		assert.NilError(t, err)
		assert.DeepEqual(t, []instance.ID{again[0].ID, again[1].ID}, []instance.ID{first[0].ID, first[1].ID})
		assert.Equal(t, len(s.provider.Asked()), 1)

		assert.NilError(t, s.instances.Destroy(t.Context(), acme, first[1].ID.String()))
		other, err := s.Fork(t.Context(), acme, id, req)
		assert.NilError(t, err)
		assert.Equal(t, other[0].Fork, other[1].Fork)
		assert.Assert(t, other[0].ID != first[0].ID && other[0].Fork != first[0].Fork)
		assert.Equal(t, len(s.provider.Live()), 3)
		synctest.Wait()
		s.nothingIsLeft(t)
	})
}

func TestOnlyCopiesOfForksThatWereNotBroughtToTheirEndAreForsaken(t *testing.T) {
	forsaken := snapshot.Forsaken([]snapshot.Record{
		{ID: "cut-off", Transient: true}, {ID: "done", Transient: true, Forked: true}, {ID: "kept"},
	})
	assert.Assert(t, forsaken("cut-off"))
	for _, id := range []string{"done", "kept", "gone", ""} {
		assert.Assert(t, !forsaken(id), id)
	}
}

// The copies are noted as complete before anybody is told of them. Where that cannot be, there
// are none.
func TestAForkThatCannotBeWrittenDownLeavesNoCopies(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		s.provider.OnCreate = func(context.Context, sdk.CreateRequest) error {
			s.journal.refuse(sdk.Errorf(sdk.CodeUnavailable, "the disk is full"))
			return nil
		}
		_, err := s.Fork(t.Context(), acme, s.original.ID.String(), snapshot.ForkRequest{Count: 2})
		code(t, err, sdk.CodeUnavailable)
		assert.Equal(t, len(s.provider.Live()), 1)
		s.journal.refuse(nil)
		settle(time.Minute)
		s.nothingIsLeft(t)
	})
}

// That a snapshot is no more is told when its end is certain to outlive the broker, and not
// while somebody else deletes it.
func TestASnapshotThatIsBeingDeletedIsNotToldToBeGone(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		var meanwhile error
		s.provider.ChangeSnapshots(func(p *instancetest.Snapshots) {
			p.OnDelete = func(ctx context.Context, _ string) error {
				meanwhile = s.Delete(ctx, acme, made.ID)
				return nil
			}
		})
		assert.NilError(t, s.Delete(t.Context(), acme, made.ID))
		code(t, meanwhile, sdk.CodeUnavailable)
		code(t, s.Delete(t.Context(), acme, made.ID), sdk.CodeNotFound)
	})
}

func TestContextsOfTheOriginalAreKnownInTheCopy(t *testing.T) {
	inBubble(t, nil, func(s *scene) {
		s.provider.OnListContexts = func(context.Context, string) ([]sdk.CodeContext, error) { return nil, nil }
		s.provider.OnCreateContext = func(context.Context, sdk.CreateContextRequest) (sdk.CodeContext, error) {
			return sdk.CodeContext{ID: "ctx-1", Language: sdk.Python}, nil
		}
	}, func(t *testing.T, s *scene) {
		execute := instance.ExecuteRequest{Code: "x = 1", Language: "python", Context: instance.DefaultContext}
		_, err := s.instances.Execute(t.Context(), acme, s.original.ID.String(), execute)
		assert.NilError(t, err)
		made := s.make(t, snapshot.MakeRequest{})
		req := instance.CreateRequest{Session: "copy"}
		assert.NilError(t, s.Source(acme, made.ID, &req))
		copied, _, err := s.instances.Create(t.Context(), acme, req)
		assert.NilError(t, err)
		assert.Equal(t, copied.From, made.ID)
		s.provider.OnCreateContext = func(context.Context, sdk.CreateContextRequest) (sdk.CodeContext, error) {
			t.Error("the copy has its context already")
			return sdk.CodeContext{}, sdk.Errorf(sdk.CodeInternal, "no")
		}
		_, err = s.instances.Execute(t.Context(), acme, copied.ID.String(), execute)
		assert.NilError(t, err)
		executions := s.provider.Executions()
		assert.Equal(t, executions[1].ContextID, "ctx-1")
		assert.Assert(t, executions[1].InstanceID != executions[0].InstanceID)
	})
}

func TestASnapshotThatTheProviderLacksIsTold(t *testing.T) {
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		made := s.make(t, snapshot.MakeRequest{})
		s.provider.OnCreate = func(context.Context, sdk.CreateRequest) error {
			return &sdk.Error{Code: sdk.CodeNotFound, Field: "snapshot", Message: "gone", NoEffect: true}
		}
		var req instance.CreateRequest
		assert.NilError(t, s.Source(acme, made.ID, &req))
		_, _, err := s.instances.Create(t.Context(), acme, req)
		code(t, err, sdk.CodeNotFound)
		assert.ErrorContains(t, err, "does not have this snapshot any more")
	})
}

func TestEachTenantHasAKeyOfItsOwnAndAlwaysTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	secret, err := snapshot.LoadSecret(path)
	assert.NilError(t, err)
	again, err := snapshot.LoadSecret(path)
	assert.NilError(t, err)
	assert.DeepEqual(t, secret, again)
	keys := map[string]string{}
	inBubble(t, nil, nil, func(t *testing.T, s *scene) {
		other, _, err := s.instances.Create(t.Context(), umbrella, instance.CreateRequest{})
		assert.NilError(t, err)
		s.make(t, snapshot.MakeRequest{})
		s.make(t, snapshot.MakeRequest{})
		_, _, err = s.Make(t.Context(), umbrella, other.ID.String(), snapshot.MakeRequest{})
		assert.NilError(t, err)
		for _, asked := range s.provider.Asked() {
			owner := asked.Labels["tenant"]
			assert.Check(t, keys[owner] == "" || keys[owner] == string(asked.Key))
			keys[owner] = string(asked.Key)
		}
		assert.Equal(t, len(keys), 2)
		assert.Assert(t, keys["acme"] != keys["umbrella"])
	})
}

func TestTheJournalInTheStateFile(t *testing.T) {
	state, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	defer state.Close()
	j := snapshot.NewStoreJournal(state)
	r := snapshot.Record{ID: "snap-a", Tenant: "acme", Labels: map[string]string{"a": "b"}, Expires: time.Now().UTC().Round(0), Made: "p", Bytes: 3, Network: &network.Request{None: true}}
	assert.NilError(t, j.Write(t.Context(), r))
	assert.NilError(t, j.Write(t.Context(), snapshot.Record{ID: "snap-b"}))
	assert.NilError(t, j.Remove(t.Context(), "snap-b"))
	assert.NilError(t, j.Remove(t.Context(), "snap-b"))
	past, err := j.Load(t.Context(), hclog.NewNullLogger())
	assert.NilError(t, err)
	assert.DeepEqual(t, past, []snapshot.Record{r})
}
