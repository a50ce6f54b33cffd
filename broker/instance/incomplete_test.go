package instance_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAfterALossACloudIsAskedForNothingUntilItHasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		local := &instancetest.Provider{Name: "local"}
		var over atomic.Int64
		s := journalled(nil, instance.Past{Incomplete: func() { over.Add(1) }}, local, cloud)
		defer s.Shutdown(t.Context())
		reconciled(t, s, cloud) // its list may be late
		in(cloud, "aaaaaaaaaaaaaaaaaaaa", brokerID)

		for name, request := range map[string]instance.CreateRequest{
			"on the cloud":                           {Provider: "cloud"},
			"of a session that may have one there":   {Session: "s", Provider: "local"},
			"of a key, which stands for a session":   {Key: "k"},
			"of a session, wherever there is room":   {Session: "s"},
			"of a session, on the cloud that has it": {Session: "s", Provider: "cloud"},
		} {
			_, _, err := s.Create(t.Context(), acme, request)
			assertCode(t, err, sdk.CodeUnavailable)
			assert.ErrorContains(t, err, "has lost a part of its state", name)
		}
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Provider: "local"})
		assert.NilError(t, err, "nobody can have one of this")
		assert.Check(t, cmp.Len(cloud.Created(), 0))
		assert.Equal(t, over.Load(), int64(0))

		time.Sleep(61 * time.Second)
		synctest.Wait()
		assert.Equal(t, over.Load(), int64(1))
		assert.Check(t, cmp.Len(cloud.Live(), 0), "what was lost is destroyed")
		_, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Provider: "cloud"})
		assert.NilError(t, err)
		assert.Assert(t, created)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, over.Load(), int64(1))
	})
}

func TestAfterALossASessionDoesNotWaitForeverForACloudThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true, OnList: func(context.Context) error { return sdk.Errorf(sdk.CodeConnectionFailed, "away") }}
		local := &instancetest.Provider{Name: "local"}
		s := journalled(nil, instance.Past{Incomplete: func() {}}, local, cloud)
		defer s.Shutdown(t.Context())
		time.Sleep(4 * time.Minute)
		_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Provider: "local"})
		assertCode(t, err, sdk.CodeUnavailable)
		time.Sleep(2 * time.Minute)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Provider: "local"})
		assert.NilError(t, err)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "t", Provider: "cloud"})
		assertCode(t, err, sdk.CodeUnavailable)
	})
}
