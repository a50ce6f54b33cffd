package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// time.Sleep in this file is of the bubble's clock.

// lasting makes the provider's executions last so long.
func lasting(p *instancetest.Provider, d time.Duration) {
	p.OnExecute = func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
		time.Sleep(d)
		return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
	}
}

func execute(t *testing.T, s *instance.Service, info instance.Info) error {
	_, err := s.Execute(t.Context(), acme, info.ID.String(), instance.ExecuteRequest{Language: "python"})
	return err
}

func create(t *testing.T, s *instance.Service, req instance.CreateRequest) instance.Info {
	t.Helper()
	info, created, err := s.Create(t.Context(), acme, req)
	assert.NilError(t, err)
	assert.Assert(t, created)
	return info
}

func get(t *testing.T, s *instance.Service, info instance.Info) instance.Info {
	t.Helper()
	info, err := s.Get(t.Context(), acme, info.ID.String())
	assert.NilError(t, err)
	return info
}

func TestAnInstanceSaysWhenItExpires(t *testing.T) {
	limits := instancetest.Limits()
	limits.DefaultTTL, limits.MaxIdle, limits.MaxLifetime = time.Minute, time.Hour, 2*time.Hour
	for name, test := range map[string]struct {
		req       instance.CreateRequest
		ownLife   time.Duration
		ttl, idle time.Duration
		expires   time.Duration
	}{
		"the operator's limits": {
			instance.CreateRequest{},
			0,
			time.Minute, time.Hour, time.Minute,
		},
		"those of its creator": {
			instance.CreateRequest{TTL: 2 * time.Hour, Idle: time.Second},
			0,
			2 * time.Hour, time.Second, 2 * time.Hour,
		},
		"a provider that ends it earlier by itself": {
			instance.CreateRequest{},
			10 * time.Second,
			time.Minute, time.Hour, 10 * time.Second,
		},
		"a provider that would end it later": {
			instance.CreateRequest{},
			time.Hour,
			time.Minute, time.Hour, time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				first.OwnLife = test.ownLife
				first.OnCreate = func(context.Context, sdk.CreateRequest) error {
					time.Sleep(10 * time.Second) // which is not part of its life
					return nil
				}
				info := create(t, s, test.req)
				assert.Equal(t, info.CreatedAt, time.Now())
				assert.Equal(t, info.ExpiresAt.Sub(info.CreatedAt), test.expires)
				assert.Equal(t, info.TTL, test.ttl)
				assert.Equal(t, info.Idle, test.idle)
				assert.DeepEqual(t, get(t, s, info), info)
			})
		})
	}
}

func TestAnExecutionLeavesTheWholeTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{TTL: time.Minute})
		lasting(first, 3*time.Minute)
		var group sync.WaitGroup
		group.Go(func() { assert.Check(t, execute(t, s, info)) })
		time.Sleep(2 * time.Minute)
		assert.Equal(t, get(t, s, info).ExpiresAt, time.Now().Add(time.Minute), "it ends in a minute from now at the earliest")
		group.Wait()
		assert.Equal(t, get(t, s, info).ExpiresAt, info.CreatedAt.Add(4*time.Minute))
	})
}

func TestAnExecutionTakesNothingOfALongerTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{TTL: time.Minute})
		renewed, err := s.Renew(t.Context(), acme, info.ID.String(), time.Hour)
		assert.NilError(t, err)
		assert.NilError(t, execute(t, s, info))
		assert.Equal(t, get(t, s, info).ExpiresAt, renewed.ExpiresAt)
	})
}

func TestASessionThatIsAskedForAgainLeavesTheWholeTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
		made := create(t, s, instance.CreateRequest{Session: "s1", TTL: time.Minute})
		time.Sleep(time.Minute - 1)
		again, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
		assert.NilError(t, err)
		assert.Assert(t, !created)
		assert.Equal(t, again.ID, made.ID)
		assert.Equal(t, again.ExpiresAt, time.Now().Add(time.Minute))
	})
}

func TestNothingOutlivesTheMaximumLifetime(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxLifetime = 10 * time.Minute
	for name, keep := range map[string]func(t *testing.T, s *instance.Service, info instance.Info) error{
		"by use": execute,
		"by renewal": func(_ *testing.T, s *instance.Service, info instance.Info) error {
			_, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				info := create(t, s, instance.CreateRequest{TTL: 4 * time.Minute})
				end := info.CreatedAt.Add(10 * time.Minute)
				for range 9 {
					time.Sleep(time.Minute)
					assert.NilError(t, keep(t, s, info))
				}
				assert.Equal(t, get(t, s, info).ExpiresAt, end)
				time.Sleep(time.Until(end))
				assertCode(t, keep(t, s, info), sdk.CodeNotFound)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
			})
		})
	}
}

func TestWhatRunsAtTheMaximumLifetimeMayFinish(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxLifetime = 10 * time.Minute
	inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{Session: "s1", TTL: 10 * time.Minute})
		lasting(first, 8*time.Minute)
		time.Sleep(5 * time.Minute)
		var group sync.WaitGroup
		group.Go(func() { assert.Check(t, execute(t, s, info)) })
		time.Sleep(4 * time.Minute)
		group.Go(func() { assert.Check(t, execute(t, s, info)) }) // ends last, at 17 minutes
		time.Sleep(time.Minute)

		assertCode(t, execute(t, s, info), sdk.CodeNotFound)
		_, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
		assertCode(t, err, sdk.CodeNotFound)
		next := create(t, s, instance.CreateRequest{Session: "s1"})
		assert.Check(t, next.ID != info.ID, "the session goes on in a new instance")
		assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 1))
		assert.Check(t, cmp.Len(first.Live(), 2))
		assert.NilError(t, s.Destroy(t.Context(), acme, next.ID.String()))

		time.Sleep(7*time.Minute - 1)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 1))
		group.Wait()
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 0))
	})
}

func TestTheProviderNeverEndsAnInstanceBeforeTheBroker(t *testing.T) {
	limits := instancetest.Limits()
	inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnCreate = func(context.Context, sdk.CreateRequest) error {
			time.Sleep(limits.CreateTimeout - 1)
			return nil
		}
		asked := time.Now()
		info := create(t, s, instance.CreateRequest{TTL: time.Minute})
		last := info.CreatedAt.Add(limits.MaxLifetime + limits.MaxTimeout) // the end of the last execution
		assert.Check(t, asked.Add(first.Created()[0].TTL).After(last))
	})
}

func TestTheIdleLimit(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxIdle = 2 * time.Minute
	uses := map[string]func(t *testing.T, s *instance.Service, info instance.Info){
		"no use": func(*testing.T, *instance.Service, instance.Info) {},
		"a look is no use": func(t *testing.T, s *instance.Service, info instance.Info) {
			get(t, s, info)
			s.List(acme, instance.ListRequest{})
		},
		"an execution": func(t *testing.T, s *instance.Service, info instance.Info) {
			assert.NilError(t, execute(t, s, info))
		},
		"a renewal": func(t *testing.T, s *instance.Service, info instance.Info) {
			_, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
			assert.NilError(t, err)
		},
		"asking for the session": func(t *testing.T, s *instance.Service, _ instance.Info) {
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s1"})
			assert.NilError(t, err)
		},
	}
	for name, use := range uses {
		for idle, limit := range map[time.Duration]time.Duration{30 * time.Second: 30 * time.Second, 0: limits.MaxIdle} {
			t.Run(name+", limit "+limit.String(), func(t *testing.T) {
				inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
					info := create(t, s, instance.CreateRequest{Session: "s1", TTL: time.Hour, Idle: idle})
					time.Sleep(limit / 2)
					use(t, s, info)
					last := get(t, s, info).LastUsed
					time.Sleep(time.Until(last.Add(limit)) - 1)
					synctest.Wait()
					assert.Check(t, cmp.Len(first.Live(), 1))
					time.Sleep(time.Nanosecond)
					_, err := s.Get(t.Context(), acme, info.ID.String())
					assertCode(t, err, sdk.CodeNotFound)
					synctest.Wait()
					assert.Check(t, cmp.Len(first.Live(), 0))
				})
			})
		}
	}
}

func TestAnInstanceIsNotIdleWhileItRunsCode(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		info := create(t, s, instance.CreateRequest{TTL: time.Hour, Idle: time.Second})
		lasting(first, time.Minute)
		assert.NilError(t, execute(t, s, info))
		assert.Equal(t, get(t, s, info).LastUsed, time.Now())
	})
}

// The reaper comes once a second; nobody notices.
func TestAnInstanceWhoseTimeIsOverIsGoneBeforeItIsReaped(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, s *instance.Service, info instance.Info) error{
		"get": func(_ *testing.T, s *instance.Service, info instance.Info) error {
			_, err := s.Get(t.Context(), acme, info.ID.String())
			return err
		},
		"renew": func(_ *testing.T, s *instance.Service, info instance.Info) error {
			_, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
			return err
		},
		"execute": execute,
		"destroy after list": func(t *testing.T, s *instance.Service, info instance.Info) error {
			assert.Check(t, cmp.Len(s.List(acme, instance.ListRequest{}).Instances, 0))
			synctest.Wait()
			return s.Destroy(t.Context(), acme, info.ID.String())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				info := create(t, s, instance.CreateRequest{TTL: time.Millisecond})
				time.Sleep(time.Millisecond)
				assert.Check(t, cmp.Len(first.Live(), 1))
				assertCode(t, call(t, s, info), sdk.CodeNotFound)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
			})
		})
	}
	t.Run("its session gets a new one, where new ones are made", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
			create(t, s, instance.CreateRequest{Session: "s1", Provider: "second", TTL: time.Millisecond})
			time.Sleep(time.Millisecond)
			assert.Equal(t, create(t, s, instance.CreateRequest{Session: "s1"}).Provider, "first")
		})
	})
	t.Run("a session that names its provider gets a new one there", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
			req := instance.CreateRequest{Session: "s1", Provider: "second", TTL: time.Millisecond}
			old := create(t, s, req)
			time.Sleep(time.Millisecond)
			assert.Check(t, create(t, s, req).ID != old.ID)
		})
	})
}

func TestLifetimesThatCannotBeHad(t *testing.T) {
	limits := instancetest.Limits()
	limits.MaxIdle = time.Hour
	for name, test := range map[string]struct {
		req    instance.CreateRequest
		field  string
		detail string
	}{
		"a negative ttl":               {instance.CreateRequest{TTL: -1}, "ttl", "at most 86400 seconds"},
		"a ttl above the lifetime":     {instance.CreateRequest{TTL: 24*time.Hour + 1}, "ttl", "at most 86400 seconds"},
		"a negative idle limit":        {instance.CreateRequest{Idle: -1}, "idle", "at most 3600 seconds"},
		"an idle limit above the most": {instance.CreateRequest{Idle: time.Hour + 1}, "idle", "at most 3600 seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, limits, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				_, _, err := s.Create(t.Context(), acme, test.req)
				assertCode(t, err, sdk.CodeInvalidRequest)
				assertField(t, err, test.field)
				assert.ErrorContains(t, err, test.detail)
				assert.Check(t, cmp.Len(first.Created(), 0))
			})
		})
	}
}
