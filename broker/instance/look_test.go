package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// After an upgrade there are two processes of one label. What a creation has left in
// the older one is not looked for in what the newer one lists at the same time.
func TestAnUnclearCreationIsLookedForInItsOwnProcess(t *testing.T) {
	inUpgrade(t, func(t *testing.T, s *instance.Service, c *changing, older, newer *instancetest.Provider) {
		slowly := func(context.Context) error {
			time.Sleep(3 * time.Second) // of the bubble
			return nil
		}
		older.OnList, newer.OnList = slowly, slowly
		fails := make(chan struct{})
		older.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
			<-fails
			older.Adopt(sdk.Instance{ID: "left", Labels: req.Labels})
			return sdk.Errorf(sdk.CodeConnectionFailed, "the answer was lost")
		}
		newer.OnCreate = func(context.Context, sdk.CreateRequest) error {
			return sdk.Errorf(sdk.CodeConnectionFailed, "the answer was lost")
		}
		create := func(session string) {
			_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: session})
			assert.Check(t, is.ErrorContains(err, "the answer was lost"))
		}
		go create("older")
		synctest.Wait()
		c.change(newer)
		empty := s.Retire(older)
		go create("looks")
		time.Sleep(time.Second) // of the bubble
		go create("waits-for-its-turn")
		synctest.Wait()
		close(fails)
		time.Sleep(20 * time.Second) // of the bubble
		synctest.Wait()
		assert.Check(t, is.Len(older.Live(), 0))
		assert.Equal(t, s.Instances(older), 0)
		<-empty
	})
}
