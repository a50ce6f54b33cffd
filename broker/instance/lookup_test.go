package instance_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// halfThere is a catalog that lacks some of what its configuration names.
type halfThere struct{ instancetest.Catalog }

func (c halfThere) Offer(who tenant.Tenant) instance.Offer {
	return instance.Offer{Providers: c.Catalog, Tenant: who, Active: "first", Fallback: []string{"second", "third"}}
}

func TestTheDefaultProvidersAreThoseThatAreThere(t *testing.T) {
	s := instance.NewService(instance.Options{
		Catalog: halfThere{instancetest.Catalog{
			&instancetest.Provider{Name: "third"}, &instancetest.Provider{Name: "first"}, &instancetest.Provider{Name: "unused"},
		}},
		Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
	})
	defer s.Shutdown(t.Context())
	var labels []string
	for _, p := range s.DefaultProviders() {
		labels = append(labels, p.Label)
		assert.Equal(t, p.Active, p.Label == "first")
	}
	assert.DeepEqual(t, labels, []string{"first", "third"})
}
