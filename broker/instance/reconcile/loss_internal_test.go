package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type anything interface{ routing.Provider }

// labelled is a provider that is only asked who it is.
type labelled struct {
	anything
	label     string
	ephemeral bool
}

func (l *labelled) Label() string                { return l.label }
func (l *labelled) Description() sdk.Description { return sdk.Description{Ephemeral: l.ephemeral} }

type catalog struct {
	routing.Catalog
	providers []routing.Provider
}

func (c catalog) Providers() []routing.Provider { return c.providers }

// retiring is a registry that is only asked for providers that keep what they have.
type retiring struct {
	Registry
	providers []routing.Provider
}

func (r retiring) Retiring() []routing.Provider { return r.providers }

// After a loss of the journal nothing is made where something may be that nobody knows of.
func TestAfterALossNothingIsMadeBeforeItIsKnownWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, pool := &labelled{label: "a"}, &labelled{label: "b"}, &labelled{label: "pool", ephemeral: true}
		over, tasks := 0, background.NewGroup(hclog.NewNullLogger())
		r := New(Options{
			Catalog: catalog{providers: []routing.Provider{a, b, pool}}, Began: time.Now(), Tasks: tasks,
			Incomplete: func() { over++ },
		})
		refused := func(p routing.Provider, session string) {
			t.Helper()
			err := r.Complete(p, session)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
			e, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok && e.NoEffect && e.RetryAfter > 0, "another provider may be asked")
		}
		refused(a, "")
		assert.NilError(t, r.Complete(pool, ""), "what it had has ended with its process")
		refused(pool, "s") // which may have an instance at one of the others

		r.hasListed(a, time.Now())
		refused(a, "") // a list this early may lack what was just made
		time.Sleep(ListDelay)
		r.hasListed(a, time.Now())
		assert.NilError(t, r.Complete(a, ""))
		refused(a, "s")
		refused(b, "")

		time.Sleep(lossPatience)
		assert.NilError(t, r.Complete(a, "s"), "a session waits no longer for a cloud that does not answer")
		refused(b, "")
		assert.Equal(t, over, 0)
		r.hasListed(b, time.Now())
		r.hasListed(b, time.Now())
		tasks.Wait()
		assert.Equal(t, over, 1)
		assert.NilError(t, r.Complete(b, "s"))
	})
}

func TestWithoutALossNothingIsWaitedFor(t *testing.T) {
	a := &labelled{label: "a"}
	r := New(Options{Catalog: catalog{providers: []routing.Provider{a}}, Began: time.Now()})
	assert.NilError(t, r.Complete(a, "s"))
}

// What a replaced provider keeps is looked after as long as there is something.
func TestProvidersThatOnlyKeepAreAskedToo(t *testing.T) {
	now, before, removed := &labelled{label: "a"}, &labelled{label: "a"}, &labelled{label: "b"}
	r := New(Options{
		Catalog: catalog{providers: []routing.Provider{now}}, Registry: retiring{providers: []routing.Provider{before, now}},
	})
	assert.Equal(t, len(r.Providers()), 2)
	assert.Assert(t, r.Providers()[0] == now && r.Providers()[1] == before, "two of one label differ")
	assert.Assert(t, r.serves(now) && r.serves(before) && !r.serves(removed))
}

// asked counts the lists that it is asked for.
type asked struct {
	sdk.Provider
	lists int
}

func (a *asked) List(context.Context) ([]sdk.Instance, error) {
	a.lists++
	return nil, sdk.Errorf(sdk.CodeConnectionFailed, "no route")
}

func TestAListThatFailedIsNotKept(t *testing.T) {
	p, provider := &labelled{label: "a"}, &asked{}
	r := New(Options{})
	for range 2 {
		_, _, err := r.List(t.Context(), p, provider)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeConnectionFailed)
	}
	assert.Equal(t, provider.lists, 2)
	assert.Equal(t, len(r.lists), 0)
}
