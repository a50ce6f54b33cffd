package volume_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/broker/volume"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cloud is a provider that keeps volumes, and all that volumes need of others.
type cloud struct {
	sdk.Provider
	mu      sync.Mutex
	volumes map[string]sdk.Volume
	journal map[string]volume.Record
	// lost has the answer to the next creation be lost, refuse has removals fail.
	lost, refuse bool
	// onWrite is called before a record is written, full has all writes fail, and removed
	// says that acme is no tenant any more.
	onWrite       func(volume.Record)
	full, removed bool
	used          map[string]bool
	deleted       []string
	now           time.Time
}

func newCloud() *cloud {
	return &cloud{volumes: map[string]sdk.Volume{}, journal: map[string]volume.Record{}, used: map[string]bool{}, now: time.Unix(1e9, 0)}
}

func (c *cloud) service(t *testing.T) *volume.Service {
	t.Helper()
	s, err := volume.NewService(volume.Options{
		Catalog: c, Instances: c, Journal: c, BrokerID: "us", Logger: hclog.NewNullLogger(),
		Now: func() time.Time { return c.now },
	})
	assert.NilError(t, err)
	return s
}

func (c *cloud) Label() string  { return "cloud" }
func (c *cloud) Plugin() string { return "cloud" }
func (c *cloud) Description() sdk.Description {
	return sdk.Description{Name: "cloud", Capabilities: []sdk.Capability{sdk.CapabilityVolumes}}
}
func (c *cloud) Status() routing.Status        { return routing.Status{Ready: true} }
func (c *cloud) Providers() []routing.Provider { return []routing.Provider{provider{c}} }
func (c *cloud) Offer(who tenant.Tenant) routing.Offer {
	return routing.Offer{Providers: c.Providers(), Active: "cloud", Tenant: who, Removed: c.removed && who.Name == "acme"}
}

// provider is the cloud as the catalog has it.
type provider struct{ *cloud }

func (p provider) Provider(context.Context) (sdk.Provider, error) { return p.cloud, nil }

func (c *cloud) ReadyProvider(context.Context, string) (sdk.Provider, error) { return c, nil }
func (c *cloud) LeaseVolume(context.Context, string, string, sdk.Capability) (*instance.Lease, error) {
	return nil, errors.New("not in this test")
}
func (c *cloud) HasVolume(_, id string) bool { return c.used[id] }
func (c *cloud) Explained(_ context.Context, _ string, _ sdk.Provider, err error) error {
	return err
}

func (c *cloud) Load() (all []volume.Record, err error) {
	for _, r := range c.journal {
		all = append(all, r)
	}
	return all, nil
}

func (c *cloud) Write(_ context.Context, r volume.Record) error {
	if c.onWrite != nil {
		c.onWrite(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return sdk.Errorf(sdk.CodeUnavailable, "the disk is full")
	}
	c.journal[r.ID] = r
	return nil
}

func (c *cloud) Forget(_ context.Context, id string) error {
	delete(c.journal, id)
	return nil
}

func (c *cloud) CreateVolume(_ context.Context, req sdk.CreateVolumeRequest) (sdk.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := "v-" + req.IdempotencyKey
	if _, there := c.volumes[id]; !there {
		c.volumes[id] = sdk.Volume{ID: id, Labels: req.Labels, Size: req.Size}
	}
	if c.lost {
		c.lost = false
		return sdk.Volume{}, sdk.Errorf(sdk.CodeUnavailable, "the answer was lost")
	}
	return c.volumes[id], nil
}

func (c *cloud) DeleteVolume(_ context.Context, id string) error {
	if c.refuse {
		return sdk.Errorf(sdk.CodeUnavailable, "not now")
	}
	c.deleted = append(c.deleted, id)
	delete(c.volumes, id)
	return nil
}

func (c *cloud) ListVolumes(context.Context) (all []sdk.Volume, err error) {
	for _, v := range c.volumes {
		all = append(all, v)
	}
	return all, nil
}

var (
	acme  = tenant.Tenant{Name: "acme"}
	rival = tenant.Tenant{Name: "rival"}
)

func names(infos []volume.Info) (list []string) {
	for _, info := range infos {
		list = append(list, info.Tenant+"/"+info.Name)
	}
	return list
}

func TestNothingIsRemovedThatNobodyHasRemoved(t *testing.T) {
	c := newCloud()
	s := c.service(t)
	kept, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "kept", Size: 1})
	assert.NilError(t, err)
	_, err = s.Create(t.Context(), rival, volume.CreateRequest{Name: "kept", Size: 1})
	assert.NilError(t, err)
	// One of a state that is lost, and one of another broker.
	c.volumes["stranger"] = sdk.Volume{ID: "stranger", Labels: map[string]string{sdk.LabelBroker: "us", sdk.LabelVolume: "unknown", sdk.LabelTenant: "acme"}}
	c.volumes["theirs"] = sdk.Volume{ID: "theirs", Labels: map[string]string{sdk.LabelBroker: "them", sdk.LabelVolume: kept.ID}}
	s.ReleaseTenants(t.Context(), func(name string) bool { return name == "acme" })
	c.now = c.now.Add(1000 * time.Hour)

	for range 3 { // also for the next processes
		s.Reconcile(t.Context())
		assert.Check(t, is.Len(c.deleted, 0))
		assert.Check(t, is.DeepEqual(names(s.List(acme)), []string{"acme/kept"}))
		assert.Check(t, is.Len(s.List(rival), 0), "who gets the name of a removed tenant gets nothing with it")
		assert.Check(t, is.DeepEqual(names(s.All()), []string{"acme/", "acme/kept", "rival/kept"}))
		s = c.service(t)
	}
	s.Reconcile(t.Context())
	for _, info := range s.All() {
		assert.NilError(t, s.DeleteAny(t.Context(), info.ID))
	}
	assert.Check(t, is.Len(s.All(), 0))
	assert.Check(t, is.Len(c.volumes, 1), "that of the other broker")
}

func TestWhatNobodyWasToldOfIsRemoved(t *testing.T) {
	c := newCloud()
	s := c.service(t)
	c.lost = true
	_, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "a", Size: 1})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	assert.Check(t, is.Len(c.volumes, 1))
	again, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "a", Size: 1}) // the name is free
	assert.NilError(t, err)
	s.Reconcile(t.Context())
	assert.Check(t, is.Len(c.volumes, 1))
	assert.Check(t, is.Equal(len(c.deleted), 1))
	assert.Check(t, !slices.Contains(c.deleted, again.VolumeID))
}

// A broker that was killed in between, or whose state is older than the volumes: they may
// have been filled since.
func TestWhatSomebodyMayHaveBeenToldOfIsNotRemoved(t *testing.T) {
	c := newCloud()
	labels := func(id string) map[string]string {
		return map[string]string{sdk.LabelBroker: "us", sdk.LabelVolume: id}
	}
	for id, name := range map[string]string{"one": "asked", "two": "forgotten", "three": "late", "four": "old"} {
		c.journal[id] = volume.Record{
			ID: id, Tenant: "acme", Name: name, Provider: "cloud", State: volume.Making, Size: 1, Key: "k" + name, Since: c.now, Ownerless: id == "four",
		}
		if id != "three" {
			c.volumes["v-"+id] = sdk.Volume{ID: "v-" + id, Labels: labels(id), Size: 2}
		}
	}
	s := c.service(t)
	c.lost = true
	_, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "asked", Size: 1, Key: "kasked"})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeUnavailable))
	s.Reconcile(t.Context())
	_, err = s.Create(t.Context(), acme, volume.CreateRequest{Name: "asked", Size: 1, Key: "another"})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeConflict))
	asked, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "asked", Size: 1, Key: "kasked"})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(asked.VolumeID, "v-one"))
	c.now = c.now.Add(1000 * time.Hour)
	for range 3 {
		s.Reconcile(t.Context())
		c.volumes["v-three"] = sdk.Volume{ID: "v-three", Labels: labels("three")} // it comes late
		s = c.service(t)
	}
	s.Reconcile(t.Context())
	assert.Check(t, is.DeepEqual(names(s.List(acme)), []string{"acme/asked", "acme/forgotten"}))
	assert.Check(t, is.DeepEqual(names(s.All()), []string{"/", "acme/asked", "acme/forgotten", "acme/old"}))
	got, err := s.Get(acme, "forgotten")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(got.State, volume.Ready))
	assert.Check(t, is.Equal(got.VolumeID, "v-two"))
	assert.Check(t, is.Equal(got.Size, int64(2)))
	assert.Check(t, is.Len(c.deleted, 0))
}

func TestATenantIsRemovedWhileItsVolumeIsMade(t *testing.T) {
	c := newCloud()
	s := c.service(t)
	released := make(chan struct{})
	c.onWrite = func(r volume.Record) {
		if r.State != volume.Ready || r.Ownerless {
			return
		}
		go func() {
			defer close(released)
			s.ReleaseTenants(t.Context(), func(string) bool { return false })
		}()
		for len(s.List(acme)) > 0 { // until it is in force
			runtime.Gosched()
		}
	}
	made, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "a", Size: 1})
	assert.NilError(t, err)
	<-released
	assert.Check(t, is.Equal(c.journal[made.ID].State, volume.Ready))
	assert.Check(t, c.journal[made.ID].Ownerless)
	assert.Check(t, is.Equal(c.journal[made.ID].VolumeID, made.VolumeID))
	c.onWrite = nil

	c.removed = true
	_, err = s.Create(t.Context(), acme, volume.CreateRequest{Name: "late", Size: 1})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotAuthenticated))
	assert.Check(t, is.Len(c.journal, 1))

	theirs, err := s.Create(t.Context(), rival, volume.CreateRequest{Name: "a", Size: 1})
	assert.NilError(t, err)
	c.full = true
	s.ReleaseTenants(t.Context(), func(string) bool { return false })
	assert.Check(t, !c.journal[theirs.ID].Ownerless)
	c.full = false
	s.Reconcile(t.Context())
	assert.Check(t, c.journal[theirs.ID].Ownerless, "it is tried again")
}

func TestARemovalIsBroughtToItsEnd(t *testing.T) {
	c := newCloud()
	s := c.service(t)
	made, err := s.Create(t.Context(), acme, volume.CreateRequest{Name: "a", Size: 1})
	assert.NilError(t, err)
	c.used[made.VolumeID] = true
	assert.Check(t, is.Equal(sdk.CodeOf(s.Delete(t.Context(), acme, "a")), sdk.CodeConflict))
	c.used[made.VolumeID] = false
	_, _, release, err := s.Attach(acme, []volume.Mount{{Name: "a", Path: "/data"}})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(sdk.CodeOf(s.Delete(t.Context(), acme, "a")), sdk.CodeConflict), "an instance is being made with it")
	release()
	assert.Check(t, is.Equal(sdk.CodeOf(s.Delete(t.Context(), rival, "a")), sdk.CodeNotFound))
	c.refuse = true
	assert.Check(t, is.Equal(sdk.CodeOf(s.Delete(t.Context(), acme, "a")), sdk.CodeUnavailable))
	assert.Check(t, is.Len(s.List(acme), 0))
	_, _, _, err = s.Attach(acme, []volume.Mount{{Name: "a", Path: "/data"}})
	assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeNotFound))
	c.refuse = false
	s = c.service(t)
	s.Reconcile(t.Context())
	assert.Check(t, is.Len(c.volumes, 0))
	c.now = c.now.Add(25 * time.Hour)
	s.Reconcile(t.Context())
	assert.Check(t, is.Len(c.journal, 0))
}
