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
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// time.Sleep in this file is of the bubble's clock.

// pausedAtEnd is a request for an instance that is paused after a minute.
var pausedAtEnd = instance.CreateRequest{Session: "s", TTL: time.Minute, Fixed: true, PauseAtEnd: true}

func TestAnInstanceIsPausedAtItsEnd(t *testing.T) {
	for name, fixed := range map[string]bool{"that is fixed": true, "that uses move": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				var mu sync.Mutex
				var causes []origin.Cause
				first.OnPause = func(ctx context.Context, _ string, pause bool) error {
					mu.Lock()
					defer mu.Unlock()
					if pause {
						causes = append(causes, origin.Of(ctx).Cause)
					}
					return nil
				}
				req := pausedAtEnd
				req.Fixed = fixed
				info := create(t, s, req)
				assert.Assert(t, info.PauseAtEnd)
				for range 2 {
					assert.NilError(t, execute(t, s, info))
					time.Sleep(time.Until(get(t, s, info).ExpiresAt))
					now := get(t, s, info) // at its end, whether the provider has done it or not
					assert.Assert(t, now.Paused)
					assert.Equal(t, now.ExpiresAt, info.CreatedAt.Add(24*time.Hour))
					synctest.Wait()
					assertCode(t, execute(t, s, info), sdk.CodeConflict)
					resumed, err := s.Resume(t.Context(), acme, info.ID.String())
					assert.NilError(t, err)
					assert.Assert(t, !resumed.Paused)
					assert.Equal(t, get(t, s, info).ExpiresAt, time.Now().Add(time.Minute))
				}
				mu.Lock()
				assert.DeepEqual(t, causes, []origin.Cause{origin.Expired, origin.Expired})
				mu.Unlock()
				time.Sleep(time.Until(info.CreatedAt.Add(24*time.Hour - time.Second)))
				synctest.Wait()
				assert.Assert(t, get(t, s, info).Paused)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
				_, err := s.Get(t.Context(), acme, info.ID.String())
				assert.ErrorContains(t, err, "its time was over")
			})
		})
	}
}

func TestARenewalMovesTheEndAtWhichAnInstanceIsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		var pauses atomic.Int32
		first.OnPause = func(context.Context, string, bool) error { pauses.Add(1); return nil }
		info := create(t, s, pausedAtEnd)
		_, err := s.Renew(t.Context(), acme, info.ID.String(), 10*time.Minute)
		assert.NilError(t, err)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		assert.Equal(t, pauses.Load(), int32(0))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(t, pauses.Load(), int32(1))
		assert.NilError(t, s.Destroy(t.Context(), acme, info.ID.String())) // as any other
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestWhatRunsAtTheEndIsEndedBeforeTheInstanceIsPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		running := false
		first.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
			running = true
			<-ctx.Done()
			time.Sleep(time.Second) // the provider ends it
			running = false
			return sdk.ExecuteResult{}, ctx.Err()
		}
		first.OnPause = func(context.Context, string, bool) error {
			assert.Check(t, !running)
			return nil
		}
		info := create(t, s, pausedAtEnd)
		execution, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python", Timeout: 5 * time.Minute})
		assert.NilError(t, err)
		assert.Equal(t, execution.Result.Status, sdk.StatusCancelled)
		assert.Equal(t, execution.Result.Detail, "the instance's time was over during the execution")
		synctest.Wait()
		assert.Assert(t, get(t, s, info).Paused)
	})
}

// What it was used for ends then, and is not told that the instance is no more.
func TestAUseOfAnInstanceEndsWhenThatIsPausedAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		going := make(chan error)
		first.OnPause = func(context.Context, string, bool) error { return <-going }
		info := create(t, s, pausedAtEnd)
		lease, err := s.Lease(t.Context(), acme, info.ID.String(), sdk.CapabilityPause)
		assert.NilError(t, err)
		ctx, cancel := lease.Within(t.Context())
		defer cancel()
		<-ctx.Done()
		assert.Equal(t, time.Since(info.CreatedAt), time.Minute)
		err = lease.Fault(ctx, ctx.Err())
		assertCode(t, err, sdk.CodeConflict)
		assert.ErrorContains(t, err, "it is paused")
		lease.Release()
		going <- nil
		synctest.Wait()
		assert.Assert(t, get(t, s, info).Paused)
	})
}

// Who resumes it while that goes on finds it paused, and waits.
func TestAResumeWaitsForThePauseAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		going := make(chan error)
		first.OnPause = func(_ context.Context, _ string, pause bool) error {
			if pause {
				return <-going
			}
			return nil
		}
		info := create(t, s, pausedAtEnd)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		assert.Assert(t, get(t, s, info).Paused)
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 2)
		resume := func(ctx context.Context) {
			_, err := s.Resume(ctx, acme, info.ID.String())
			done <- err
		}
		go resume(ctx)
		synctest.Wait()
		leave()
		assert.ErrorIs(t, <-done, context.Canceled)
		go resume(t.Context())
		synctest.Wait()
		going <- nil
		assert.NilError(t, <-done)
		assert.Assert(t, !get(t, s, info).Paused)
	})
}

func TestAPauseAtTheEndThatFailsIsTriedAgainOrEndsTheInstance(t *testing.T) {
	refuses := sdk.Errorf(sdk.CodeConflict, "not now")
	for name, test := range map[string]struct {
		err      error
		failures int // -1 for always
		pauses   int
		lives    time.Duration // from the end on; 0 if it is paused
	}{
		"it works the third time":     {refuses, 2, 3, 0},
		"it never works":              {refuses, -1, 21, 5 * time.Minute},
		"the provider never will":     {sdk.NotSupported("first", sdk.CapabilityPause), -1, 1, 0 * time.Second},
		"the provider knows it not":   {sdk.Errorf(sdk.CodeNotFound, "no such sandbox"), -1, 1, 0},
		"it may be frozen":            {sdk.Errorf(sdk.CodeUnavailable, "stuck"), 1, 1, 0},
		"it was not reached, for now": {&sdk.Error{Code: sdk.CodeUnavailable, Message: "refused", NoEffect: true}, 1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				pauses := 0
				first.OnPause = func(_ context.Context, _ string, pause bool) error {
					if pauses++; test.failures < 0 || pauses <= test.failures {
						return test.err
					}
					return nil
				}
				var destroyed time.Time
				first.OnDestroy = func(context.Context, string) error { destroyed = time.Now(); return nil }
				info := create(t, s, pausedAtEnd)
				time.Sleep(11 * time.Minute)
				synctest.Wait()
				assert.Equal(t, pauses, test.pauses)
				if test.failures >= 0 {
					assert.Assert(t, get(t, s, info).Paused)
					return
				}
				late := destroyed.Sub(info.ExpiresAt) - test.lives
				assert.Assert(t, late >= 0 && late <= 30*time.Second, "destroyed %s after the end", late+test.lives)
				_, err := s.Get(t.Context(), acme, info.ID.String())
				assert.ErrorContains(t, err, "its time was over, and it could not be paused")
			})
		})
	}
}

func TestAnInstanceToBePausedNeedsAProviderThatCan(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, second *instancetest.Provider) {
		_, _, err := s.Create(t.Context(), acme, pausedAtEnd)
		assertCode(t, err, sdk.CodeNotSupported)
		assert.ErrorContains(t, err, "pause")
		second.OnPause = func(context.Context, string, bool) error { return nil }
		named := pausedAtEnd
		named.Provider = "first"
		_, _, err = s.Create(t.Context(), acme, named)
		assertCode(t, err, sdk.CodeNotSupported)
		assert.Check(t, cmp.Len(first.Created(), 0))
		create(t, s, instance.CreateRequest{Session: "s", Provider: "second"})
		named.Provider = "second"
		_, _, err = s.Create(t.Context(), acme, named)
		assertCode(t, err, sdk.CodeConflict)
	})
}

// A broker that dies before the end, in the middle of the pause or after it leaves what the
// next one has paused, or finds so.
func TestTheWishForAPauseOutlivesTheBroker(t *testing.T) {
	for name, after := range map[string]time.Duration{"before the end": 30 * time.Second, "after it": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &memory{}
				pauses := 0
				onPause := func(_ context.Context, _ string, pause bool) error {
					if pause {
						assert.Check(t, m.past().Records[0].Paused, "written down before")
						pauses++
					}
					return nil
				}
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: onPause}
				s := journalled(m, instance.Past{}, cloud)
				info := create(t, s, pausedAtEnd)
				served, err := cloud.Provider(t.Context())
				assert.NilError(t, err)
				live, err := served.List(t.Context())
				assert.NilError(t, err)
				time.Sleep(after)
				synctest.Wait()
				past := m.past()
				s.Shutdown(t.Context())

				time.Sleep(10 * time.Minute)
				cloud = &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: onPause}
				for _, i := range live {
					cloud.Adopt(i)
				}
				m = &memory{}
				assert.NilError(t, m.Write(t.Context(), past.Records[0]))
				s = journalled(m, past, cloud)
				defer s.Shutdown(t.Context())
				reconciled(t, s, cloud)
				now := get(t, s, info)
				synctest.Wait()
				assert.Assert(t, now.Paused)
				assert.Equal(t, now.ExpiresAt, info.CreatedAt.Add(24*time.Hour))
				assert.Equal(t, pauses, 1)
				_, err = s.Resume(t.Context(), acme, info.ID.String())
				assert.NilError(t, err)
				record := m.past().Records[0]
				assert.Assert(t, !record.Paused && record.PauseAtEnd)
				assert.Equal(t, record.Expires, time.Now().Add(time.Minute))
			})
		})
	}
}

// A broker that stops between the end of an instance and its pause leaves that to the next.
func TestWhatIsToBePausedIsKeptByABrokerThatStops(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // the creation
		lives bool
	}{
		"at the end of its time":     {time.Minute + 700*time.Millisecond, true},
		"at the end of any instance": {24*time.Hour + 200*time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true, OnPause: func(context.Context, string, bool) error { return nil }}
				s := journalled(&memory{}, instance.Past{}, cloud)
				time.Sleep(100 * time.Millisecond) // what is due is looked for at full seconds
				req := pausedAtEnd
				req.TTL += 500 * time.Millisecond
				create(t, s, req)
				time.Sleep(test.after)
				s.ShutdownKeeping(t.Context())
				assert.Equal(t, len(cloud.Live()) == 1, test.lives)
			})
		})
	}
}
