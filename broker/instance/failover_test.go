package instance_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ranked is a catalog whose first provider is active and has the others as fallback.
type ranked []instance.Provider

func (c ranked) Providers() []instance.Provider { return c }

func (c ranked) Offer(who tenant.Tenant) instance.Offer {
	offer := instance.Offer{Providers: c, Tenant: who, Active: c[0].Label()}
	for _, p := range c[1:] {
		offer.Fallback = append(offer.Fallback, p.Label())
	}
	return offer
}

// failure is how a creation fails.
type failure struct {
	name string
	// code that the provider answers with; "" for hang or gone.
	code sdk.Code
	hang bool // until the call's time is over
	gone bool // the plugin ended
	// never: it speaks of what comes before any effect.
	never bool
	// final: another provider would answer the same.
	final bool
}

var failures = []failure{
	{name: "SB001", code: sdk.CodeNotInitialized, never: true},
	{name: "SB008", code: sdk.CodeQuotaExceeded, never: true},
	{name: "SB011", code: sdk.CodeNotAuthenticated, never: true},
	{name: "SB010", code: sdk.CodeInvalidRequest, never: true, final: true},
	{name: "SB003 without effect", code: sdk.CodeConnectionFailed, never: true},
	{name: "SB000", code: sdk.CodeInternal},
	{name: "SB003", code: sdk.CodeConnectionFailed},
	{name: "SB004", code: sdk.CodeCreateFailed},
	{name: "SB009", code: sdk.CodeUnavailable},
	{name: "a hang", hang: true},
	{name: "the end of the plugin", gone: true},
}

// answers are what the list says: at once, only after some failures, without what is
// there for a while, or nothing ever.
var answers = []string{"answers", "answers late", "shows late", "never answers"}

// fallbacks are the states of the second provider. Nobody is left to ask after it.
var fallbacks = []string{"ready", "down", "full", "hangs", "fails after the effect"}

// truthful is what a liar is otherwise.
type truthful = instance.Provider

// liar is a provider whose list shows an instance only some time after its creation.
type liar struct {
	truthful
	hidden *atomic.Bool
}

type listing struct {
	sdk.Provider
	hidden *atomic.Bool
}

func (l *liar) Provider(ctx context.Context) (sdk.Provider, error) {
	p, err := l.truthful.Provider(ctx)
	if err != nil {
		return nil, err
	}
	return listing{p, l.hidden}, nil
}

func (l listing) List(ctx context.Context) ([]sdk.Instance, error) {
	list, err := l.Provider.List(ctx)
	if l.hidden.Load() {
		list = nil
	}
	return list, err
}

// Each cell ends in exactly one instance, or in a refusal with none.
func TestEveryFailOverEndsInOneInstanceOrARefusalWithNone(t *testing.T) {
	cells, served, adopted, refusedCells := 0, 0, 0, 0
	for _, f := range failures {
		for _, after := range []bool{false, true} {
			if after && f.never {
				continue
			}
			for _, list := range answers {
				for _, fallback := range fallbacks {
					for _, cloud := range []bool{true, false} {
						if list == "shows late" && !cloud {
							continue // its own list is never late
						}
						cells++
						name := fmt.Sprintf("%s after=%v list %s fallback %s cloud=%v", f.name, after, list, fallback, cloud)
						t.Run(name, func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) {
								switch by := cell(t, f, after, list, fallback, cloud); by {
								case "":
									refusedCells++
								case "first":
									adopted++
								default:
									served++
								}
							})
						})
					}
				}
			}
		}
	}
	t.Logf("%d cells: %d served by the fallback, %d by what was found, %d refused", cells, served, adopted, refusedCells)
	assert.Assert(t, cells >= 500)
	assert.Assert(t, served > 0 && adopted > 0 && refusedCells > 0)
}

func cell(t *testing.T, f failure, after bool, list, fallback string, cloud bool) (by string) {
	hidden := &atomic.Bool{}
	first := &instancetest.Provider{Name: "first", Cloud: cloud}
	second := &instancetest.Provider{Name: "second"}
	broken := &atomic.Bool{}
	broken.Store(true)
	first.OnCreate = func(ctx context.Context, req sdk.CreateRequest) error {
		if !broken.Load() {
			return nil
		}
		if after && (cloud || !f.gone) {
			first.Adopt(sdk.Instance{ID: "fake-" + req.Labels[sdk.LabelInstance], Labels: req.Labels})
		}
		if list == "shows late" {
			hidden.Store(true)
			time.AfterFunc(20*time.Second, func() { hidden.Store(false) })
		}
		switch {
		case f.hang:
			<-ctx.Done()
			return ctx.Err()
		case f.gone:
			return sdk.Errorf(sdk.CodeUnavailable, "provider %q: %w during the call", "first", wire.ErrPluginGone)
		default:
			e := sdk.Errorf(f.code, "told to")
			e.NoEffect = f.never
			return e
		}
	}
	var asked atomic.Int64
	first.OnList = func(context.Context) error {
		n := asked.Add(1)
		if broken.Load() && (list == "never answers" || list == "answers late" && n <= 5) {
			return sdk.Errorf(sdk.CodeConnectionFailed, "no answer")
		}
		return nil
	}
	switch fallback {
	case "down":
		second.Down = "told to be"
	case "full":
		second.OnCreate = func(context.Context, sdk.CreateRequest) error {
			return sdk.Errorf(sdk.CodeQuotaExceeded, "full")
		}
	case "hangs":
		second.OnCreate = func(ctx context.Context, _ sdk.CreateRequest) error {
			<-ctx.Done()
			return ctx.Err()
		}
	case "fails after the effect":
		second.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
			second.Adopt(sdk.Instance{ID: "fake-" + req.Labels[sdk.LabelInstance], Labels: req.Labels})
			return sdk.Errorf(sdk.CodeCreateFailed, "told to")
		}
	}
	keeper, err := quota.NewKeeper(quota.Options{})
	assert.NilError(t, err)
	s := instance.NewService(instance.Options{
		Catalog: patient{ranked{&liar{first, hidden}, second}, instance.Patience{Unclear: 5 * time.Second}},
		Limits:  instancetest.Limits(), Logger: hclog.NewNullLogger(), Quotas: keeper,
	})
	defer s.Shutdown(t.Context())
	create := instance.CreateRequest{Key: "k-1"}
	began := time.Now()
	info, _, err := s.Create(t.Context(), acme, create)
	live := func() int { return len(first.Live()) + len(second.Live()) }
	// Whatever is there counts, and nothing is the session's but what it was given.
	counts := func() {
		assert.Assert(t, usedOf(keeper, "acme", quota.MaxInstances) >= float64(live()), "first has %v, second %v", first.Live(), second.Live())
	}
	counts()
	if err == nil {
		by = info.Provider
		if by == "second" {
			assert.Equal(t, len(second.Live()), 1)
			if f.never {
				assert.Equal(t, time.Since(began), time.Duration(0), "a known refusal is not waited for")
			} else if !f.hang {
				assert.Assert(t, time.Since(began) <= 5*time.Second, "it took %s", time.Since(began))
			}
		} else {
			assert.Equal(t, live(), 1)
		}
		if by == "second" {
			assert.Equal(t, info.Routing.Reason, "fallback")
			assert.Equal(t, len(info.Routing.Tried), 1)
			assert.Equal(t, info.Routing.Tried[0].Provider, "first")
		}
		// Who asks again gets the same one.
		again, created, err := s.Create(t.Context(), acme, create)
		assert.NilError(t, err)
		assert.Assert(t, !created && again.ID == info.ID)
	} else {
		coded, typed := errors.AsType[*sdk.Error](err)
		assert.Assert(t, typed, "%v", err)
		assert.Assert(t, coded.Code != "")
		if fallback != "fails after the effect" { // whose remains take a moment to go
			assert.Equal(t, len(second.Live()), 0)
		}
		assert.Assert(t, fallback != "ready" || f.final, "refused with %v although the fallback works", err)
		if list == "never answers" && !f.never && fallback == "down" {
			// Nor is it made once more for who asks again, as long as nobody knows.
			_, _, err := s.Create(t.Context(), acme, create)
			assert.Assert(t, err != nil && len(first.Created()) == 1)
		}
	}
	// What a lost answer left goes when the provider speaks again.
	broken.Store(false)
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	counts()
	assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), float64(live()))
	want := 0
	if err == nil {
		want = 1
	}
	assert.Equal(t, live(), want, "after a while first has %v, second %v", first.Live(), second.Live())
	return by
}

func TestWhatEndsWithItsPluginIsNotWaitedForWhenThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second"}
		first.OnCreate = func(context.Context, sdk.CreateRequest) error {
			first.OnWait = func(context.Context) error { return sdk.Errorf(sdk.CodeUnavailable, "it is down") }
			return sdk.Errorf(sdk.CodeUnavailable, "%w during the call", wire.ErrPluginGone)
		}
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		began := time.Now()
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "second")
		assert.Assert(t, time.Since(began) < time.Second)
	})
}

// One request for a session looks for a provider at a time.
func TestManyRequestsForASessionFindOneProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second"}
		var n atomic.Int64
		first.OnCreate = func(context.Context, sdk.CreateRequest) error {
			time.Sleep(time.Second)
			if n.Add(1) == 1 {
				return sdk.Errorf(sdk.CodeCreateFailed, "the first time")
			}
			return nil
		}
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		ids := make(chan string)
		for i := range 50 {
			go func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "one"})
				assert.Check(t, err)
				ids <- info.ID.String()
			}()
		}
		seen := map[string]bool{}
		for range 50 {
			seen[<-ids] = true
		}
		assert.Equal(t, len(seen), 1)
		assert.Equal(t, len(first.Live())+len(second.Live()), 1)
	})
}

func TestAProviderThatDoesNotFitIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &instancetest.Provider{Name: "first"}
		second := &instancetest.Provider{Name: "second", Capabilities: []sdk.Capability{sdk.CapabilityFiles}}
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		files := instance.CreateRequest{Capabilities: []sdk.Capability{sdk.CapabilityFiles}}
		info, _, err := s.Create(t.Context(), acme, files)
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "second")
		assert.DeepEqual(t, info.Routing, instance.Routing{
			Reason: "fallback", Tried: []instance.Tried{{Provider: "first", Code: sdk.CodeNotSupported}},
		})
		files.Provider = "first"
		_, _, err = s.Create(t.Context(), acme, files)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Languages: []string{"cobol"}})
		assert.ErrorContains(t, err, "cobol")
	})
}

// A mistake of the request is told as one, however the providers are.
func TestAMistakeIsToldWhateverTheProvidersAre(t *testing.T) {
	for name, req := range map[string]instance.CreateRequest{
		"a capability that there is not": {Capabilities: []sdk.Capability{sdk.CapabilityFiles, "fliles"}},
		"a language that nobody runs":    {Languages: []string{"cobol"}},
		"another language":               {Language: "cobol"},
		"a template that nobody has":     {Template: "cobol"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second"}
				first.OnWait = func(context.Context) error { return sdk.Errorf(sdk.CodeNotInitialized, "it is down") }
				second.OnWait = first.OnWait
				s := instance.NewService(instance.Options{
					Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
				})
				defer s.Shutdown(t.Context())
				_, _, err := s.Create(t.Context(), acme, req)
				assertCode(t, err, sdk.CodeInvalidRequest)
				_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Languages: []string{"python"}})
				assertCode(t, err, sdk.CodeNotInitialized)
			})
		})
	}
}

// A capability that a provider names is one, whether or not this broker knows it.
func TestACapabilityOfAProviderIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second", Capabilities: []sdk.Capability{"teleport"}}
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Capabilities: []sdk.Capability{"teleport"}})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "second")
	})
}

func TestAnOpenCircuitSendsNewInstancesElsewhereButNeverNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "second"}
		first.OnCreate = func(context.Context, sdk.CreateRequest) error { return sdk.Errorf(sdk.CodeUnavailable, "no") }
		s := instance.NewService(instance.Options{
			Catalog: ranked{first, second}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		})
		defer s.Shutdown(t.Context())
		for range 10 {
			info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{})
			assert.NilError(t, err)
			assert.Equal(t, info.Provider, "second")
			assert.Equal(t, info.Routing.Tried[0], instance.Tried{Provider: "first", Code: sdk.CodeUnavailable})
		}
		assert.Equal(t, len(first.Created()), 3)
		first.OnCreate = nil
		info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Provider: "first"})
		assert.NilError(t, err, "who names it gets it")
		assert.Equal(t, info.Routing.Reason, "requested")
		info, _, err = s.Create(t.Context(), acme, instance.CreateRequest{})
		assert.NilError(t, err)
		assert.Equal(t, info.Provider, "first", "it has worked again")
	})
}
