package sdk_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestALeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.NilError(t, sdk.LeaseOf(t.Context()).Held(), "a broker that is alone")
		l := &sdk.Lease{}
		assert.NilError(t, sdk.LeaseOf(sdk.WithLease(t.Context(), l)).Held())
		l.Extend(2, 3*time.Second)
		l.Extend(2, time.Second) // an answer that was late
		l.Extend(1, time.Hour)   // a broker that was taken over from
		time.Sleep(2 * time.Second)
		assert.NilError(t, l.Held())
		time.Sleep(2 * time.Second)
		err := l.Held()
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
		l.Extend(2, time.Second)
		assert.NilError(t, l.Held())
		l.Extend(3, 0)
		assert.Assert(t, l.Held() != nil)
	})
}
