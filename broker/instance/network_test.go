package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// always are the tenants of a configuration that does not change.
type always []tenant.Tenant

func (a always) Tenant(name string) (tenant.Tenant, bool) {
	for _, t := range a {
		if t.Name == name {
			return t, true
		}
	}
	return tenant.Tenant{}, false
}

// TestACreationThatGoesOnIsNarrowedToItsSource has an earlier process make an instance with a
// network, of which nobody knows: the creation is asked for again, from a snapshot of an original
// that may reach less by now.
func TestACreationThatGoesOnIsNarrowedToItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := func(hosts ...string) (rules []sdk.NetworkRule) {
			for _, host := range hosts {
				rules = append(rules, sdk.NetworkRule{Host: host, Ports: []int{443}})
			}
			return rules
		}
		who := tenant.Tenant{Name: "acme", Network: &sdk.NetworkPolicy{Rules: to("a.example.com", "b.example.com", "c.example.com")}}
		cloud := &instancetest.Provider{
			Name: "cloud", Cloud: true, OnList: func(context.Context) error { return sdk.Errorf(sdk.CodeUnavailable, "busy") },
			Snapshots: &instancetest.Snapshots{}, Capabilities: []sdk.Capability{sdk.CapabilityNetwork},
		}
		r := made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) {
			r.Made, r.From, r.Network = "", "snap-a", &network.Request{Rules: to("a.example.com", "b.example.com")}
		})
		in(cloud, r.ID.Instance, brokerID)
		served, err := cloud.Provider(t.Context())
		assert.NilError(t, err)
		assert.NilError(t, served.(sdk.NetworkGovernor).SetNetwork(t.Context(), "fake-"+r.ID.Instance, sdk.NetworkPolicy{Rules: r.Network.Rules}))
		s := instance.NewService(instance.Options{
			Catalog: instancetest.Catalog{cloud}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
			Journal: &memory{}, Past: instance.Past{Records: []instance.Record{r}}, BrokerID: brokerID, Tenants: always{who},
		})
		defer s.Shutdown(t.Context())
		info, _, err := s.Create(t.Context(), who, instance.CreateRequest{
			Session:  r.ID.Session,
			Snapshot: &instance.Source{From: "snap-a", SnapshotID: "snap-a", ProvidersID: "p", Network: &network.Request{Rules: to("b.example.com", "c.example.com")}},
		})
		assert.NilError(t, err)
		assert.Equal(t, info.ID, r.ID)
		assert.DeepEqual(t, cloud.Created()[0].Network.Rules, to("b.example.com"))
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		assert.DeepEqual(t, cloud.Network("fake-"+r.ID.Instance).Rules, to("b.example.com"))
	})
}
