package instance_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func withOneInstance(t *testing.T, cloud *instancetest.Provider, past instance.Past) (*instance.Service, *quota.Keeper) {
	t.Helper()
	keeper, err := quota.NewKeeper(quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {Instances: 1}}}})
	assert.NilError(t, err)
	return instance.NewService(instance.Options{
		Catalog: registered{instancetest.Catalog{cloud}, acme}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger(),
		Past: past, BrokerID: brokerID, Quotas: keeper,
	}), keeper
}

// A cloud that made an instance and then failed to say so still has it: it counts, and
// its session gets no other, until it is gone.
func TestWhatAFailedCreationLeftIsFoundBeforeTheSessionGetsAnother(t *testing.T) {
	for code, asked := range map[sdk.Code]bool{
		sdk.CodeConnectionFailed: true, sdk.CodeUnavailable: true, sdk.CodeInternal: true,
		sdk.CodeCreateFailed: true, sdk.CodeNotAllowed: false,
	} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var creations, looks atomic.Int64
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				cloud.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
					if creations.Add(1) > 1 {
						return nil
					}
					if asked {
						cloud.Adopt(sdk.Instance{ID: "left", Labels: req.Labels})
					}
					return sdk.Errorf(code, "the cloud failed")
				}
				cloud.OnList = func(context.Context) error {
					if looks.Add(1) < 3 {
						return sdk.Errorf(sdk.CodeUnavailable, "the cloud still fails")
					}
					return nil
				}
				s, keeper := withOneInstance(t, cloud, instance.Past{})
				defer s.Shutdown(t.Context())
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.Check(t, err != nil)
				left := 0.0
				if asked {
					left = 1
				}
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), left)
				info, created, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "s"})
				assert.NilError(t, err)
				// Only the answer was lost of it, unless that was that there is none.
				found := asked && code != sdk.CodeCreateFailed
				assert.Equal(t, created, !found)
				assert.Check(t, is.Len(cloud.Live(), 1), "of %s", info.ID)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
				assert.Check(t, asked == (looks.Load() > 0))
			})
		})
	}
}

// Nor does a tenant get another instance in place of one that is still there because
// it could not be destroyed.
func TestAnOrphanCountsAsLongAsItCannotBeDestroyed(t *testing.T) {
	for name, past := range map[string]instance.Past{
		"known from a record": {Records: []instance.Record{made("aaaaaaaaaaaaaaaaaaaa", func(r *instance.Record) { r.Ending = true })}},
		"known to nobody":     {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing := atomic.Bool{}
				failing.Store(true)
				cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
				cloud.OnDestroy = func(context.Context, string) error {
					if failing.Load() {
						return fmt.Errorf("not now")
					}
					return nil
				}
				r := made("aaaaaaaaaaaaaaaaaaaa", func(*instance.Record) {})
				cloud.Adopt(sdk.Instance{ID: r.Made, Labels: map[string]string{
					sdk.LabelBroker: brokerID, sdk.LabelInstance: r.ID.Instance, sdk.LabelTenant: "acme",
				}})
				s, keeper := withOneInstance(t, cloud, past)
				defer s.Shutdown(t.Context())
				for range 2 {
					reconciled(t, s, cloud)
					assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 1.0)
					_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
					assert.Equal(t, limitOf(err), quota.MaxInstances)
				}
				failing.Store(false)
				reconciled(t, s, cloud)
				assert.Equal(t, usedOf(keeper, "acme", quota.MaxInstances), 0.0)
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: "new"})
				assert.NilError(t, err)
			})
		})
	}
}

// When a service fails, many creations fail at once: they share the looks for what
// they have left.
func TestManyHalfMadeInstancesShareOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		cloud := &instancetest.Provider{Name: "cloud", Cloud: true}
		cloud.OnCreate = func(_ context.Context, req sdk.CreateRequest) error {
			cloud.Adopt(sdk.Instance{ID: req.IdempotencyKey, Labels: req.Labels})
			return sdk.Errorf(sdk.CodeUnavailable, "the cloud failed")
		}
		cloud.OnList = func(context.Context) error {
			looks.Add(1)
			time.Sleep(time.Second) // of the bubble
			return nil
		}
		s := journalled(&memory{}, instance.Past{}, cloud)
		defer s.Shutdown(t.Context())
		for i := range 100 {
			go func() {
				_, _, err := s.Create(t.Context(), acme, instance.CreateRequest{Session: fmt.Sprint("s", i)})
				assert.Check(t, err != nil)
			}()
		}
		time.Sleep(10 * time.Second) // of the bubble
		assert.Check(t, is.Len(cloud.Live(), 0))
		assert.Check(t, looks.Load() < 4, "%d", looks.Load())
	})
}
