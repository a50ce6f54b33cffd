package instance_test

import (
	"context"
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A faulty provider gives out one instance twice: to a session of acme, and for what an
// earlier process of the broker left to a session of globex.
func TestNoTwoSessionsShareAnInstance(t *testing.T) {
	const ofGlobex = "aaaaaaaaaaaaaaaaaaaa"
	for name, test := range map[string]struct {
		// made is what the record of globex says of it; empty for a mere intent.
		made string
		// listed are the names that the provider's list has for the instance "shared".
		listed []string
		// first is done before the list is compared.
		first func(t *testing.T, s *instance.Service)
		// owner has it in the end.
		owner string
	}{
		"one that is awaited is not given out": {
			made: "shared", listed: []string{ofGlobex}, owner: "globex",
			first: func(t *testing.T, s *instance.Service) {
				t.Helper()
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "mine"})
				assertCode(t, err, sdk.CodeInternal)
			},
		},
		"one that was given out is not adopted": {
			listed: []string{ofGlobex}, owner: "acme",
			first: func(t *testing.T, s *instance.Service) {
				t.Helper()
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "mine"})
				assert.NilError(t, err)
			},
		},
		"one that is listed twice is adopted once": {
			listed: []string{ofGlobex, "bbbbbbbbbbbbbbbbbbbb"}, owner: "globex",
			first: func(*testing.T, *instance.Service) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true, SameID: "shared"}
				cloud.Adopt(sdk.Instance{ID: "shared"})
				var records []instance.Record
				for i, name := range []string{ofGlobex, "bbbbbbbbbbbbbbbbbbbb"} {
					records = append(records, made(name, func(r *instance.Record) {
						r.ID.Tenant, r.ID.Session, r.Made = "globex", name, ""
						if i == 0 {
							r.Made = test.made
						}
					}))
				}
				s := serve(instancetest.Catalog{cloud}, nil, instance.Past{Records: records}, nil)
				defer s.Shutdown(t.Context())
				test.first(t, s)
				served, err := cloud.Provider(t.Context())
				assert.NilError(t, err)
				assert.NilError(t, s.Reconcile(t.Context(), cloud, says{served, test.listed}))
				synctest.Wait()
				page := s.ListAll("", instance.ListRequest{})
				assert.Assert(t, is.Len(page.Instances, 1))
				assert.Equal(t, page.Instances[0].ID.Tenant, test.owner)
				_, err = s.Execute(t.Context(), tenant.Tenant{Name: test.owner}, page.Instances[0].ID.String(), run("python").ExecuteRequest)
				assert.NilError(t, err, "and it is not destroyed as another's")
			})
		})
	}
}

// says is a provider whose list has the instance "shared" under several names.
type says struct {
	sdk.Provider
	names []string
}

func (p says) List(context.Context) ([]sdk.Instance, error) {
	var list []sdk.Instance
	for _, name := range p.names {
		list = append(list, sdk.Instance{ID: "shared", Labels: map[string]string{sdk.LabelInstance: name, sdk.LabelBroker: brokerID}})
	}
	return list, nil
}
