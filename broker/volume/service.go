package volume

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

// MaxVolumes is how many volumes a tenant may have, whatever its quota.
const MaxVolumes = 1000

// callTimeout bounds one call of a provider: a copy takes as long as the disk needs.
const callTimeout = 10 * time.Minute

// Instances is what volumes need to know of instances and their providers;
// instance.VolumeHost is it.
type Instances interface {
	// ReadyProvider waits until a provider of the catalog can be asked.
	ReadyProvider(ctx context.Context, label string) (sdk.Provider, error)
	// LeaseVolume returns the use of a volume for its files.
	LeaseVolume(ctx context.Context, label, volumeID string, capability sdk.Capability) (*instance.Lease, error)
	// HasVolume reports whether an instance of a provider has a volume, or may have it.
	HasVolume(label, volumeID string) bool
	// Explained puts the error of a call of a provider into words for a tenant.
	Explained(ctx context.Context, label string, provider sdk.Provider, err error) error
}

// Quotas say what a tenant may have of volumes; quota.Keeper is it.
type Quotas interface {
	// AdmitVolume refuses one more volume of a size beside those that there are.
	AdmitVolume(tenant string, have, bytes, size int64) error
}

// Options of a Service. All are required but Quotas, Finder and Others.
type Options struct {
	Catalog   routing.Catalog
	Instances Instances
	Journal   Journal
	Quotas    Quotas
	BrokerID  string
	Logger    hclog.Logger
	// Finder knows which other brokers have what this one does not, and Others asks them. Their
	// zero values are those of a broker that is alone.
	Finder peer.Finder
	Others *peer.Others
	// Now is for tests; nil for time.Now.
	Now func() time.Time
}

// Service has the volumes of all tenants. Its methods may be called concurrently.
type Service struct {
	o Options

	mu      sync.Mutex
	volumes map[string]*volume // by the broker's ID
	// strangers are listed volumes without a record, by label and the provider's ID.
	strangers map[[2]string]sdk.Volume

	writing keylock.Locks[*volume] // the journal gets one record of each at a time
}

// volume is a record with what this process does with it.
type volume struct {
	Record
	used int64
	// busy is set while a call changes it, holds counts who is about to use it.
	busy  bool
	holds int
	// unwritten says that the journal may have something else.
	unwritten bool
	// past says that an earlier process has begun to make it, and that this one does not
	// know whether anybody was told: the state may be older than that.
	past bool
}

// NewService returns a service that goes on from what the journal has.
func NewService(o Options) (*Service, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, volumes: map[string]*volume{}, strangers: map[[2]string]sdk.Volume{}}
	records, err := o.Journal.Load()
	if err != nil {
		return nil, fmt.Errorf("read the records of volumes: %w", err)
	}
	for _, r := range records {
		s.volumes[r.ID] = &volume{Record: r, past: r.State == Making}
	}
	return s, nil
}

// Info describes a volume. InUse says that an instance has it.
type Info struct {
	Record
	Used  int64
	InUse bool
	// Broker is the ID of the one that has it, in lists of several brokers; else empty.
	Broker string
}

func (s *Service) infoOf(v *volume) Info {
	return Info{Record: v.Record, Used: v.used, InUse: v.VolumeID != "" && s.o.Instances.HasVolume(v.Provider, v.VolumeID)}
}

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name string
	Size int64 // bytes; 0 for that of From
	// Provider by label; empty for the first that has volumes.
	Provider string
	// From is the name of a volume of the tenant whose files it begins with.
	From string
	// Key is the caller's own name for this request: who asks again with it goes on with
	// what the first one has begun.
	Key string
}

var volumeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$`)

func noSuchVolume(field string) error {
	return &sdk.Error{Code: sdk.CodeNotFound, Field: field, Message: "there is no such volume"}
}

// find returns a volume of a tenant. The caller holds mu.
func (s *Service) find(who tenant.Tenant, name string) *volume {
	for _, v := range s.volumes {
		if v.named(who.Name, name) {
			return v
		}
	}
	return nil
}

// Create makes a volume.
func (s *Service) Create(ctx context.Context, who tenant.Tenant, req CreateRequest) (Info, error) {
	if !volumeName.MatchString(req.Name) {
		return Info{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "name", "must be 1 to 63 of a-z 0-9 _ . - and begin and end with a letter or digit")
	}
	s.mu.Lock()
	here := s.find(who, req.Name)
	s.mu.Unlock()
	if here == nil { // another broker may have one of that name, and says the same of it as this one would
		if err := s.elsewhere(who, req.Name, nil); err != nil {
			return Info{}, err
		}
	} else if req.Key == "" || here.Key != req.Key {
		return Info{}, errExists
	}
	label, err := s.choose(who, req)
	if err != nil {
		return Info{}, err
	}
	v, err := s.intend(ctx, who, label, req)
	if err != nil {
		return Info{}, err
	}
	// Whoever asked may have gone: what was begun is brought to an end all the same.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	err = s.make(call, v)
	s.mu.Lock()
	defer s.mu.Unlock()
	v.busy = false
	return s.infoOf(v), err
}

var errExists = sdk.FieldErrorf(sdk.CodeConflict, "name", "there is a volume of that name already")

// choose finds the provider of a new volume.
func (s *Service) choose(who tenant.Tenant, req CreateRequest) (label string, err error) {
	offer := s.o.Catalog.Offer(who)
	usable := offer.Usable()
	if req.From != "" {
		s.mu.Lock()
		from := s.find(who, req.From)
		s.mu.Unlock()
		switch {
		case from == nil:
			return "", s.elsewhere(who, req.From, noSuchVolume("from"))
		case req.Provider != "" && req.Provider != from.Provider:
			return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "provider", "must be that of the volume that is copied, %q", from.Provider)
		}
		req.Provider = from.Provider
	}
	if req.Provider != "" {
		p, err := routing.Wanted{Provider: req.Provider}.Named(usable, offer.Providers)
		if err != nil {
			return "", err
		}
		if !keepsVolumes(p) {
			return "", sdk.NotSupported(p.Label(), sdk.CapabilityVolumes)
		}
		return p.Label(), nil
	}
	if len(usable) == 0 {
		return "", sdk.Errorf(sdk.CodeNotAllowed, "this tenant may use none of the providers")
	}
	for _, p := range slices.Concat(offer.Candidates(usable), usable) {
		if keepsVolumes(p) {
			return p.Label(), nil
		}
	}
	return "", sdk.NotSupported(offer.Candidates(usable)[0].Label(), sdk.CapabilityVolumes)
}

func keepsVolumes(p routing.Provider) bool {
	return slices.Contains(p.Description().Capabilities, sdk.CapabilityVolumes)
}

// intend takes a name for a new volume, and writes that down before anybody is asked.
func (s *Service) intend(ctx context.Context, who tenant.Tenant, label string, req CreateRequest) (*volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.find(who, req.Name); v != nil {
		again := req.Key != "" && v.Key == req.Key
		switch {
		case again && !v.busy:
			v.busy = true
			return v, nil
		default:
			return nil, errExists
		}
	}
	// Those that ReleaseTenants does not see are refused here.
	if s.o.Catalog.Offer(who).Removed {
		return nil, sdk.Errorf(sdk.CodeNotAuthenticated, "the tenant was removed")
	}
	now := s.o.Now().UTC()
	r := Record{
		ID: strings.ToLower(rand.Text()), Tenant: who.Name, Name: req.Name, Provider: label, State: Making,
		Size: req.Size, From: req.From, Key: req.Key, CreatedAt: now, Since: now,
	}
	if req.From != "" {
		from := s.find(who, req.From)
		if from == nil || from.State != Ready {
			return nil, noSuchVolume("from")
		}
		r.FromID, r.Size = from.VolumeID, cmp.Or(req.Size, from.Size)
	}
	if r.Size <= 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "size_bytes", "is required")
	}
	have, bytes := s.held(who.Name)
	if have >= MaxVolumes {
		return nil, sdk.Errorf(sdk.CodeQuotaExceeded, "no tenant may have more than %d volumes", MaxVolumes)
	}
	if s.o.Quotas != nil {
		if err := s.o.Quotas.AdmitVolume(who.Name, have, bytes, r.Size); err != nil {
			return nil, err
		}
	}
	v := &volume{Record: r, busy: true}
	s.volumes[r.ID] = v
	s.mu.Unlock()
	err := s.write(ctx, v, func(*Record) {})
	s.mu.Lock()
	if err != nil {
		delete(s.volumes, r.ID)
		// It may be written all the same: then nobody was told, and it is removed after a restart.
		return nil, err
	}
	return v, nil
}

// make asks the provider for a volume whose intent is written. v is busy.
func (s *Service) make(ctx context.Context, v *volume) error {
	s.mu.Lock()
	r := v.Record
	s.mu.Unlock()
	if r.State == Ready {
		return nil
	}
	provider, keeper, err := s.keeper(ctx, r.Provider)
	var made sdk.Volume
	if err == nil {
		made, err = keeper.CreateVolume(ctx, sdk.CreateVolumeRequest{
			Labels: map[string]string{sdk.LabelTenant: r.Tenant, sdk.LabelVolume: r.ID, sdk.LabelBroker: s.o.BrokerID},
			Size:   r.Size, From: r.FromID, IdempotencyKey: r.ID,
		})
		err = s.o.Instances.Explained(ctx, r.Provider, provider, err)
	}
	if err == nil {
		if err = s.write(ctx, v, s.isMade(made)); err == nil {
			return nil
		}
	}
	if v.past { // somebody may have been told of it
		return err
	}
	// Nobody is told of it: what may have been made is removed.
	return errors.Join(err, s.write(ctx, v, s.enters(Removing)))
}

// isMade changes the record of a volume that its provider has.
func (s *Service) isMade(made sdk.Volume) func(*Record) {
	return func(r *Record) {
		s.enters(Ready)(r)
		r.VolumeID, r.Size = made.ID, max(made.Size, r.Size)
	}
}

// enters changes the state of a record.
func (s *Service) enters(state State) func(*Record) {
	return func(r *Record) { r.State, r.Since = state, s.o.Now().UTC() }
}

// write writes down a changed record and then has it in force. A removal is in force at
// once. The record is that of the moment of writing: what else has changed meanwhile is in
// it, or in the next one.
func (s *Service) write(ctx context.Context, v *volume, change func(*Record)) error {
	done, err := s.writing.Take(ctx, v)
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	r := v.Record
	forgotten := s.volumes[r.ID] != v
	s.mu.Unlock()
	if forgotten {
		return nil
	}
	change(&r)
	err = s.o.Journal.Write(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whether it was written that failed nobody knows.
	v.unwritten = err != nil || v.Ownerless != r.Ownerless
	if err == nil || r.State == Removing {
		r.Ownerless = v.Ownerless
		v.Record = r
	}
	return err
}

// keeper returns a provider as the keeper of volumes that it is.
func (s *Service) keeper(ctx context.Context, label string) (sdk.Provider, sdk.VolumeKeeper, error) {
	provider, err := s.o.Instances.ReadyProvider(ctx, label)
	if err != nil {
		return nil, nil, err
	}
	keeper, ok := provider.(sdk.VolumeKeeper)
	if !ok {
		return nil, nil, sdk.NotSupported(label, sdk.CapabilityVolumes)
	}
	return provider, keeper, nil
}

// Delete removes a volume of a tenant with all that is in it.
func (s *Service) Delete(ctx context.Context, who tenant.Tenant, name string) error {
	s.mu.Lock()
	v := s.find(who, name)
	s.mu.Unlock()
	if v == nil {
		return s.elsewhere(who, name, noSuchVolume(""))
	}
	return s.remove(ctx, v)
}

// DeleteAny removes a volume by the ID that All has.
func (s *Service) DeleteAny(ctx context.Context, id string) error {
	v, stranger := s.identified(id)
	switch {
	case v != nil:
		return s.remove(ctx, v)
	case stranger:
		label, volumeID, _ := strings.Cut(id, ":")
		provider, keeper, err := s.keeper(ctx, label)
		if err == nil {
			err = s.o.Instances.Explained(ctx, label, provider, keeper.DeleteVolume(ctx, volumeID))
		}
		if err == nil {
			s.mu.Lock()
			delete(s.strangers, [2]string{label, volumeID})
			s.mu.Unlock()
		}
		return err
	default:
		return s.anyElsewhere(ctx, id)
	}
}

// identified finds a volume by the ID that All has: one with a record, or a stranger.
func (s *Service) identified(id string) (v *volume, stranger bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v = s.volumes[id]; v != nil && v.State == Removed {
		v = nil
	}
	label, volumeID, _ := strings.Cut(id, ":")
	_, stranger = s.strangers[[2]string{label, volumeID}]
	return v, stranger
}

func (s *Service) remove(ctx context.Context, v *volume) error {
	s.mu.Lock()
	r := v.Record
	switch {
	case v.busy:
		s.mu.Unlock()
		return sdk.Errorf(sdk.CodeConflict, "the volume is being made or removed; try again")
	case v.holds > 0 || v.VolumeID != "" && s.o.Instances.HasVolume(v.Provider, v.VolumeID):
		s.mu.Unlock()
		return sdk.Errorf(sdk.CodeConflict, "an instance has the volume; destroy that first")
	}
	v.busy = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.busy = false
	}()
	before := r.State
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := s.write(ctx, v, s.enters(Removing)); err != nil {
		return err
	}
	err := s.removeAtProvider(ctx, v)
	if sdk.CodeOf(err) == sdk.CodeConflict { // the provider knows of a use; it has removed nothing
		return errors.Join(err, s.write(ctx, v, s.enters(before)))
	}
	return err
}

// removeAtProvider has a provider remove what a record in the state Removing says.
func (s *Service) removeAtProvider(ctx context.Context, v *volume) error {
	s.mu.Lock()
	r := v.Record
	s.mu.Unlock()
	provider, keeper, err := s.keeper(ctx, r.Provider)
	if err != nil {
		return err
	}
	ids := []string{r.VolumeID}
	if r.VolumeID == "" { // nobody has said whether there is one
		ids = nil
		listed, err := keeper.ListVolumes(ctx)
		if err != nil {
			return s.o.Instances.Explained(ctx, r.Provider, provider, err)
		}
		for _, one := range listed {
			if one.Labels[sdk.LabelVolume] == r.ID && one.Labels[sdk.LabelBroker] == s.o.BrokerID {
				ids = append(ids, one.ID)
			}
		}
	}
	for _, id := range ids {
		if err := keeper.DeleteVolume(ctx, id); err != nil && sdk.CodeOf(err) != sdk.CodeNotFound {
			return s.o.Instances.Explained(ctx, r.Provider, provider, err)
		}
	}
	return s.write(ctx, v, s.enters(Removed))
}

// Mount is a volume of the tenant in an instance.
type Mount struct {
	Name, Path string
	ReadOnly   bool
}

// Attach finds the volumes for an instance, and the provider that has them. Until release
// is called none of them is removed; from then on those are not that an instance has.
func (s *Service) Attach(who tenant.Tenant, mounts []Mount) (label string, volumes []instance.Volume, release func(), err error) {
	if err := s.allHere(who, mounts); err != nil {
		return "", nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []*volume
	for _, m := range mounts {
		v := s.find(who, m.Name)
		switch {
		case v == nil || v.State != Ready || v.busy && v.VolumeID == "":
			return "", nil, nil, noSuchVolume("volumes")
		case v.busy:
			return "", nil, nil, sdk.FieldErrorf(sdk.CodeConflict, "volumes", "the volume %q is being removed", m.Name)
		case label != "" && label != v.Provider:
			return "", nil, nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "volumes", "must be of one provider; %q is on %q, others are on %q", m.Name, v.Provider, label)
		}
		label = v.Provider
		held = append(held, v)
		volumes = append(volumes, instance.Volume{Name: m.Name, ID: v.VolumeID, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	for _, v := range held {
		v.holds++
	}
	return label, volumes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range held {
			v.holds--
		}
	}, nil
}

// Lease returns the use of a volume of the tenant for its files, by its name. It is what
// package lending asks of instances.
func (s *Service) Lease(ctx context.Context, who tenant.Tenant, name string, capability sdk.Capability) (*instance.Lease, error) {
	s.mu.Lock()
	v := s.find(who, name)
	var r Record
	if v != nil {
		r = v.Record
	}
	s.mu.Unlock()
	switch {
	case v == nil:
		return nil, s.elsewhere(who, name, noSuchVolume(""))
	case r.State != Ready:
		return nil, noSuchVolume("")
	}
	return s.o.Instances.LeaseVolume(ctx, r.Provider, r.VolumeID, capability)
}

// ReleaseTenants leaves the volumes of tenants that are none any more to the administrator.
func (s *Service) ReleaseTenants(ctx context.Context, known func(tenant string) bool) {
	s.mu.Lock()
	changed := 0
	for _, v := range s.volumes {
		if !v.Ownerless && !known(v.Tenant) {
			v.Ownerless, v.unwritten = true, true
			changed++
		}
	}
	s.mu.Unlock()
	if changed == 0 {
		return
	}
	s.writeUnwritten(ctx)
	s.o.Logger.Warn("volumes of removed tenants are kept until an administrator removes them", "count", changed)
}

// writeUnwritten writes what the journal has not got.
func (s *Service) writeUnwritten(ctx context.Context) {
	s.mu.Lock()
	unwritten := map[string]*volume{}
	for id, v := range s.volumes {
		if v.unwritten {
			unwritten[id] = v
		}
	}
	s.mu.Unlock()
	for id, v := range unwritten {
		if err := s.write(ctx, v, func(*Record) {}); err != nil {
			s.o.Logger.Error("how a volume stands could not be written down; it is tried again", "volume", id, "error", err)
		}
	}
}
