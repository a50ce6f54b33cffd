package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// patient is a catalog whose requests bear with a provider for a while.
type patient struct {
	ranked
	patience instance.Patience
}

func (c patient) Offer(who tenant.Tenant) instance.Offer {
	offer := c.ranked.Offer(who)
	offer.Patience = c.patience
	return offer
}

// slow is a provider that is ready only some time after its making.
type slow struct {
	truthful
	from time.Time
	// hopeless says that it has failed repeatedly.
	hopeless bool
}

func (p *slow) Status() instance.Status {
	switch {
	case p.hopeless:
		return instance.Status{State: instance.StateUnavailable, Reason: "it has failed"}
	case time.Now().Before(p.from):
		return instance.Status{State: "starting", Reason: "starting"}
	default:
		return instance.Status{State: "ready", Ready: true}
	}
}

func (p *slow) Provider(ctx context.Context) (sdk.Provider, error) {
	if p.hopeless {
		return nil, sdk.Errorf(sdk.CodeNotInitialized, "it has failed")
	}
	select {
	case <-time.After(time.Until(p.from)):
		return p.truthful.Provider(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func slowly(name string, after time.Duration) *slow {
	return &slow{truthful: &instancetest.Provider{Name: name}, from: time.Now().Add(after)}
}

func TestAfterTheStartRequestsWaitForTheProviderThatIsAskedFirst(t *testing.T) {
	for name, test := range map[string]struct {
		first, second time.Duration // until they are ready
		hopeless      bool
		grace         time.Duration
		arrives       time.Duration
		by            string
		took          time.Duration
		awaited       bool
	}{
		"as long as its grace lasts":                  {first: 20 * time.Second, grace: 30 * time.Second, by: "first", took: 20 * time.Second, awaited: true},
		"no longer than that":                         {first: 40 * time.Second, grace: 30 * time.Second, by: "second", took: 30 * time.Second, awaited: true},
		"for the rest of it when they come later":     {first: 40 * time.Second, grace: 30 * time.Second, arrives: 25 * time.Second, by: "second", took: 5 * time.Second, awaited: true},
		"for a moment when it is over":                {first: time.Hour, grace: 30 * time.Second, arrives: 31 * time.Second, by: "second", took: time.Second},
		"for a moment without any":                    {first: 20 * time.Second, by: "second", took: time.Second},
		"not when it has failed repeatedly":           {hopeless: true, grace: 30 * time.Second, by: "second"},
		"though the next one is ready later":          {first: 20 * time.Second, second: 100 * time.Millisecond, grace: 30 * time.Second, by: "first", took: 20 * time.Second, awaited: true},
		"not much longer when the next becomes ready": {first: 50 * time.Second, second: 10 * time.Second, grace: 5 * time.Second, by: "second", took: 10 * time.Second, awaited: true},
		"no longer than a creation may take":          {first: time.Hour, grace: 2 * time.Hour, by: "second", took: 54 * time.Second, awaited: true},
		"of which nothing is left when it is ready":   {grace: 30 * time.Second, by: "first"},
		"also while the next one is not ready":        {first: 20 * time.Second, second: time.Hour, grace: 30 * time.Second, by: "first", took: 20 * time.Second, awaited: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := slowly("first", test.first), slowly("second", test.second)
				first.hopeless = test.hopeless
				s := instance.NewService(instance.Options{
					Catalog: patient{ranked{first, second}, instance.Patience{Start: test.grace}},
					Limits:  instancetest.Limits(), Logger: hclog.NewNullLogger(),
				})
				defer s.Shutdown(t.Context())
				time.Sleep(test.arrives) // of the bubble's clock
				awaited, waits := s.Awaited()
				assert.Equal(t, waits, test.awaited)
				assert.Assert(t, !waits || awaited.Label == "first" && time.Until(awaited.Until) == test.grace-test.arrives)
				began := time.Now()
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.NilError(t, err)
				assert.Equal(t, info.Provider, test.by)
				took := time.Since(began)
				assert.Assert(t, took >= test.took && took <= test.took+time.Second, "%s", took)
			})
		})
	}
}

func TestARequestsOwnDeadlineBoundsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instance.NewService(instance.Options{
			Catalog: patient{ranked{slowly("first", time.Hour), slowly("second", 0)}, instance.Patience{Start: time.Minute}},
			Limits:  instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := s.Create(ctx, acme, instance.CreateRequest{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Since(began), 3*time.Second)
	})
}

// A session that was placed by fallback says so for as long as it is there, after a
// restart too, and returns when its instance ends.
func TestASessionOfTheFallbackSaysSoAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		first, second := &instancetest.Provider{Name: "first", Cloud: true}, &instancetest.Provider{Name: "second", Cloud: true}
		first.Down = "told to be"
		s := serve(ranked{first, second}, m, instance.Past{}, nil)
		use := instance.RunRequest{ExecuteRequest: instance.ExecuteRequest{Code: "1", Language: "python"}, Session: "s"}
		placed := instance.Routing{Reason: "fallback", Tried: []instance.Tried{{Provider: "first", Code: sdk.CodeUnavailable}}}
		later := instance.Routing{Reason: "session", PlacedBy: "fallback", Tried: placed.Tried}

		made, err := s.Run(t.Context(), acme, use)
		assert.NilError(t, err)
		assert.DeepEqual(t, made.Routing, placed)
		first.Down = ""
		used, err := s.Run(t.Context(), acme, use)
		assert.NilError(t, err)
		assert.Equal(t, used.InstanceID, made.InstanceID)
		assert.DeepEqual(t, used.Routing, later)
		info, err := s.Get(t.Context(), acme, made.InstanceID)
		assert.NilError(t, err)
		assert.DeepEqual(t, info.Routing, placed)

		past := m.past()
		s.ShutdownKeeping(t.Context())
		s = serve(ranked{first, second}, m, past, nil)
		defer s.Shutdown(t.Context())
		assert.NilError(t, s.Reconcile(t.Context(), second, served(t, second)))
		used, err = s.Run(t.Context(), acme, use)
		assert.NilError(t, err)
		assert.Equal(t, used.InstanceID, made.InstanceID)
		assert.DeepEqual(t, used.Routing, later)

		assert.NilError(t, s.Destroy(t.Context(), acme, made.InstanceID))
		again, err := s.Run(t.Context(), acme, use)
		assert.NilError(t, err)
		assert.Equal(t, again.Provider, "first")
		assert.DeepEqual(t, again.Routing, instance.Routing{Reason: "active"})
	})
}

func served(t *testing.T, p instance.Provider) sdk.Provider {
	t.Helper()
	ready, err := p.Provider(t.Context())
	assert.NilError(t, err)
	return ready
}
