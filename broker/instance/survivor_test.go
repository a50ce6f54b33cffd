package instance_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// broken is how package pluginhost says that the connection to a plugin broke.
type broken struct {
	error
	lives bool
}

func (b broken) Unwrap() error      { return b.error }
func (b broken) ProcessLives() bool { return b.lives }

// A process that lives may go on with a creation whose connection broke: its list is
// believed only after it has had the time to notice. One that has died makes nothing.
func TestAProcessThatLivesMayGoOnWithACreation(t *testing.T) {
	for name, lives := range map[string]bool{"it lives": true, "it has died": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, keeper := &instancetest.Provider{Name: "p"}, oneEach(t)
				p.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
					if lives {
						time.AfterFunc(500*time.Millisecond, func() { p.Adopt(sdk.Instance{ID: "left", Labels: req.Labels}) })
					}
					return sdk.Errorf(sdk.CodeUnavailable, "%w", broken{wire.ErrPluginGone, lives})
				}
				s := serve(instancetest.Catalog{p}, nil, instance.Past{}, keeper)
				defer s.Shutdown(t.Context())
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.Assert(t, errors.Is(err, wire.ErrPluginGone))
				synctest.Wait()
				want := 0.0 // a list was enough
				if lives {
					want = 1
				}
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), want)
				time.Sleep(10 * time.Second) // of the bubble
				synctest.Wait()
				assert.Check(t, is.Len(p.Live(), 0))
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
			})
		})
	}
}
