package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// shrinking is a catalog whose providers can be removed. The first is the active one.
type shrinking struct {
	mu   sync.Mutex
	left []instance.Provider
}

func (c *shrinking) Providers() []instance.Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

func (c *shrinking) Offer(who tenant.Tenant) instance.Offer {
	left := c.Providers()
	return instance.Offer{Providers: left, Tenant: who, Active: left[0].Label()}
}

func (c *shrinking) removeFirst() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = c.left[1:]
}

// A provider is removed from the configuration while it makes an instance, and its
// process ends before it is known how that went.
func TestACreationEndsWithAProviderThatIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		// moves means that the request is served by the provider that is left.
		moves bool
	}{
		"when its process died during the call": {answer: sdk.Errorf(sdk.CodeUnavailable, "%w", wire.ErrPluginGone)},
		"when it had been refused":              {answer: sdk.Errorf(sdk.CodeQuotaExceeded, "full")},
		"when it had gone well":                 {moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
				answer := make(chan struct{})
				cloud.OnCreate = func(context.Context, sdk.CreateRequest) error { <-answer; return test.answer }
				m, keeper, c := &memory{}, oneEach(t), &shrinking{left: []instance.Provider{cloud, other}}
				s := serve(c, m, instance.Past{}, keeper)
				defer s.Shutdown(t.Context())
				failure := make(chan error, 1)
				go func() {
					_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
					failure <- err
				}()
				synctest.Wait()
				c.removeFirst()
				empty := s.Retire(cloud)
				cloud.OnWait = func(context.Context) error { return sdk.Errorf(sdk.CodeUnavailable, "is stopped") }
				s.Lose(cloud)
				assert.Equal(t, s.Instances(cloud), 1)
				close(answer)
				err := <-failure
				synctest.Wait()
				assert.Equal(t, s.Instances(cloud), 0)
				<-empty
				if test.moves {
					assert.NilError(t, err)
				} else {
					assertCode(t, err, sdk.CodeOf(test.answer))
					assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
					assert.Check(t, is.Len(m.past().Records, 0))
					_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
					assert.NilError(t, err)
				}
				assert.Check(t, is.Len(other.Live(), 1))
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
				assert.Check(t, is.Len(m.past().Records, 1))
			})
		})
	}
}

// A list that was asked for before a provider was lost says what nobody can reach.
func TestNothingIsAdoptedByAProviderThatIsLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, other := &instancetest.Provider{Name: "cloud", Cloud: true}, &instancetest.Provider{Name: "other"}
		r := made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})
		in(cloud, r.ID.Instance, brokerID)
		asked, answer := make(chan struct{}), make(chan struct{})
		cloud.OnList = func(context.Context) error { close(asked); <-answer; return nil }
		c := &shrinking{left: []instance.Provider{cloud, other}}
		s := serve(c, nil, instance.Past{Records: []instance.Record{r}}, nil)
		defer s.Shutdown(t.Context())
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		done := make(chan error, 1)
		go func() { done <- s.Reconcile(t.Context(), cloud, served) }()
		<-asked
		c.removeFirst()
		<-s.Retire(cloud)
		s.Lose(cloud)
		close(answer)
		assert.NilError(t, <-done)
		assert.Equal(t, s.Instances(cloud), 0)
		assert.Check(t, is.Len(cloud.Live(), 1), "nor is it destroyed")
		_, err = s.Get(t.Context(), acme, r.ID.String())
		assertCode(t, err, sdk.CodeUnavailable)
		time.Sleep(48 * time.Hour)
		_, err = s.Get(t.Context(), acme, r.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
	})
}
