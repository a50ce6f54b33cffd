package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAPlaceCountsAmongTheSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newPool(t, f, 3, 4)
		synctest.Wait()
		assert.Equal(t, f.count(), 3)
		// The second takes the room of one that is ready.
		for range 2 {
			assert.NilError(t, p.Place(t.Context(), pool.Request{Patience: time.Minute}))
		}
		synctest.Wait()
		assert.Equal(t, f.count(), 2)
		assert.Equal(t, p.Stats().InUse, 2)
		for range 2 {
			assert.NilError(t, p.Place(t.Context(), pool.Request{Patience: time.Minute}))
		}
		synctest.Wait()
		assert.Equal(t, f.count(), 0, "there is room for nothing else")

		none := time.Duration(0)
		err := p.Place(t.Context(), pool.Request{Patience: time.Minute, MaxQueue: &none})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded))
		err = p.Place(t.Context(), pool.Request{Patience: time.Second})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeCreateFailed))
		_, err = p.Acquire(t.Context(), pool.Request{Template: "bash", Patience: time.Second})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeCreateFailed))

		got := make(chan error, 1)
		go func() { got <- p.Place(t.Context(), pool.Request{Patience: time.Minute}) }()
		synctest.Wait()
		assert.Check(t, is.Len(got, 0))
		p.Release()
		assert.NilError(t, <-got)
		for range 4 {
			p.Release()
		}
		synctest.Wait()
		assert.Equal(t, f.count(), 3, "what was given back is filled again")
		use(t, p, "bash")
	})
}

func TestWhoGivesUpAPlaceLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		p := newPool(t, f, 0, 1)
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			assert.NilError(t, p.Place(t.Context(), pool.Request{Patience: time.Minute}))
			got := make(chan error, 1)
			go func() { got <- p.Place(ctx, pool.Request{Patience: time.Minute}) }()
			synctest.Wait()
			go cancel()
			p.Release() // at the same moment
			if err := <-got; err == nil {
				p.Release()
			} else {
				assert.ErrorIs(t, err, context.Canceled)
			}
			cancel()
		}
		use(t, p, "bash")
		assert.NilError(t, p.Place(t.Context(), pool.Request{Patience: time.Minute}))
		refused := make(chan error, 1)
		go func() { refused <- p.Place(t.Context(), pool.Request{Patience: time.Minute}) }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { p.Close(); close(closed) }()
		assert.Check(t, is.Equal(sdk.CodeOf(<-refused), sdk.CodeUnavailable))
		p.Release() // Close waits for it
		<-closed
		err := p.Place(t.Context(), pool.Request{})
		assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	})
}
