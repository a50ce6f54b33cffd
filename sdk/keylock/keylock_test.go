package keylock

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
)

func TestOneAtATimeHoldsAKey(t *testing.T) {
	var locks Locks[string]
	var all sync.WaitGroup
	counts := map[string]*int{"a": new(int), "b": new(int)} // no other lock guards them
	for range 100 {
		for key, n := range counts {
			all.Go(func() {
				release, err := locks.Take(t.Context(), key)
				assert.Check(t, err)
				*n++
				release()
			})
		}
	}
	all.Wait()
	assert.Equal(t, *counts["a"], 100)
	assert.Equal(t, *counts["b"], 100)
	assert.Equal(t, len(locks.used), 0)
}

func TestOtherKeysDoNotWait(t *testing.T) {
	var locks Locks[int]
	first, err := locks.Take(t.Context(), 1)
	assert.NilError(t, err)
	second, err := locks.Take(t.Context(), 2)
	assert.NilError(t, err)
	first()
	second()
	assert.Equal(t, len(locks.used), 0, "nothing is kept of a key that nobody holds")
}

func TestWhoWaitsCanStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks[string]
		release, err := locks.Take(t.Context(), "a")
		assert.NilError(t, err)
		waiting, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := locks.Take(waiting, "a")
			ended <- err
		}()
		synctest.Wait()
		stop()
		assert.ErrorIs(t, <-ended, context.Canceled)
		release()
		release, err = locks.Take(t.Context(), "a")
		assert.NilError(t, err, "who has stopped to wait does not get the key later")
		release()
		assert.Equal(t, len(locks.used), 0)
	})
}
