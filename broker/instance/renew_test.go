package instance_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// time.Sleep in this file is of the bubble's clock.

func TestWhatARenewalGrants(t *testing.T) {
	for name, test := range map[string]struct {
		ttl     time.Duration
		granted time.Duration // after the creation; the renewal comes after 10 s
	}{
		"its own ttl by default":            {0, 70 * time.Second},
		"a longer one":                      {time.Hour, time.Hour + 10*time.Second},
		"a shorter one":                     {time.Second, 11 * time.Second},
		"no more than the maximum lifetime": {24 * time.Hour, 24 * time.Hour},
		"nor for the longest ttl there is":  {math.MaxInt64, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				info := create(t, s, instance.CreateRequest{TTL: time.Minute})
				time.Sleep(10 * time.Second)
				for range 2 { // to send it again does no harm
					renewed, err := s.Renew(t.Context(), acme, info.ID.String(), test.ttl)
					assert.NilError(t, err)
					assert.Equal(t, renewed.ExpiresAt.Sub(info.CreatedAt), test.granted)
					assert.Equal(t, renewed.LastUsed, time.Now())
					assert.Equal(t, renewed.TTL, time.Minute, "its own ttl stays")
					assert.DeepEqual(t, get(t, s, info), renewed)
				}
				time.Sleep(time.Until(info.CreatedAt.Add(test.granted)) - 1)
				get(t, s, info)
				time.Sleep(1 + time.Second)
				synctest.Wait()
				assert.Check(t, cmp.Len(first.Live(), 0))
			})
		})
	}
}

func TestRenewalsThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		who  tenant.Tenant
		wait time.Duration
		ttl  time.Duration
		code sdk.Code
	}{
		"somebody else's instance":     {umbrella, 0, 0, sdk.CodeNotFound},
		"one whose time is just over":  {acme, time.Minute, 0, sdk.CodeNotFound},
		"one whose time was over":      {acme, time.Hour, 0, sdk.CodeNotFound},
		"a ttl that would turn it off": {acme, 0, -1, sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
				info := create(t, s, instance.CreateRequest{TTL: time.Minute})
				time.Sleep(test.wait)
				_, err := s.Renew(t.Context(), test.who, info.ID.String(), test.ttl)
				assertCode(t, err, test.code)
				if test.code == sdk.CodeNotFound {
					assert.ErrorContains(t, err, "create a new one")
				}
			})
		})
	}
	t.Run("at a shutdown, which ends everything", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *instance.Service, _, _ *instancetest.Provider) {
			info := create(t, s, instance.CreateRequest{})
			s.Drain(t.Context())
			_, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
			assertCode(t, err, sdk.CodeUnavailable)
		})
	})
}

// ends records when the provider destroys its instance. An instance is destroyed
// once: the first time counts and the others are told.
type ends struct {
	times atomic.Int32
	first time.Time
}

func watchEnds(p *instancetest.Provider) *ends {
	var e ends
	p.OnDestroy = func(context.Context, string) error {
		if e.times.Add(1) == 1 {
			e.first = time.Now()
		}
		return nil
	}
	return &e
}

// racers is how many do the same thing at the same instant.
const racers = 20

// The instance is made when the reaper starts, so that its end falls on one of
// the reaper's ticks: those who renew and the reaper wake at the same instant of
// the bubble's clock, in an order that changes from run to run.
func TestARenewalThatWasAcceptedIsNeverInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		idle, offset time.Duration
		code         sdk.Code
	}{
		"the last moment of the ttl":   {time.Hour, -1, ""},
		"the end of the ttl":           {time.Hour, 0, sdk.CodeNotFound},
		"the last moment of idleness":  {time.Minute, -1, ""},
		"the end of the idle limit":    {time.Minute, 0, sdk.CodeNotFound},
		"a moment after it was reaped": {time.Hour, 1, sdk.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
				destroyed := watchEnds(first)
				info := create(t, s, instance.CreateRequest{TTL: time.Minute, Idle: test.idle})
				at := info.ExpiresAt.Add(test.offset)
				var group sync.WaitGroup
				for range racers {
					group.Go(func() {
						time.Sleep(time.Until(at))
						renewed, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
						assert.Check(t, cmp.Equal(sdk.CodeOf(err), test.code))
						if err == nil {
							assert.Check(t, cmp.Equal(renewed.ExpiresAt, at.Add(time.Minute)))
						}
					})
				}
				group.Wait()
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, destroyed.times.Load(), int32(1))
				if test.code == "" {
					assert.Check(t, !destroyed.first.Before(at.Add(time.Minute)), "destroyed after %s", destroyed.first.Sub(info.CreatedAt))
				} else {
					assert.Equal(t, destroyed.first, info.ExpiresAt)
				}
			})
		})
	}
}

// An execution ends at the instant of the tick; whoever comes first, execution,
// renewal or reaper, the instance stays.
func TestARenewalRacesTheReaperAndTheEndOfAnExecution(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		destroyed := watchEnds(first)
		info := create(t, s, instance.CreateRequest{TTL: time.Minute, Idle: time.Minute})
		lasting(first, time.Minute)
		for round := range 20 {
			end := info.CreatedAt.Add(time.Duration(round+1) * time.Minute)
			var group sync.WaitGroup
			group.Go(func() { assert.Check(t, execute(t, s, info)) })
			for range racers {
				group.Go(func() {
					time.Sleep(time.Until(end))
					renewed, err := s.Renew(t.Context(), acme, info.ID.String(), 0)
					assert.Check(t, err)
					assert.Check(t, cmp.Equal(renewed.ExpiresAt, end.Add(time.Minute)))
				})
			}
			group.Wait()
			synctest.Wait()
			assert.Equal(t, get(t, s, info).ExpiresAt, end.Add(time.Minute))
		}
		assert.Equal(t, destroyed.times.Load(), int32(0))
	})
}

func TestASlowDestructionHoldsNobodyUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *instance.Service, first, _ *instancetest.Provider) {
		first.OnDestroy = func(context.Context, string) error {
			time.Sleep(20 * time.Second)
			return nil
		}
		slow := create(t, s, instance.CreateRequest{Session: "s1", TTL: time.Minute})
		kept := create(t, s, instance.CreateRequest{Session: "s2", TTL: time.Minute})
		late := create(t, s, instance.CreateRequest{Session: "s3", TTL: time.Minute + 10*time.Second})
		time.Sleep(time.Until(slow.ExpiresAt) - 1)
		_, err := s.Renew(t.Context(), acme, kept.ID.String(), 0)
		assert.NilError(t, err)
		time.Sleep(time.Nanosecond)
		synctest.Wait() // the reaper was there, and the destruction has begun

		began := time.Now()
		_, err = s.Renew(t.Context(), acme, slow.ID.String(), 0)
		assertCode(t, err, sdk.CodeNotFound)
		renewed, err := s.Renew(t.Context(), acme, kept.ID.String(), 0)
		assert.NilError(t, err)
		assert.Equal(t, renewed.ExpiresAt, began.Add(time.Minute))
		next := create(t, s, instance.CreateRequest{Session: "s1"})
		assert.Check(t, next.ID != slow.ID)
		assert.Equal(t, time.Since(began), time.Duration(0), "nobody waited")
		assert.Check(t, cmp.Len(first.Live(), 4), "and the old one is still there")

		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 3))
		_, err = s.Get(t.Context(), acme, late.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		time.Sleep(10 * time.Second) // the second destruction began on time
		synctest.Wait()
		assert.Check(t, cmp.Len(first.Live(), 2))
		get(t, s, kept)
	})
}
