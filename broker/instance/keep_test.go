package instance_test

import (
	"context"
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
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// restarted is a service on what an earlier one left, which has heard of its provider.
func restarted(t *testing.T, m *memory, quotas instance.Quotas, p *instancetest.Provider) *instance.Service {
	t.Helper()
	s := instance.NewService(instance.Options{
		Catalog: instancetest.Catalog{p}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		Journal: m, Past: m.past(), BrokerID: brokerID, Quotas: quotas,
	})
	reconciled(t, s, p)
	return s
}

func created(t *testing.T, s *instance.Service, req instance.CreateRequest) instance.Info {
	t.Helper()
	info, _, err := s.Create(t.Context(), acme, req)
	assert.NilError(t, err)
	return info
}

func TestAStopThatKeepsLeavesTheNextStartWhatACrashWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: func(context.Context, string, bool) error { return nil }}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		kept := []instance.Info{
			created(t, s, instance.CreateRequest{Session: "s", TTL: time.Hour, Labels: map[string]string{"a": "b"}}),
			created(t, s, instance.CreateRequest{TTL: time.Hour}),
			created(t, s, instance.CreateRequest{Session: "paused", TTL: time.Hour}),
		}
		paused, err := s.Pause(t.Context(), acme, kept[2].ID.String())
		assert.NilError(t, err)
		kept[2] = paused
		renewed, err := s.Renew(t.Context(), acme, kept[1].ID.String(), 2*time.Hour)
		assert.NilError(t, err)
		kept[1] = renewed
		s.ShutdownKeeping(t.Context())
		assert.Check(t, cmp.Len(cloud.Live(), 3))

		time.Sleep(10 * time.Minute)
		keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Instances: 3}}}})
		assert.NilError(t, err)
		defer keeper.Close()
		next := restarted(t, m, keeper, cloud)
		defer next.Shutdown(t.Context())
		for _, before := range kept {
			after, err := next.Get(t.Context(), acme, before.ID.String())
			assert.NilError(t, err)
			assert.Equal(t, after.CreatedAt, before.CreatedAt)
			assert.Equal(t, after.Paused, before.Paused)
			assert.DeepEqual(t, after.Labels, before.Labels)
			assert.Assert(t, !after.ExpiresAt.Before(before.ExpiresAt), "%s", before.ID)
		}
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 3.0)
		_, _, err = next.Create(t.Context(), acme, instance.CreateRequest{Session: "other"})
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		again, fresh, err := next.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assert.NilError(t, err)
		assert.Check(t, !fresh && again.ID == kept[0].ID)
		assert.Check(t, cmp.Len(cloud.Created(), 3))
	})
}

func TestAStopThatKeepsDestroysWhatNobodyCouldUseAgain(t *testing.T) {
	for name, test := range map[string]struct {
		provider *instancetest.Provider
		// end is what becomes of it before the stop, with the service.
		end  func(c *swapped)
		told string
	}{
		"what ends with its plugin": {&instancetest.Provider{Name: "p"}, nil, "the broker was stopped"},
		"what has expired at that moment": {&instancetest.Provider{Name: "p", Cloud: true}, func(*swapped) {
			time.Sleep(time.Minute + 700*time.Millisecond) // between two rounds of the reaper
		}, "its time was over"},
		"what is on a provider that is no more in the configuration": {&instancetest.Provider{Name: "p", Cloud: true}, func(c *swapped) {
			c.swap(&instancetest.Provider{Name: "other"})
		}, "the broker was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, catalog := &memory{}, &swapped{now: test.provider}
				s := instance.NewService(instance.Options{
					Catalog: catalog, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Journal: m, BrokerID: brokerID,
				})
				info := created(t, s, instance.CreateRequest{Session: "s", TTL: time.Minute + 500*time.Millisecond})
				if test.end != nil {
					test.end(catalog)
				}
				s.ShutdownKeeping(t.Context())
				assert.Check(t, cmp.Len(test.provider.Live(), 0))
				assert.Check(t, cmp.Len(m.past().Records, 0))
				next := journalled(m, m.past(), test.provider)
				defer next.Shutdown(t.Context())
				_, err := next.Get(t.Context(), acme, info.ID.String())
				assertCode(t, err, sdk.CodeNotFound)
				assert.Check(t, cmp.ErrorContains(err, test.told))
			})
		})
	}
}

// The executions of a stop that keeps may finish, or end with its patience: their
// instances stay either way, unless they were made for them.
func TestAStopThatKeepsLetsExecutionsFinish(t *testing.T) {
	for name, test := range map[string]struct {
		patience time.Duration
		code     sdk.Code
	}{
		"in time":     {time.Minute, ""},
		"not in time": {time.Second, sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
				cloud.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
					select {
					case <-time.After(10 * time.Second):
						return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
					case <-ctx.Done():
						return sdk.ExecuteResult{}, ctx.Err()
					}
				}
				s := journalled(m, instance.Past{}, cloud)
				info := created(t, s, instance.CreateRequest{Session: "s"})
				var running sync.WaitGroup
				running.Go(func() {
					_, err := s.Execute(t.Context(), acme, info.ID.String(), run("python").ExecuteRequest)
					assert.Check(t, cmp.Equal(sdk.CodeOf(err) == test.code || test.code == "" && err == nil, true), "%v", err)
				})
				running.Go(func() {
					_, err := s.Run(t.Context(), acme, run("python"))
					assert.Check(t, cmp.Equal(sdk.CodeOf(err) == test.code || test.code == "" && err == nil, true), "%v", err)
				})
				synctest.Wait()
				assert.Check(t, cmp.Len(cloud.Live(), 2))
				patience, cancel := context.WithTimeout(t.Context(), test.patience)
				defer cancel()
				s.ShutdownKeeping(patience)
				running.Wait()
				assert.DeepEqual(t, cloud.Live(), []string{"fake-" + info.ID.Instance})
				next := restarted(t, m, nil, cloud)
				defer next.Shutdown(t.Context())
				_, err := next.Get(t.Context(), acme, info.ID.String())
				assert.NilError(t, err)
			})
		})
	}
}

func TestAStopThatKeepsLeavesWhatIsUnclearRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := serve(instancetest.Catalog{forgetful(cloud, true, 35*time.Second)}, m, instance.Past{}, nil)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
		assertCode(t, err, sdk.CodeConnectionFailed)
		s.ShutdownKeeping(t.Context())
		assert.Check(t, cmp.Len(m.past().Records, 1))
		assert.DeepEqual(t, cloud.Live(), []string{"left"})
		next := restarted(t, m, nil, cloud)
		defer next.Shutdown(t.Context())
		info := created(t, next, instance.CreateRequest{Session: "s"})
		assert.Equal(t, info.ID.Session, "s")
		assert.DeepEqual(t, cloud.Live(), []string{"left"})
	})
}

// A plugin may die and start once more between the end of the service and its own stop.
func TestWhatIsKeptIsNoOrphanForAPluginThatStartsDuringTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, m := &instancetest.Provider{Name: "cloud", Cloud: true}, &memory{}
		s := journalled(m, instance.Past{}, cloud)
		info := created(t, s, instance.CreateRequest{Session: "s"})
		s.ShutdownKeeping(t.Context())
		reconciled(t, s, cloud)
		assert.DeepEqual(t, cloud.Live(), []string{"fake-" + info.ID.Instance})
		assert.Check(t, cmp.Len(m.past().Records, 1))
		assert.Check(t, slices.ContainsFunc(m.past().Records, func(r instance.Record) bool { return r.ID == info.ID }))
	})
}

func TestWhatIsOnAnEarlierProcessOfItsProviderIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := &instancetest.Provider{Name: "p", Cloud: true}, &instancetest.Provider{Name: "p", Cloud: true}
		m, catalog := &memory{}, &changing{now: older}
		s := instance.NewService(instance.Options{
			Catalog: catalog, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Journal: m, BrokerID: brokerID,
		})
		info := created(t, s, instance.CreateRequest{Session: "s"})
		catalog.change(newer)
		s.Retire(older)
		s.ShutdownKeeping(t.Context())
		assert.Check(t, cmp.Len(older.Live(), 1))
		next := restarted(t, m, nil, older)
		defer next.Shutdown(t.Context())
		_, err := next.Get(t.Context(), acme, info.ID.String())
		assert.NilError(t, err)
	})
}
