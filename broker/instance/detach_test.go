package instance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const unclearTimeout = 5 * time.Second

func bearing(providers ...instance.Provider) patient {
	return patient{ranked(providers), instance.Patience{Unclear: unclearTimeout}}
}

// A cloud that answers creations with 500 keeps nobody waiting for longer than the
// operator wants, and when its circuit is open, nobody at all; it is found again when it
// has recovered.
func TestACloudInTroubleIsNotWaitedForByEachRequest(t *testing.T) {
	for name, hangs := range map[string]bool{"that answers with 500": false, "that hangs when it is tried": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
				var ill, slow atomic.Bool
				ill.Store(true)
				cloud.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
					if slow.Load() {
						time.Sleep(20 * time.Second)
					}
					if ill.Load() {
						return sdk.Errorf(sdk.CodeConnectionFailed, "it answers with 500")
					}
					return nil
				}
				router := routing.New()
				s := instance.NewService(instance.Options{
					Catalog: bearing(cloud, other), Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Router: router,
				})
				defer s.Shutdown(t.Context())
				create := func() (info instance.Info, took time.Duration) {
					began := time.Now()
					info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
					assert.NilError(t, err)
					return info, time.Since(began)
				}
				for range 3 {
					info, took := create()
					assert.Equal(t, info.Provider, "other")
					assert.Equal(t, took, unclearTimeout)
					assert.DeepEqual(t, info.Routing, instance.Routing{
						Reason: "fallback", Tried: []instance.Tried{{Provider: "cloud", Code: sdk.CodeConnectionFailed}},
					})
				}
				slow.Store(hangs)
				trials := 0
				for range 60 {
					before := len(cloud.Created())
					info, took := create()
					assert.Equal(t, info.Provider, "other")
					if len(cloud.Created()) > before {
						trials++
					} else {
						assert.Equal(t, took, time.Duration(0))
					}
					assert.Assert(t, took <= time.Second, "%s for a trial", took)
					time.Sleep(time.Second)
				}
				assert.Assert(t, trials >= 2 && trials <= 8, "%d trials in a minute", trials)

				time.Sleep(time.Minute) // nobody asks
				// It recovers, and the next trial finds out, whoever has its answer.
				ill.Store(false)
				time.Sleep(3 * time.Minute)
				create()
				time.Sleep(time.Minute)
				assert.Equal(t, router.Standing("cloud").Circuit, routing.Closed)
				slow.Store(false)
				info, took := create()
				assert.Equal(t, info.Provider, "cloud")
				assert.Equal(t, took, time.Duration(0))
				want := 1
				if !hangs {
					want = 2 // the trial's too, which was in time
				}
				assert.Check(t, is.Len(cloud.Live(), want), "what the late trial has made is destroyed")
			})
		})
	}
}

// fickle is a provider that may say that it is not well.
type fickle struct {
	truthful
	unwell atomic.Bool
}

func (p *fickle) Status() instance.Status {
	if p.unwell.Load() {
		return instance.Status{State: "unhealthy", Reason: "it is told to be"}
	}
	return p.truthful.Status()
}

// A provider that says that it is not well is not tried by anybody.
func TestATrialWaitsUntilTheProviderIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error {
			return sdk.Errorf(sdk.CodeConnectionFailed, "it answers with 500")
		}
		first := &fickle{truthful: cloud}
		s := instance.NewService(instance.Options{Catalog: bearing(first, other), Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
		defer s.Shutdown(t.Context())
		for n := range 10 {
			if n == 3 {
				first.unwell.Store(true)
			}
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
			assert.NilError(t, err)
			time.Sleep(time.Minute)
		}
		assert.Check(t, is.Len(cloud.Created(), 3))
	})
}

// The session has the instance of the fallback from then on, whoever asks and however;
// what the first one has made all the same counts until it is gone.
func TestAForsakenCreationIsDestroyedWhenItIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, other, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}, &memory{}
		keeper, err := quota.NewKeeper(quota.Options{})
		assert.NilError(t, err)
		s := serve(bearing(forgetful(cloud, true, 35*time.Second), other), m, instance.Past{}, keeper)
		defer s.Shutdown(t.Context())
		create := instance.CreateRequest{Session: "s"}
		const askers = 5
		got := make(chan instance.Info)
		for range askers {
			go func() {
				info, _, err := s.Create(t.Context(), acme, create)
				assert.Check(t, err)
				got <- info
			}()
		}
		first := <-got
		for range askers - 1 {
			assert.Equal(t, (<-got).ID, first.ID)
		}
		if first.Provider == "cloud" { // by an asker that had waited, and does not know why the first one went elsewhere
			assert.NilError(t, s.Destroy(t.Context(), acme, first.ID.String()))
			return
		}
		assert.DeepEqual(t, cloud.Live(), []string{"left"})
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 2.0)
		assert.Equal(t, s.CountByProvider()["cloud"][instance.StateUnclear], 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, is.Len(cloud.Live(), 0))
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
		again, created, err := s.Create(t.Context(), acme, create)
		assert.NilError(t, err)
		assert.Assert(t, !created && again.ID == first.ID)
		assert.Check(t, is.Len(m.past().Records, 1))
	})
}

// A broker that dies then leaves one instance to its session.
func TestAfterACrashAForsakenCreationIsNotTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, other, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other", Cloud: true}, &memory{}
		s := serve(bearing(forgetful(cloud, true, 35*time.Second), other), m, instance.Past{}, nil)
		create := instance.CreateRequest{Session: "s"}
		made, _, err := s.Create(t.Context(), acme, create)
		assert.NilError(t, err)
		assert.Equal(t, made.Provider, "other")
		past := m.past()
		assert.Check(t, is.Len(past.Records, 2))
		for _, r := range past.Records {
			assert.Equal(t, r.Ending, r.Provider == "cloud")
		}
		defer s.Shutdown(t.Context())

		next := serve(bearing(cloud, other), &memory{}, past, nil)
		defer next.ShutdownKeeping(t.Context())
		assert.NilError(t, next.Reconcile(t.Context(), cloud, served(t, cloud)))
		assert.NilError(t, next.Reconcile(t.Context(), other, served(t, other)))
		info, created, err := next.Create(t.Context(), acme, create)
		assert.NilError(t, err)
		assert.Assert(t, !created && info.ID == made.ID)
		assert.Check(t, is.Len(cloud.Live(), 0))
	})
}

// Where nobody else serves, or the tenant may have one instance only, the request comes
// back to what it has detached.
func TestARequestComesBackWhenNobodyElseServes(t *testing.T) {
	for name, test := range map[string]struct {
		session  string
		unlisted time.Duration
		makes    bool
		down     string
		one      bool // instance for the tenant
		by       string
		took     time.Duration
	}{
		"what is found late is its":                           {session: "s", unlisted: 20 * time.Second, makes: true, down: "told to be", by: "cloud", took: 20 * time.Second},
		"without a session too":                               {unlisted: 20 * time.Second, makes: true, down: "told to be", by: "cloud", took: 20 * time.Second},
		"there is room for one, and it is found":              {session: "s", unlisted: 20 * time.Second, makes: true, one: true, by: "cloud", took: 20 * time.Second},
		"there is room for one, and there was none":           {session: "s", unlisted: time.Second, one: true, by: "other", took: time.Minute},
		"there is room for one, and there was none, for once": {unlisted: time.Second, one: true, by: "other", took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other", Down: test.down}
				keeper, err := quota.NewKeeper(quota.Options{})
				assert.NilError(t, err)
				if test.one {
					keeper = oneEach(t)
				}
				m := &memory{}
				s := serve(bearing(forgetful(cloud, test.makes, test.unlisted), other), m, instance.Past{}, keeper)
				defer s.Shutdown(t.Context())
				began := time.Now()
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: test.session})
				assert.NilError(t, err)
				assert.Equal(t, info.Provider, test.by)
				took := time.Since(began)
				assert.Assert(t, took >= test.took && took < test.took+15*time.Second, "%s", took)
				assert.Equal(t, len(cloud.Live())+len(other.Live()), 1)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
				synctest.Wait() // until ends are written down
				records := m.past().Records
				assert.Check(t, is.Len(records, 1))
				assert.Assert(t, !records[0].Ending)
			})
		})
	}
}
