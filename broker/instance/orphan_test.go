package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registered is a catalog that knows one tenant.
type registered struct {
	instancetest.Catalog
	only tenant.Tenant
}

func (c registered) Offer(who tenant.Tenant) instance.Offer {
	offer := c.Catalog.Offer(who)
	if who.Name == c.only.Name {
		offer.Tenant = c.only
	}
	return offer
}

func TestAnOrphanThatIsListedAfterItsEndCountsForNobody(t *testing.T) {
	for name, past := range map[string]instance.Past{
		"known from a record": {Records: []instance.Record{made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Ending = true })}},
		"known to nobody":     {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				cloud.OnDestroy = func(context.Context, string) error {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				cloud.Adopt(sdk.Instance{ID: "fake-aaaaaaaaaaaaaaaaaaaa", Labels: map[string]string{
					sdk.LabelBroker: brokerID, sdk.LabelTenant: "acme", sdk.LabelInstance: "aaaaaaaaaaaaaaaaaaaa",
				}})
				s, keeper := withOneInstance(t, cloud, past)
				defer s.Shutdown(t.Context())
				reconciled(t, s, cloud)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
				assert.NilError(t, err)
			})
		})
	}
}

// A plugin can label what it lists as it likes, and refuse to destroy it.
func TestWhomALabelledOrphanCountsFor(t *testing.T) {
	mine := tenant.Tenant{Name: "victim", Providers: []string{"cloud"}}
	none := tenant.Tenant{Name: "victim", Providers: []string{"other"}}
	for name, test := range map[string]struct {
		known  tenant.Tenant
		twinOf bool // an instance of acme has its name
		past   bool // a record of acme has it
		victim float64
		acme   float64 // beside what it has
	}{
		"one who may use the provider":                       {known: mine, victim: 1},
		"nobody, if the named one may not use the provider":  {known: none},
		"nobody, if there is no such tenant":                 {known: acme},
		"whose instance has its name, whatever the label":    {known: mine, twinOf: true, acme: 1},
		"whose record has its name, whatever the label says": {known: mine, past: true, acme: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				cloud.OnDestroy = func(context.Context, string) error { return sdk.Errorf(sdk.CodeUnavailable, "no") }
				keeper, err := quota.NewKeeper(quota.Options{})
				assert.NilError(t, err)
				earlier := made("cccccccccccccccccccc", func(r *instance.Record) { r.ID.Session = "earlier" })
				past := instance.Past{}
				if test.past {
					past.Records = []instance.Record{earlier}
				}
				s := serve(registered{instancetest.Catalog{cloud}, test.known}, nil, past, keeper)
				defer s.Shutdown(t.Context())
				info, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.NilError(t, err)
				before := usedOf(keeper, "acme", quota.MaxInstances)

				orphan := sdk.Instance{ID: "made-up", Labels: map[string]string{
					sdk.LabelBroker: brokerID, sdk.LabelTenant: "victim", sdk.LabelSession: "s", sdk.LabelInstance: "made-up",
				}}
				switch {
				case test.twinOf:
					orphan.Labels[sdk.LabelInstance] = info.ID.Instance
				case test.past:
					orphan.Labels[sdk.LabelInstance] = earlier.ID.Instance
				}
				cloud.Adopt(orphan)
				for range 2 {
					reconciled(t, s, cloud)
					assert.Equal(t, usedOf(keeper, "victim", quota.MaxInstances), test.victim)
					assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), before+test.acme)
				}
				cloud.OnDestroy = nil
				reconciled(t, s, cloud)
				assert.Equal(t, usedOf(keeper, "victim", quota.MaxInstances), 0.0)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), before)
			})
		})
	}
}

// lateToTell is a provider whose list arrives when it is old.
type lateToTell struct {
	sdk.Provider
	meanwhile func()
}

func (p lateToTell) List(ctx context.Context) ([]sdk.Instance, error) {
	listed, err := p.Provider.List(ctx)
	p.meanwhile()
	return listed, err
}

func TestWhatWasMadeAndEndedWhileAProviderListedItIsNoOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		s, keeper := withOneInstance(t, cloud, instance.Past{})
		defer s.Shutdown(t.Context())
		var made instance.Info
		cloud.OnList = func(ctx context.Context) (err error) {
			cloud.OnList = nil
			made, _, err = s.Create(ctx, acme, instance.CreateRequest{Session: "short"})
			return err
		}
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, s.Reconcile(t.Context(), cloud, lateToTell{served, func() {
			assert.NilError(t, s.Destroy(t.Context(), acme, made.ID.String()))
			// The plugin dies: whoever takes that for an orphan cannot find out better.
			cloud.OnDestroy = func(context.Context, string) error { return sdk.Errorf(sdk.CodeUnavailable, "no") }
		}}))
		synctest.Wait()
		assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
		_, _, err = s.Create(t.Context(), acme, instance.CreateRequest{Session: "next"})
		assert.NilError(t, err)
		cloud.OnDestroy = nil
	})
}
