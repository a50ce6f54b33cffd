package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A session gets another instance while the end of the one before is not confirmed. A
// broker that dies then has told its owner of the second one.
func TestAfterACrashTheSessionHasTheInstanceThatItGotLast(t *testing.T) {
	for name, elsewhere := range map[string]bool{"at the same provider": false, "at the next one": true} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // the order of the records is that of a map
				synctest.Test(t, func(t *testing.T) { lastOf(t, elsewhere) })
			}
		})
	}
}

func lastOf(t *testing.T, elsewhere bool) {
	cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other", Cloud: true}
	cloud.OnDestroy = func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}
	full := false
	cloud.OnCreate = func(context.Context, sdk.CreateRequest) error {
		if full {
			return sdk.Errorf(sdk.CodeQuotaExceeded, "full")
		}
		return nil
	}
	m, create := &memory{}, instance.CreateRequest{Session: "s"}
	first := serve(ranked{cloud, other}, m, instance.Past{}, nil)
	defer first.Shutdown(t.Context())
	before, _, err := first.Create(t.Context(), acme, create)
	assert.NilError(t, err)
	go func() { _ = first.Destroy(t.Context(), acme, before.ID.String()) }()
	synctest.Wait()
	full = elsewhere
	last, created, err := first.Create(t.Context(), acme, create)
	assert.NilError(t, err)
	assert.Assert(t, created)

	// Here it dies.
	back, otherBack := reborn(t, cloud), reborn(t, other)
	next := serve(ranked{back, otherBack}, &memory{}, m.past(), nil)
	defer next.Shutdown(t.Context())
	for _, p := range []*instancetest.Provider{otherBack, back} {
		ready, err := p.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, next.Reconcile(t.Context(), p, ready))
	}
	again, created, err := next.Create(t.Context(), acme, create)
	assert.NilError(t, err)
	assert.Equal(t, again.ID, last.ID)
	assert.Assert(t, !created)
	_, err = next.Get(t.Context(), acme, before.ID.String())
	assertCode(t, err, sdk.CodeNotFound)
	assert.Equal(t, len(back.Live())+len(otherBack.Live()), 1)
}

// reborn is the same cloud for the next process of the broker.
func reborn(t *testing.T, cloud *instancetest.Provider) *instancetest.Provider {
	t.Helper()
	ready, err := cloud.Provider(t.Context())
	assert.NilError(t, err)
	listed, err := ready.List(t.Context())
	assert.NilError(t, err)
	back := &instancetest.Provider{Name: cloud.Name, Cloud: true}
	for _, i := range listed {
		back.Adopt(i)
	}
	return back
}

// What an earlier broker left counts until it is destroyed, however many brokers die
// over that: for a provider that is ready before the one that has it as well.
func TestWhatIsLeftOverCountsForTheBrokerAfterTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		east, west := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "west", Cloud: true}
		left := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Made, r.OneShot = "", true })
		in(east, left.ID.Instance, brokerID)
		failing := true
		east.OnDestroy = func(context.Context, string) error {
			if failing {
				return sdk.Errorf(sdk.CodeUnavailable, "the cloud has trouble")
			}
			return nil
		}
		m := &memory{}
		assert.NilError(t, m.Write(t.Context(), left))
		next := serve(ranked{east, west}, m, m.past(), nil)
		defer next.Shutdown(t.Context())
		reconciled(t, next, east)
		synctest.Wait()

		// Here it dies, too.
		keeper := oneEach(t)
		last := serve(ranked{west, east}, m, m.past(), keeper)
		defer last.Shutdown(t.Context())
		_, _, err := last.Create(t.Context(), acme, instance.CreateRequest{Provider: "west"})
		assert.Equal(t, limitOf(err), quota.MaxInstances)
		failing = false
		reconciled(t, last, east)
		synctest.Wait()
		assert.Check(t, is.Len(m.past().Records, 0))
		_, _, err = last.Create(t.Context(), acme, instance.CreateRequest{Provider: "west"})
		assert.NilError(t, err)
	})
}
