package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// leaving is a catalog in which tenants come and go.
type leaving struct {
	instancetest.Catalog
	since map[string]int
}

func (c *leaving) Offer(who tenant.Tenant) instance.Offer {
	offer := c.Catalog.Offer(who)
	now, known := c.since[who.Name]
	offer.Removed = !known || now != who.Since
	return offer
}

func (c *leaving) has(name string) bool {
	_, known := c.since[name]
	return known
}

func TestWhatATenantHadEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		in(cloud, "aaaaaaaaaaaaaaaaaaaa", brokerID)
		m := &memory{}
		assert.NilError(t, m.Write(t.Context(), made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})))
		catalog := &leaving{instancetest.Catalog{cloud}, map[string]int{"acme": 1, "umbrella": 1}}
		s := instance.NewService(instance.Options{
			Catalog: catalog, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Journal: m, Past: m.past(), BrokerID: brokerID,
		})
		defer s.Shutdown(t.Context())
		old, other := tenant.Tenant{Name: "acme", Since: 1}, tenant.Tenant{Name: "umbrella", Since: 1}
		mine, _, err := s.Create(t.Context(), old, instance.CreateRequest{Session: "mine"})
		assert.NilError(t, err)
		theirs, _, err := s.Create(t.Context(), other, instance.CreateRequest{Session: "theirs"})
		assert.NilError(t, err)

		delete(catalog.since, "acme")
		s.ReleaseTenants(catalog.has)
		_, err = s.Get(t.Context(), old, mine.ID.String())
		assertCode(t, err, sdk.CodeNotFound)
		_, _, err = s.Create(t.Context(), old, instance.CreateRequest{Session: "mine"})
		assertCode(t, err, sdk.CodeNotAuthenticated)
		synctest.Wait()

		catalog.since["acme"] = 2
		next := tenant.Tenant{Name: "acme", Since: 2}
		s.ReleaseTenants(catalog.has)
		_, err = s.Get(t.Context(), next, mine.ID.String())
		assert.Error(t, err, "SB013: no such instance; create a new one if you need one", "nothing is told of how it ended")
		fresh, created, err := s.Create(t.Context(), next, instance.CreateRequest{Session: "mine"})
		assert.NilError(t, err)
		assert.Assert(t, created && fresh.ID != mine.ID)
		_, _, err = s.Create(t.Context(), old, instance.CreateRequest{Session: "mine"})
		assertCode(t, err, sdk.CodeNotAuthenticated)
		_, err = s.Get(t.Context(), other, theirs.ID.String())
		assert.NilError(t, err)

		// What an earlier broker has left of the tenant is destroyed when it is listed.
		reconciled(t, s, cloud)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Check(t, cmp.Len(cloud.Live(), 2))
	})
}

func TestACreationOfATenantThatIsRemovedMeanwhileLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		release := make(chan struct{})
		cloud.OnCreate = func(context.Context, sdk.CreateRequest) error { <-release; return nil }
		catalog := &leaving{instancetest.Catalog{cloud}, map[string]int{"acme": 1}}
		s := instance.NewService(instance.Options{Catalog: catalog, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(), Journal: &memory{}, BrokerID: brokerID})
		defer s.Shutdown(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, _, err := s.Create(t.Context(), tenant.Tenant{Name: "acme", Since: 1}, instance.CreateRequest{Session: "s"})
			failed <- err
		}()
		synctest.Wait()
		delete(catalog.since, "acme")
		s.ReleaseTenants(catalog.has)
		close(release)
		assert.Assert(t, <-failed != nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Check(t, cmp.Len(cloud.Live(), 0))
	})
}
