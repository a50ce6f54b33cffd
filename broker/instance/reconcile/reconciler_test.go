package reconcile_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/reconcile"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// owner is a provider that is only asked for by its identity.
type owner struct{ revision }

type revision interface{ routing.Provider }

// slow is a provider whose lists take a second, by the clock of the test's bubble.
type slow struct {
	sdk.Provider
	lists atomic.Int64
}

func (s *slow) List(ctx context.Context) ([]sdk.Instance, error) {
	s.lists.Add(1)
	select {
	case <-time.After(time.Second):
		return []sdk.Instance{{ID: "box"}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestAListBeganAfterItWasAskedForAndIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, one, other, provider := reconcile.New(reconcile.Options{}), &owner{}, &owner{}, &slow{}
		var asking sync.WaitGroup
		ask := func(p routing.Provider) {
			asked := time.Now()
			asking.Go(func() {
				have, began, err := r.List(t.Context(), p, provider)
				assert.Check(t, err)
				assert.Check(t, len(have) == 1 && !began.Before(asked), "asked at %v, began at %v", asked, began)
			})
		}
		ask(one)
		<-time.After(time.Second / 2) // the first list is under way
		for range 3 {
			ask(one)
		}
		synctest.Wait()
		bounded, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err := r.List(bounded, one, provider)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "who cannot wait does not")
		asking.Wait()
		assert.Equal(t, provider.lists.Load(), int64(2), "one that began too early for three, and one for these")

		ask(one)
		ask(other)
		synctest.Wait()
		assert.Equal(t, provider.lists.Load(), int64(4), "each provider has its own, and nothing is kept")
		asking.Wait()
	})
}
