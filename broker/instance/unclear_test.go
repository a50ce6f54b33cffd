package instance_test

import (
	"context"
	"errors"
	"slices"
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
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// forgetful makes a cloud answer its first creation with an error, having made the
// instance if it does, and list nothing for a while.
func forgetful(cloud *instancetest.Provider, makes bool, unlisted time.Duration) *liar {
	l := &liar{cloud, &atomic.Bool{}}
	failed := false
	cloud.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
		if failed {
			return nil
		}
		failed = true
		if makes {
			cloud.Adopt(sdk.Instance{ID: "left", Labels: req.Labels})
		}
		l.hidden.Store(true)
		time.AfterFunc(unlisted, func() { l.hidden.Store(false) })
		return sdk.Errorf(sdk.CodeConnectionFailed, "the connection broke")
	}
	return l
}

func serve(catalog instance.Catalog, j instance.Journal, past instance.Past, quotas instance.Quotas) *instance.Service {
	limits := instancetest.Limits()
	limits.CreateTimeout = 10 * time.Second
	return instance.NewService(instance.Options{
		Catalog: catalog, Limits: limits, Logger: hclog.NewNullLogger(),
		Journal: j, Past: past, BrokerID: brokerID, Quotas: quotas,
	})
}

func oneEach(t *testing.T) *quota.Keeper {
	t.Helper()
	keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Instances: 1}}}})
	assert.NilError(t, err)
	return keeper
}

// assertWaits checks that who asks is told to come again.
func assertWaits(t *testing.T, err error) {
	t.Helper()
	coded, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok && coded.Code == sdk.CodeUnavailable && coded.RetryAfter > 0, "%v", err)
}

func TestASessionGetsNothingElseAsLongAsTheListMayBeLate(t *testing.T) {
	for name, makes := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, keeper := &instancetest.Provider{Name: "cloud", Cloud: true}, oneEach(t)
				s := serve(instancetest.Catalog{forgetful(cloud, makes, 35*time.Second)}, nil, instance.Past{}, keeper)
				defer s.Shutdown(t.Context())
				create := instance.CreateRequest{Session: "s"}
				_, _, err := s.Create(t.Context(), acme, create)
				assertCode(t, err, sdk.CodeConnectionFailed)
				began := time.Now()
				for range 3 {
					_, _, err := s.Create(t.Context(), acme, create)
					assertWaits(t, err)
					assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
				}
				assert.Equal(t, time.Since(began), 30*time.Second, "each waits as long as a creation may")
				var info instance.Info
				for info, _, err = s.Create(t.Context(), acme, create); err != nil; info, _, err = s.Create(t.Context(), acme, create) {
					assertWaits(t, err)
				}
				assert.Check(t, is.Len(cloud.Live(), 1), "of %s", info.ID)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
				if makes {
					assert.DeepEqual(t, cloud.Live(), []string{"left"})
					assert.Check(t, is.Len(cloud.Created(), 1))
				} else {
					assert.Assert(t, time.Since(began) >= time.Minute)
				}
			})
		})
	}
}

func TestWhatNobodyAsksForAnyMoreIsDestroyedWhenItIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, keeper, m := &instancetest.Provider{Name: "cloud", Cloud: true}, oneEach(t), &memory{}
		s := serve(instancetest.Catalog{forgetful(cloud, true, 35*time.Second)}, m, instance.Past{}, keeper)
		defer s.Shutdown(t.Context())
		_, err := s.Run(t.Context(), acme, run("python"))
		assertCode(t, err, sdk.CodeConnectionFailed)
		_, err = s.Run(t.Context(), acme, run("python"))
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, is.Len(cloud.Live(), 0))
		assert.Check(t, is.Len(m.past().Records, 0))
		_, err = s.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
	})
}

// Who comes while a creation that was given up has not ended waits until what it makes is
// gone: its plugin may be tidying up.
func TestACreationThatWasGivenUpKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		cloud.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
			cloud.OnCreate = nil
			<-ctx.Done()
			time.Sleep(time.Second) // until it notices
			cloud.Adopt(sdk.Instance{ID: "left", Labels: req.Labels})
			return ctx.Err()
		}
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, nil)
		defer s.Shutdown(t.Context())
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := s.Create(impatient, acme, instance.CreateRequest{Session: "s"})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		info, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		assert.Assert(t, created)
		assert.Check(t, is.Len(cloud.Live(), 1))
		assert.Check(t, cloud.Live()[0] != "left")
		assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
		assert.Check(t, is.Len(cloud.Live(), 0))
	})
}

// A broker that dies, or stops, while it does not know leaves it to the next one.
func TestAfterARestartASessionGetsNothingElsewhereWhatIsNotKnown(t *testing.T) {
	for name, stop := range map[string]bool{"killed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
				m, l := &memory{}, forgetful(cloud, true, 200*time.Second)
				create := instance.CreateRequest{Session: "s"}
				first := serve(instancetest.Catalog{l}, m, instance.Past{}, nil)
				_, _, err := first.Create(t.Context(), acme, create)
				assertCode(t, err, sdk.CodeConnectionFailed)
				past := m.past()
				if stop {
					first.Shutdown(t.Context())
					past = m.past()
				} else {
					defer first.Shutdown(t.Context())
				}
				assert.Check(t, is.Len(past.Records, 1))

				var down atomic.Bool
				down.Store(true)
				back := &instancetest.Provider{Name: "cloud", Cloud: true}
				back.OnWait = func(context.Context) error {
					if down.Load() {
						return sdk.Errorf(sdk.CodeUnavailable, "not yet there")
					}
					return nil
				}
				keeper := oneEach(t)
				next := serve(ranked{back, other}, &memory{}, past, keeper)
				defer next.Shutdown(t.Context())
				_, _, err = next.Create(t.Context(), acme, create)
				assertCode(t, err, sdk.CodeUnavailable)
				assert.Check(t, is.Len(other.Live(), 0))
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)

				// The same creation is asked for once more when the cloud is back.
				down.Store(false)
				info, _, err := next.Create(t.Context(), acme, create)
				assert.NilError(t, err)
				assert.Equal(t, info.ID, past.Records[0].ID)
				assert.Check(t, is.Len(other.Live(), 0))
			})
		})
	}
}

// That a resumed creation is refused does not mean that the one before it was.
func TestARefusalToResumeACreationProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error {
			return sdk.Errorf(sdk.CodeQuotaExceeded, "full")
		}
		l, r := &liar{cloud, &atomic.Bool{}}, made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Made = "" })
		in(cloud, r.ID.Instance, brokerID)
		l.hidden.Store(true)
		time.AfterFunc(20*time.Second, func() { l.hidden.Store(false) })
		s := serve(ranked{l, other}, nil, instance.Past{Records: []instance.Record{r}}, oneEach(t))
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: r.ID.Session})
		assert.NilError(t, err)
		assert.Equal(t, info.ID, r.ID)
		assert.Equal(t, info.Provider, "cloud")
		assert.Check(t, is.Len(other.Created(), 0))
	})
}

// What was made for one execution by a cloud outlives the broker, listed or not.
func TestWhatACloudMadeForOneExecutionCountsAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		l := &liar{cloud, &atomic.Bool{}}
		var past instance.Past
		cloud.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
			past = m.past()
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
		first := serve(instancetest.Catalog{l}, m, instance.Past{}, nil)
		_, err := first.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
		first.Shutdown(t.Context())
		assert.Check(t, is.Len(m.past().Records, 0))
		assert.Check(t, is.Len(past.Records, 1))
		r := past.Records[0]
		assert.Assert(t, r.OneShot && r.Made == "")

		cloud.Adopt(sdk.Instance{ID: "left", Labels: map[string]string{sdk.LabelBroker: brokerID, sdk.LabelInstance: r.ID.Instance}})
		l.hidden.Store(true)
		keeper := oneEach(t)
		next := serve(instancetest.Catalog{l}, &memory{}, past, keeper)
		defer next.Shutdown(t.Context())
		served, err := l.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, next.Reconcile(t.Context(), l, served))
		_, err = next.Run(t.Context(), acme, run("python"))
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		l.hidden.Store(false)
		assert.NilError(t, next.Reconcile(t.Context(), l, served))
		synctest.Wait()
		assert.Check(t, is.Len(cloud.Live(), 0))
		_, err = next.Get(t.Context(), acme, r.ID.String())
		assert.Error(t, err, "SB013: no such instance; create a new one if you need one")
		_, err = next.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
	})
}

// What ends with its process needs no record of what is made for one execution.
func TestAnExecutionThatEndsWithItsProcessIsNotWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, m := &instancetest.Provider{Name: "first"}, &memory{}
		m.after = func() { t.Error("it was written down") }
		s := serve(instancetest.Catalog{provider}, m, instance.Past{}, nil)
		defer s.Shutdown(t.Context())
		_, err := s.Run(t.Context(), acme, run("python"))
		assert.NilError(t, err)
		synctest.Wait()
	})
}

// A provider that is replaced or removed with an unclear creation does not hold its
// session for ever.
func TestAnUnclearCreationEndsWithItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, keeper := &instancetest.Provider{Name: "cloud", Cloud: true}, oneEach(t)
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error { return sdk.Errorf(sdk.CodeUnavailable, "no") }
		cloud.OnList = func(context.Context) error { return sdk.Errorf(sdk.CodeUnavailable, "no") }
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, keeper)
		defer s.Shutdown(t.Context())
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeUnavailable)
		empty := s.Retire(cloud)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
		assert.Equal(t, s.Instances(cloud), 1)
		s.Lose(cloud)
		<-empty
		synctest.Wait() // it counts until the journal knows
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
		time.Sleep(time.Minute)
		synctest.Wait()
		cloud.OnCreate = nil
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
	})
}

func TestEachWayForACreationToFailHasItsVerdict(t *testing.T) {
	// An unclear one counts until it was looked for, the others do not.
	certain := []sdk.Code{
		sdk.CodeNotInitialized, sdk.CodeInvalidConfig, sdk.CodeQuotaExceeded, sdk.CodeInvalidRequest, sdk.CodeNotAuthenticated,
		sdk.CodeNotAllowed, sdk.CodeNotSupported,
	}
	for _, info := range sdk.CodeTable() {
		t.Run(string(info.Code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, keeper := &instancetest.Provider{Name: "cloud", Cloud: true}, oneEach(t)
				cloud.OnCreate = func(context.Context, sdk.CreateRequest) error { return sdk.Errorf(info.Code, "no") }
				s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, keeper)
				defer s.Shutdown(t.Context())
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
				assert.Assert(t, err != nil)
				want := 1.0
				if slices.Contains(certain, info.Code) {
					want = 0
				}
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), want)
				time.Sleep(61 * time.Second)
				synctest.Wait()
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
			})
		})
	}
}

// What ends while the provider lists is not destroyed once more.
func TestWhatEndsDuringAReconciliationIsNoOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		var destroyed atomic.Int64
		cloud.OnDestroy = func(context.Context, string) error { destroyed.Add(1); return nil }
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, nil)
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), cloud, endsMeanwhile{served, func() {
			assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
		}}))
		assert.Equal(t, destroyed.Load(), int64(1))
	})
}

// endsMeanwhile is a provider whose list is told only after something has ended.
type endsMeanwhile struct {
	sdk.Provider
	end func()
}

func (e endsMeanwhile) List(ctx context.Context) ([]sdk.Instance, error) {
	list, err := e.Provider.List(ctx)
	e.end()
	return list, err
}
