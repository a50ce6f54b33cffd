package instance_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const brokerID = "this-broker"

// memory is a journal that outlives its services. Its disk can fail.
type memory struct {
	mu      sync.Mutex
	records map[instance.ID]instance.Record
	ended   []instance.Ended
	// after, if not nil, is called after each change.
	after func()
	full  bool
}

func (m *memory) do(change func()) error {
	m.mu.Lock()
	if m.full {
		m.mu.Unlock()
		return sdk.Errorf(sdk.CodeUnavailable, "the broker cannot write its state")
	}
	if m.records == nil {
		m.records = map[instance.ID]instance.Record{}
	}
	change()
	after := m.after
	m.mu.Unlock()
	if after != nil {
		after()
	}
	return nil
}

func (m *memory) Write(_ context.Context, r instance.Record) error {
	return m.do(func() { m.records[r.ID] = r })
}

func (m *memory) Amend(_ context.Context, id instance.ID, change func(*instance.Record)) error {
	return m.do(func() {
		if r, found := m.records[id]; found {
			change(&r)
			m.records[id] = r
		}
	})
}

func (m *memory) End(_ context.Context, ended ...instance.Ended) error {
	return m.do(func() {
		for _, e := range ended {
			delete(m.records, e.ID)
			if e.Reason != "" {
				m.ended = append(m.ended, e)
			}
		}
	})
}

func (m *memory) past() instance.Past {
	m.mu.Lock()
	defer m.mu.Unlock()
	return instance.Past{Records: slices.Collect(maps.Values(m.records)), Ended: slices.Clone(m.ended)}
}

func (m *memory) fill(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// journalled is a service on a journal; past is what it finds there.
func journalled(j instance.Journal, past instance.Past, providers ...instance.Provider) *instance.Service {
	return instance.NewService(instance.Options{
		Catalog: instancetest.Catalog(providers), Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		Journal: j, Past: past, BrokerID: brokerID,
	})
}

// reconciled has a service compare itself with a provider, as when a plugin starts.
func reconciled(t *testing.T, s *instance.Service, p *instancetest.Provider) {
	t.Helper()
	served, err := p.Provider(t.Context())
	assert.NilError(t, err)
	assert.NilError(t, s.Reconcile(t.Context(), p, served))
	synctest.Wait()
}

// TestABrokerThatIsKilledAtAnyWriteLeavesNothingAndLosesNothing takes a broker
// through a day's work and, at each write to its journal and each call of the cloud,
// lets another one begin with what is durable then and with what the cloud has then.
func TestABrokerThatIsKilledAtAnyWriteLeavesNothingAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		type crash struct {
			past         instance.Past
			live         []sdk.Instance
			acknowledged map[string]bool
		}
		var crashes []crash
		acknowledged := map[string]bool{}
		var mu sync.Mutex
		m := &memory{}
		m.after = func() {
			// In this order: what was acknowledged was written before.
			mu.Lock()
			defer mu.Unlock()
			c := crash{acknowledged: maps.Clone(acknowledged), past: m.past()}
			served, _ := cloud.Provider(t.Context())
			c.live, _ = served.List(t.Context())
			crashes = append(crashes, c)
		}
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error { m.after(); return nil }
		cloud.OnDestroy = func(context.Context, string) error { m.after(); return nil }
		cloud.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			m.after()
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		note := func(id string, there bool) {
			mu.Lock()
			defer mu.Unlock()
			if acknowledged[id] = there; !there {
				delete(acknowledged, id)
			}
		}
		s := journalled(m, instance.Past{}, cloud)
		for _, session := range []string{"a", "", "b"} {
			info, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: session, TTL: 5 * time.Hour})
			assert.NilError(t, err)
			assert.Assert(t, created)
			note(info.ID.String(), true)
		}
		_, err := s.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
		for id := range maps.Clone(acknowledged) {
			_, err := s.Renew(t.Context(), acme, id, 6*time.Hour)
			assert.NilError(t, err)
		}
		synctest.Wait()
		for id := range maps.Clone(acknowledged) {
			note(id, false) // from here on it may be there or not
			assert.NilError(t, s.Destroy(t.Context(), acme, id))
		}
		s.Shutdown(t.Context())
		assert.Check(t, cmp.Len(cloud.Live(), 0))
		assert.Assert(t, len(crashes) > 20, "%d", len(crashes))

		for n, crash := range crashes {
			next := &instancetest.Provider{Name: "cloud", Cloud: true}
			for _, i := range crash.live {
				next.Adopt(i)
			}
			later := &memory{}
			for _, r := range crash.past.Records {
				assert.NilError(t, later.Write(t.Context(), r))
			}
			s := journalled(later, crash.past, next)
			reconciled(t, s, next)
			for id := range crash.acknowledged {
				_, err := s.Get(t.Context(), acme, id)
				assert.NilError(t, err, "crash %d: an acknowledged instance is lost", n)
			}
			known := len(s.List(acme, instance.ListRequest{}).Instances)
			assert.Equal(t, len(next.Live()), known, "crash %d: %v", n, next.Live())
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "a"})
			assert.NilError(t, err, "crash %d", n)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			s.Shutdown(t.Context())
			assert.Check(t, cmp.Len(next.Live(), 0), "crash %d", n)
			assert.Check(t, cmp.Len(later.past().Records, 0), "crash %d", n)
		}
	})
}

func made(name string, change func(*instance.Record)) instance.Record {
	r := instance.Record{
		ID: instance.ID{Tenant: "acme", Session: "s", Instance: name}, Provider: "cloud", Template: "python",
		TTL: 5 * time.Minute, Idle: time.Hour, Intended: time.Now(), Claimed: true,
		Made: "fake-" + name, Created: time.Now(), Expires: time.Now().Add(3 * time.Minute), Deadline: time.Now().Add(time.Hour),
	}
	change(&r)
	return r
}

func in(cloud *instancetest.Provider, name, broker string) {
	cloud.Adopt(sdk.Instance{ID: "fake-" + name, Labels: map[string]string{sdk.LabelInstance: name, sdk.LabelBroker: broker}})
}

func TestWhatBecomesOfARecordAfterARestart(t *testing.T) {
	hour := func(r *instance.Record) {
		r.Intended, r.Created = r.Intended.Add(-time.Hour), r.Created.Add(-time.Hour)
	}
	for name, test := range map[string]struct {
		change    func(*instance.Record)
		ephemeral bool
		listed    bool
		code      sdk.Code // of Get, after the reconciliation
		detail    string
		live      int
	}{
		"it is there: adopted":                        {change: func(*instance.Record) {}, listed: true, live: 1},
		"intended, with a name, there: adopted":       {change: func(r *instance.Record) { r.Made = "" }, listed: true, live: 1},
		"intended, without a name, there: destroyed":  {change: func(r *instance.Record) { r.Made, r.Claimed = "", false }, listed: true, code: sdk.CodeNotFound, detail: "no such instance"},
		"given up, there: destroyed":                  {change: func(r *instance.Record) { r.Ending = true }, listed: true, code: sdk.CodeNotFound, detail: "no such instance"},
		"young, not there: perhaps not yet":           {change: func(*instance.Record) {}, code: sdk.CodeUnavailable, detail: "has not said yet"},
		"not there: gone":                             {change: hour, code: sdk.CodeNotFound, detail: "its provider does not have it any more"},
		"young, not there, of a process: gone":        {change: func(*instance.Record) {}, ephemeral: true, code: sdk.CodeNotFound, detail: "the broker was restarted"},
		"its time was over meanwhile: destroyed soon": {change: func(r *instance.Record) { r.Expires = time.Now().Add(-time.Second) }, listed: true, code: sdk.CodeNotFound, detail: "its time was over"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const name = "aaaaaaaaaaaaaaaaaaaa"
				cloud := &instancetest.Provider{Name: "cloud", Cloud: !test.ephemeral}
				if test.listed {
					in(cloud, name, brokerID)
				}
				record := made(name, test.change)
				m := &memory{}
				assert.NilError(t, m.Write(t.Context(), record))
				s := journalled(m, m.past(), cloud)
				defer s.Shutdown(t.Context())
				reconciled(t, s, cloud)
				_, err := s.Get(t.Context(), acme, record.ID.String())
				synctest.Wait()
				assertCode(t, err, test.code)
				if err != nil {
					assert.ErrorContains(t, err, test.detail)
					_, err = s.Get(t.Context(), umbrella, record.ID.String())
					assert.Error(t, err, "SB013: no such instance; create a new one if you need one")
				}
				_, err = s.Get(t.Context(), acme, record.ID.String())
				if test.code == sdk.CodeNotFound {
					assert.ErrorContains(t, err, test.detail)
				}
				assert.Check(t, cmp.Len(cloud.Live(), test.live))
			})
		})
	}
}

func TestACreationThatWasCutOffIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		r := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Made = "" })
		s := journalled(nil, instance.Past{Records: []instance.Record{r}}, cloud)
		defer s.Shutdown(t.Context())
		reconciled(t, s, cloud)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Template: "nodejs"})
		assertCode(t, err, sdk.CodeConflict)
		info, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		assert.Assert(t, created)
		assert.Equal(t, info.ID, r.ID)
		assert.Equal(t, cloud.Created()[0].IdempotencyKey, r.ID.String())
	})
}

func TestWhatACloudMayOnlyNotListYetIsNotMadeASecondTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		r := made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})
		s := journalled(nil, instance.Past{Records: []instance.Record{r}}, cloud)
		defer s.Shutdown(t.Context())
		reconciled(t, s, cloud)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeUnavailable)
		assertCode(t, s.Destroy(t.Context(), acme, r.ID.String()), sdk.CodeUnavailable)
		assert.Check(t, cmp.Len(cloud.Created(), 0))
		time.Sleep(121 * time.Second)
		_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		assert.Assert(t, created)
	})
}

func TestANeighboursInstancesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		in(cloud, "theirs", "another-broker")
		cloud.Adopt(sdk.Instance{ID: "unlabelled"})
		in(cloud, "ours", brokerID)
		s := journalled(nil, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		reconciled(t, s, cloud)
		assert.DeepEqual(t, cloud.Live(), []string{"fake-theirs", "unlabelled"})
	})
}

func TestAnInstanceIsKnownAgainWithoutItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		r := made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})
		cloud.Adopt(sdk.Instance{ID: r.Made})
		s := journalled(nil, instance.Past{Records: []instance.Record{r}}, cloud)
		defer s.Shutdown(t.Context())
		reconciled(t, s, cloud)
		info, err := s.Get(t.Context(), acme, r.ID.String())
		assert.NilError(t, err)
		assert.Assert(t, info.ExpiresAt.Equal(r.Expires))
		assert.DeepEqual(t, cloud.Live(), []string{r.Made})
	})
}

func TestTwoProvidersOfOneAccountLeaveEachOtherAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		us, eu := &instancetest.Provider{Name: "us", Cloud: true}, &instancetest.Provider{Name: "eu", Cloud: true}
		m := &memory{}
		r := made("earlier", func(r *instance.Record) { r.Provider = "eu" })
		assert.NilError(t, m.Write(t.Context(), r))
		s := journalled(m, m.past(), us, eu)
		defer s.Shutdown(t.Context())
		now, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Provider: "eu"})
		assert.NilError(t, err)
		in(us, "earlier", brokerID)
		in(us, now.ID.Instance, brokerID)
		in(eu, "earlier", brokerID)
		reconciled(t, s, us)
		assert.Check(t, cmp.Len(us.Live(), 2))
		reconciled(t, s, eu)
		assert.Check(t, cmp.Len(eu.Live(), 2))
		us.Forget()
		_, err = s.Get(t.Context(), acme, r.ID.String())
		assert.NilError(t, err)
	})
}

func TestASecondInstanceOfOneCreationIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		s := journalled(nil, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		cloud.Adopt(sdk.Instance{ID: "twin", Labels: map[string]string{sdk.LabelInstance: info.ID.Instance, sdk.LabelBroker: brokerID}})
		time.Sleep(61 * time.Second)
		synctest.Wait()
		assert.DeepEqual(t, cloud.Live(), []string{"fake-" + info.ID.Instance})
	})
}

func TestACloudsListMayBeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		s := journalled(nil, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		cloud.Forget()
		reconciled(t, s, cloud)
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
		time.Sleep(121 * time.Second)
		synctest.Wait()
		_, err = s.Get(t.Context(), acme, info.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		assert.ErrorContains(t, err, "its provider does not have it any more")
	})
}

func TestWithoutAJournalNothingIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud"}
		m := &memory{}
		s := journalled(m, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())

		m.fill(true)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeUnavailable)
		assert.Check(t, cmp.Len(cloud.Created(), 0))

		// The disk fills up while the provider works.
		m.fill(false)
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error {
			m.fill(true)
			return nil
		}
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeUnavailable)
		m.fill(false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(cloud.Live(), 0))
		assert.Check(t, cmp.Len(m.past().Records, 0))

		cloud.OnCreate = nil
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		m.fill(true)
		_, err = s.Renew(t.Context(), acme, info.ID.String(), time.Minute)
		assertCode(t, err, sdk.CodeUnavailable)
		assertCode(t, s.Destroy(t.Context(), acme, info.ID.String()), sdk.CodeUnavailable)
		m.fill(false)
		assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
		assert.Check(t, cmp.Len(m.past().Records, 0))
	})
}

func TestAKeyNamesACreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		m := &memory{}
		s := journalled(m, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		one, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Key: "k"})
		assert.NilError(t, err)
		assert.Assert(t, created)
		two, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Key: "k"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
		assert.Equal(t, one.ID, two.ID)
		other, _, err := s.Create(t.Context(), umbrella, instance.CreateRequest{Key: "k"})
		assert.NilError(t, err)
		assert.Assert(t, other.ID != one.ID)
		for _, r := range m.past().Records {
			assert.Check(t, r.Claimed)
		}
	})
}
