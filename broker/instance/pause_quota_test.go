package instance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// keeperOf is a keeper with these limits for the tenant acme.
func keeperOf(t *testing.T, limits quota.Limits) *quota.Keeper {
	t.Helper()
	keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": limits}, MaxWaiting: 10}})
	assert.NilError(t, err)
	return keeper
}

// counted checks what the quotas count for acme.
func counted(t *testing.T, k *quota.Keeper, instances, paused float64) {
	t.Helper()
	assert.Check(t, cmp.Equal(usedOf(k, "acme", quota.MaxInstances), instances), "instances")
	assert.Check(t, cmp.Equal(usedOf(k, "acme", quota.MaxPaused), paused), "paused")
}

// releasing is a cloud whose paused instances hold no memory.
func releasing(onPause func(pause bool) error) *instancetest.Provider {
	return &instancetest.Provider{Name: "cloud", Cloud: true, Releases: true, OnPause: func(_ context.Context, _ string, pause bool) error { return onPause(pause) }}
}

func noTrouble(bool) error { return nil }

func TestAResumeNeedsRoomAmongTheInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, k := releasing(noTrouble), keeperOf(t, quota.Limits{Instances: 1, Paused: 1})
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, k)
		defer s.Shutdown(t.Context())
		first := create(t, s, instance.CreateRequest{Session: "first"})
		_, err := s.Pause(t.Context(), acme, first.ID.String())
		assert.NilError(t, err)
		counted(t, k, 0, 1)
		second := create(t, s, instance.CreateRequest{Session: "second"})
		counted(t, k, 1, 1)

		_, err = s.Resume(t.Context(), acme, first.ID.String())
		assertCode(t, err, sdk.CodeQuotaExceeded)
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		assert.Assert(t, get(t, s, first).Paused, "it stays paused")
		_, err = s.Pause(t.Context(), acme, second.ID.String())
		assertCode(t, err, sdk.CodeQuotaExceeded)
		assert.Equal(t, limitOf(err), quota.MaxPaused)
		assert.Assert(t, !get(t, s, second).Paused)
		assert.NilError(t, execute(t, s, second))
		_, err = s.Pause(t.Context(), acme, first.ID.String())
		assert.NilError(t, err, "what is paused takes no second place")
		counted(t, k, 1, 1)

		assert.NilError(t, s.Destroy(t.Context(), acme, second.ID.String()))
		_, err = s.Resume(t.Context(), acme, first.ID.String())
		assert.NilError(t, err)
		counted(t, k, 1, 0)
		_, err = s.Pause(t.Context(), acme, first.ID.String())
		assert.NilError(t, err)
		assert.NilError(t, s.Destroy(t.Context(), acme, first.ID.String()))
		counted(t, k, 0, 0)
	})
}

func TestOneOfManyResumesGetsTheOnlyPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, k := releasing(noTrouble), keeperOf(t, quota.Limits{Instances: 1})
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, k)
		defer s.Shutdown(t.Context())
		var all []instance.Info
		for _, session := range []string{"a", "b", "c", "d", "e", "f"} {
			info := create(t, s, instance.CreateRequest{Session: session})
			_, err := s.Pause(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
			all = append(all, info)
		}
		var resumed atomic.Int64
		var group sync.WaitGroup
		for _, info := range all {
			group.Go(func() {
				if _, err := s.Resume(t.Context(), acme, info.ID.String()); err == nil {
					resumed.Add(1)
				} else {
					assert.Check(t, cmp.Equal(limitOf(err), quota.MaxInstances))
				}
			})
		}
		group.Wait()
		assert.Equal(t, resumed.Load(), int64(1))
		counted(t, k, 1, float64(len(all)-1))
	})
}

func TestWhatOnlyStandsStillCountsAsAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, k := releasing(noTrouble), keeperOf(t, quota.Limits{Instances: 1, Paused: 1})
		cloud.Releases = false
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, k)
		defer s.Shutdown(t.Context())
		info := create(t, s, instance.CreateRequest{})
		for range 2 {
			_, err := s.Pause(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
			counted(t, k, 1, 0)
			_, err = s.Resume(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
		}
	})
}

// Whatever may run counts among what runs.
func TestAPauseOrResumeThatFailsCountsAsWhatMayBe(t *testing.T) {
	stuck := sdk.Errorf(sdk.CodeUnavailable, "stuck")
	refuses := &sdk.Error{Code: sdk.CodeQuotaExceeded, Message: "no room", NoEffect: true}
	for name, test := range map[string]struct {
		pause, resume     error
		instances, paused float64
	}{
		"a pause that is refused":           {pause: refuses, instances: 1},
		"a pause that nobody knows of":      {pause: stuck, instances: 1},
		"a resume that is refused":          {resume: refuses, paused: 1},
		"a resume that nobody knows of":     {resume: stuck, instances: 1},
		"a resume that works":               {instances: 1},
		"a resume of one that is not found": {resume: sdk.Errorf(sdk.CodeConflict, "not now"), paused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := releasing(func(pause bool) error {
					if pause {
						return test.pause
					}
					return test.resume
				})
				k := keeperOf(t, quota.Limits{Instances: 5, Paused: 5})
				s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, k)
				defer s.Shutdown(t.Context())
				info := create(t, s, instance.CreateRequest{})
				_, err := s.Pause(t.Context(), acme, info.ID.String())
				assert.Equal(t, err != nil, test.pause != nil)
				if err == nil {
					_, err = s.Resume(t.Context(), acme, info.ID.String())
					assert.Equal(t, err != nil, test.resume != nil)
				}
				counted(t, k, test.instances, test.paused)
				assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
				counted(t, k, 0, 0)
			})
		})
	}
}

func TestAnInstanceWhoseTimeIsOverIsPausedWithoutRoomToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, k := releasing(noTrouble), keeperOf(t, quota.Limits{Instances: 2, Paused: 1})
		s := serve(instancetest.Catalog{cloud}, nil, instance.Past{}, k)
		defer s.Shutdown(t.Context())
		req := pausedAtEnd
		first := create(t, s, req)
		req.Session = "other"
		second := create(t, s, req)
		time.Sleep(2 * time.Minute) // of the bubble
		synctest.Wait()
		assert.Assert(t, get(t, s, first).Paused && get(t, s, second).Paused)
		counted(t, k, 1, 1)
		for _, info := range []instance.Info{first, second} {
			_, err := s.Resume(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
		}
		counted(t, k, 2, 0)
	})
}

// At each moment the next broker counts no less than what may run, and after a pause and after
// a resume exactly what is so.
func TestABrokerThatDiesInTheMiddleOfAPauseCountsWhatMayRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := &memory{}, keeperOf(t, quota.Limits{Instances: 1, Paused: 1})
		type moment struct {
			what              string
			past              instance.Past
			instances, paused float64
		}
		var moments []moment
		at := func(what string, instances, paused float64) {
			moments = append(moments, moment{what, m.past(), instances, paused})
		}
		cloud := releasing(func(pause bool) error {
			if pause {
				at("its provider pauses it", 1, 0)
			} else {
				at("its provider resumes it", 1, 0)
			}
			return nil
		})
		s := serve(instancetest.Catalog{cloud}, m, instance.Past{}, k)
		info := create(t, s, instance.CreateRequest{Session: "s"})
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		live, err := served.List(t.Context())
		assert.NilError(t, err)
		for range 2 {
			_, err = s.Pause(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
			at("it is paused", 0, 1)
			_, err = s.Resume(t.Context(), acme, info.ID.String())
			assert.NilError(t, err)
			at("it is resumed", 1, 0)
		}
		s.Shutdown(t.Context())
		assert.Equal(t, len(moments), 8)
		for _, crash := range moments {
			cloud := releasing(noTrouble)
			for _, i := range live {
				cloud.Adopt(i)
			}
			later, next := &memory{}, keeperOf(t, quota.Limits{Instances: 1, Paused: 1})
			assert.NilError(t, later.Write(t.Context(), crash.past.Records[0]))
			s := serve(instancetest.Catalog{cloud}, later, crash.past, next)
			counted(t, next, crash.instances, crash.paused)
			reconciled(t, s, cloud)
			counted(t, next, crash.instances, crash.paused)
			_, err := s.Resume(t.Context(), acme, info.ID.String())
			assert.Check(t, err, crash.what)
			counted(t, next, 1, 0)
			assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String()))
			counted(t, next, 0, 0)
			s.Shutdown(t.Context())
		}
	})
}
