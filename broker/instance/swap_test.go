package instance_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// swapped is a catalog whose generations have one provider each, which is all that
// any tenant may use.
type swapped struct {
	mu  sync.Mutex
	now instance.Provider
}

func (c *swapped) Providers() []instance.Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []instance.Provider{c.now}
}

func (c *swapped) Offer(who tenant.Tenant) instance.Offer {
	providers := c.Providers()
	label := providers[0].Label()
	return instance.Offer{Providers: providers, Active: label, Tenant: tenant.Tenant{Name: who.Name, Providers: []string{label}}}
}

func (c *swapped) swap(p instance.Provider) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = p
}

// A request was authenticated; then the tenant's only provider is another one.
func TestATenantWhoseOnlyProviderIsSwappedIsServedByTheNextOne(t *testing.T) {
	before := tenant.Tenant{Name: "acme", Providers: []string{"older"}} // as authentication saw it
	requirements := run("python")
	requirements.Requirements = []string{"six"}
	for name, test := range map[string]struct {
		// during is what the older provider does while it is asked; nil when the
		// request comes too late to ask it.
		during func(older *instancetest.Provider, swap func())
		ask    func(ctx context.Context, s *instance.Service) error
	}{
		"before the provider is chosen": {nil, func(ctx context.Context, s *instance.Service) error {
			_, err := s.Run(ctx, before, run("python"))
			return err
		}},
		"before it is chosen, for an instance": {nil, func(ctx context.Context, s *instance.Service) error {
			_, _, err := s.Create(ctx, before, instance.CreateRequest{Session: "s1"})
			return err
		}},
		"while it is waited for, which then is in vain": {func(older *instancetest.Provider, swap func()) {
			older.OnWait = func(context.Context) error {
				swap()
				return sdk.Errorf(sdk.CodeUnavailable, "the plugin has ended")
			}
		}, func(ctx context.Context, s *instance.Service) error {
			_, err := s.Run(ctx, before, run("python"))
			return err
		}},
		"while it is waited for": {func(older *instancetest.Provider, swap func()) {
			older.OnWait = func(context.Context) error { swap(); return nil }
		}, func(ctx context.Context, s *instance.Service) error {
			_, _, err := s.Create(ctx, before, instance.CreateRequest{})
			return err
		}},
		"while it is asked about packages": {func(older *instancetest.Provider, swap func()) {
			older.OnCheckPackages = func(context.Context, sdk.Language, []string) error {
				swap()
				return sdk.Errorf(sdk.CodeUnavailable, "the plugin has ended")
			}
		}, func(ctx context.Context, s *instance.Service) error {
			_, err := s.Run(ctx, before, requirements)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				installs := func(context.Context, sdk.InstallPackagesRequest, sdk.Output) (sdk.ExecuteResult, error) {
					return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
				}
				older := &instancetest.Provider{Name: "older", OnInstall: installs}
				newer := &instancetest.Provider{Name: "newer", OnInstall: installs}
				c := &swapped{now: older}
				s := instance.NewService(instance.Options{Catalog: c, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
				defer s.Shutdown(t.Context())
				if test.during == nil {
					c.swap(newer)
				} else {
					test.during(older, func() { c.swap(newer) })
				}
				assert.NilError(t, test.ask(t.Context(), s))
				assert.Check(t, cmp.Len(older.Created(), 0))
				assert.Check(t, cmp.Len(newer.Created(), 1))
			})
		})
	}
}

func TestAProviderThatWasNamedAndIsGoneIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := &instancetest.Provider{Name: "older"}, &instancetest.Provider{Name: "newer"}
		c := &swapped{now: older}
		s := instance.NewService(instance.Options{Catalog: c, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
		defer s.Shutdown(t.Context())
		older.OnWait = func(context.Context) error {
			c.swap(newer)
			return sdk.Errorf(sdk.CodeUnavailable, "the plugin has ended")
		}
		req := run("python")
		req.Provider = "older"
		_, err := s.Run(t.Context(), tenant.Tenant{Name: "acme", Providers: []string{"older"}}, req)
		assertCode(t, err, sdk.CodeInvalidRequest)
		assert.Check(t, cmp.ErrorContains(err, "there is no such provider; there are: newer"))
	})
}
