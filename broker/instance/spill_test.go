package instance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// crowded is a provider that has no room before a time, and bears with those who wait
// for half a minute.
func crowded(name string, until time.Time) *instancetest.Provider {
	const patience = 30 * time.Second
	p := &instancetest.Provider{Name: name}
	p.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
		most, code := patience, sdk.CodeCreateFailed
		if req.MaxQueue != nil && *req.MaxQueue < most {
			most, code = *req.MaxQueue, sdk.CodeQuotaExceeded
		}
		room := time.Until(until)
		select {
		case <-time.After(min(room, most)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if room > most {
			return sdk.Errorf(code, "there is no room")
		}
		return nil
	}
	return p
}

func TestAFullProviderOverflowsToItsFallback(t *testing.T) {
	for name, test := range map[string]struct {
		room     time.Duration // after which there is some
		patience time.Duration
		fallback string // why it cannot serve
		by       string
		took     time.Duration
		code     sdk.Code
	}{
		"at once":                             {room: time.Hour, by: "second"},
		"after a while":                       {room: time.Hour, patience: 2 * time.Second, by: "second", took: 2 * time.Second},
		"not when there is room in time":      {room: time.Second, patience: 2 * time.Second, by: "first", took: time.Second},
		"and is waited for when that is down": {room: 20 * time.Second, fallback: "told to be", by: "first", took: 20 * time.Second},
		"and refuses when that is down":       {room: time.Hour, fallback: "told to be", took: 30 * time.Second, code: sdk.CodeCreateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := crowded("first", time.Now().Add(test.room)), &instancetest.Provider{Name: "second", Down: test.fallback}
				s := instance.NewService(instance.Options{
					Catalog: patient{ranked{first, second}, instance.Patience{Full: test.patience}},
					Limits:  instancetest.Limits(), Logger: hclog.NewNullLogger(),
				})
				defer s.Shutdown(t.Context())
				began := time.Now()
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
				assert.Equal(t, time.Since(began), test.took)
				if test.code != "" {
					assertCode(t, err, test.code)
					return
				}
				assert.NilError(t, err)
				assert.Equal(t, info.Provider, test.by)
			})
		})
	}
}

// To be full is no failure, and no reason to hold back those who can wait.
func TestAFullProviderIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := crowded("first", time.Now().Add(20*time.Second)), &instancetest.Provider{Name: "second"}
		keeper, err := quota.NewKeeper(quota.Options{})
		assert.NilError(t, err)
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Quotas: keeper,
		})
		defer s.Shutdown(t.Context())
		for n := range 10 {
			info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
			assert.NilError(t, err)
			assert.Equal(t, info.Provider, "second")
			assert.Equal(t, info.Routing.Tried[0], instance.Tried{Provider: "first", Code: sdk.CodeQuotaExceeded})
			assert.Equal(t, len(first.Created()), n+1)
		}
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Provider: "first"})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "first")
		assert.Assert(t, first.Created()[10].MaxQueue == nil, "who names it waits as long as it likes")
		info, _, err = s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "first")
	})
}

// Who names the provider does not share the hurry of another request of its session.
func TestWhoNamesAFullProviderWaitsForItBesideOneThatGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := crowded("first", time.Now().Add(20*time.Second)), &instancetest.Provider{Name: "second"}
		s := instance.NewService(instance.Options{
			Catalog: patient{ranked{first, second}, instance.Patience{Full: 5 * time.Second}},
			Limits:  instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		var elsewhere atomic.Value
		go func() {
			info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
			assert.Check(t, err)
			elsewhere.Store(info.Provider)
		}()
		time.Sleep(time.Second)
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Provider: "first"})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "first")
		synctest.Wait()
		assert.Assert(t, elsewhere.Load() == "second" || elsewhere.Load() == "first", "whoever was faster, the other joins")
	})
}
