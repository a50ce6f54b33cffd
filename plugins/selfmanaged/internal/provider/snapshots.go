package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/snapshotfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Snapshotter = (*Provider)(nil)

// snapshotsAtOnce is how many checkpoints that are not transient are in memory at once,
// where each takes as much as its sandbox.
const snapshotsAtOnce = 2

// checkpointTimeout bounds one checkpoint, which takes about a second for each GiB.
const checkpointTimeout = time.Minute

// checkpointer is a runtime that can copy sandboxes while they run.
type checkpointer interface {
	// CanCheckpoint says whether it can on this machine.
	CanCheckpoint() bool
	// Room is how many bytes of checkpoints there is room for.
	Room() (int64, error)
	NewCheckpoint(name string, token []byte, like string) (*runsc.Checkpoint, error)
	StartCopy(ctx context.Context, id string, c *runsc.Checkpoint, of *runsc.Template) (running, error)
	MadeWith(interpreters []string) (map[string]string, error)
}

// checkpointable is a sandbox that can be copied.
type checkpointable interface {
	Checkpoint(ctx context.Context, name string, token []byte) (*runsc.Checkpoint, error)
}

var (
	_ checkpointer   = runscRuntime{}
	_ checkpointable = (*runsc.Sandbox)(nil)
)

// snapshots are those of this provider: the transient ones of this process, and those on
// the disk.
type snapshots struct {
	runtime  checkpointer
	disk     *snapshotfile.Dir
	madeWith map[string]string
	layers   *packageLayers
	images   *keptImages
	logger   hclog.Logger
	// turn holds something for each checkpoint in memory that is not transient.
	turn chan struct{}

	mu sync.Mutex
	// reserved is what of the room in memory checkpoints will take that are being written.
	reserved  int64
	transient map[string]*transient
	making    map[string]chan struct{} // by idempotency key; closed at the end
}

// kept is what a copy is made of: the sandbox, and the variables of its instance, which are
// as secret as what is in it.
type kept struct {
	*runsc.Checkpoint
	env map[string]string
	// layers of packages that the sandbox has files of.
	layers []string
	// image is what was built of its template; "" for a template of the provider.
	image string
}

// transient is a snapshot that is nowhere but in memory.
type transient struct {
	sdk.Snapshot
	key     string
	kept    kept
	layers  *usedLayers // those of kept, which stay
	release func()      // of the image of kept
	users   int         // copies that are being started
	deleted bool
}

// newSnapshots returns nil where there can be none.
func newSnapshots(runtime sandboxRuntime, req sdk.ConfigureRequest, found interpreters, logger hclog.Logger) (*snapshots, error) {
	can, ok := runtime.(checkpointer)
	if !ok || !can.CanCheckpoint() {
		return nil, nil
	}
	dir := req.KeepDir
	if dir == "" {
		dir = req.StateDir // nothing outlives a trial
	}
	disk, err := snapshotfile.Open(filepath.Join(dir, "snapshots"))
	if err != nil {
		return nil, err
	}
	with, err := can.MadeWith(slices.Sorted(maps.Values(found)))
	if err != nil {
		return nil, err
	}
	return &snapshots{
		runtime: can, disk: disk, madeWith: with, logger: logger, turn: make(chan struct{}, snapshotsAtOnce),
		transient: map[string]*transient{}, making: map[string]chan struct{}{},
	}, nil
}

// noSnapshots answers where there can be none.
func noSnapshots() error {
	e := sdk.Errorf(sdk.CodeNotSupported, "snapshots need the runtime %s, and the broker to be root", runtimeRunsc)
	e.Capability, e.NoEffect = sdk.CapabilitySnapshots, true
	return e
}

// Snapshot implements sdk.Snapshotter.
func (p *Provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	switch {
	case !p.configured.Load():
		return sdk.Snapshot{}, sdk.Errorf(sdk.CodeNotInitialized, "not configured")
	case !req.Transient && len(req.Key) != sdk.SnapshotKeyBytes:
		return sdk.Snapshot{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "key", "must have %d bytes", sdk.SnapshotKeyBytes)
	}
	if p.snapshots == nil {
		if _, err := p.instances.find(req.InstanceID); err != nil {
			return sdk.Snapshot{}, err
		}
		return sdk.Snapshot{}, noSnapshots()
	}
	// One that was kept with the key is there, whatever has become of the instance.
	return p.snapshots.once(ctx, req.IdempotencyKey, func() (sdk.Snapshot, error) {
		i, err := p.instances.find(req.InstanceID)
		if err != nil {
			return sdk.Snapshot{}, err
		}
		return p.snapshots.take(ctx, i, req)
	})
}

// DeleteSnapshot implements sdk.Snapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	if p.snapshots == nil {
		return nil
	}
	return p.snapshots.delete(ctx, snapshotID)
}

// ListSnapshots implements sdk.Snapshotter.
func (p *Provider) ListSnapshots(context.Context) ([]sdk.Snapshot, error) {
	if p.snapshots == nil {
		return nil, nil
	}
	return p.snapshots.list()
}

// once makes a snapshot, unless there is one of that key.
func (s *snapshots) once(ctx context.Context, key string, make func() (sdk.Snapshot, error)) (sdk.Snapshot, error) {
	if key == "" {
		return make()
	}
	ended, err := s.claim(ctx, key)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	defer ended()
	if made, is, err := s.madeFor(key); is || err != nil {
		return made, err
	}
	return make()
}

// claim waits until nobody else makes a snapshot of that key.
func (s *snapshots) claim(ctx context.Context, key string) (ended func(), err error) {
	for {
		s.mu.Lock()
		others, running := s.making[key]
		if !running {
			mine := make(chan struct{})
			s.making[key] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.making, key)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-others:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// madeFor finds the snapshot that was made for a key.
func (s *snapshots) madeFor(key string) (sdk.Snapshot, bool, error) {
	s.mu.Lock()
	for _, t := range s.transient {
		if t.key == key && !t.deleted {
			s.mu.Unlock()
			return t.Snapshot, true, nil
		}
	}
	s.mu.Unlock()
	headers, err := s.disk.List(s.unreadable)
	for _, h := range headers {
		if h.IdempotencyKey == key {
			return onDisk(h), true, err
		}
	}
	return sdk.Snapshot{}, false, err
}

func (s *snapshots) unreadable(id string, err error) {
	s.logger.Warn("a snapshot cannot be read", "snapshot", id, "error", err)
}

// onDisk is a snapshot as the SDK has it.
func onDisk(h snapshotfile.Header) sdk.Snapshot {
	return sdk.Snapshot{ID: h.ID, Labels: h.Labels, Template: h.Template, CreatedAt: h.CreatedAt, Bytes: h.Bytes, Memory: true}
}

// list is what there is.
func (s *snapshots) list() ([]sdk.Snapshot, error) {
	headers, err := s.disk.List(s.unreadable)
	if err != nil {
		return nil, err
	}
	var all []sdk.Snapshot
	for _, h := range headers {
		all = append(all, onDisk(h))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.transient {
		if !t.deleted {
			all = append(all, t.Snapshot)
		}
	}
	return all, nil
}

// delete forgets a snapshot, if there is one.
func (s *snapshots) delete(ctx context.Context, id string) error {
	s.mu.Lock()
	t := s.transient[id]
	if t == nil {
		s.mu.Unlock()
		return errors.Join(s.disk.Delete(id), s.images.collect(ctx))
	}
	defer s.mu.Unlock()
	t.deleted = true
	return s.removeUnused(t)
}

// removeUnused removes a transient snapshot that nobody needs. It is called with the lock
// held.
func (s *snapshots) removeUnused(t *transient) error {
	if !t.deleted || t.users > 0 {
		return nil
	}
	delete(s.transient, t.ID)
	t.layers.end()
	t.release()
	return t.kept.Remove()
}

// take makes a snapshot of an instance.
func (s *snapshots) take(ctx context.Context, i *instance, req sdk.SnapshotRequest) (made sdk.Snapshot, err error) {
	if i.volumes {
		// A copy would write to files that the original has open.
		refused := sdk.Errorf(sdk.CodeNotSupported, "an instance with volumes cannot be kept as it is: copy its volumes instead")
		refused.Capability, refused.NoEffect = sdk.CapabilitySnapshots, true
		return made, refused
	}
	if !i.sandbox().usual && i.sandbox().template == nil {
		refused := sdk.Errorf(sdk.CodeNotSupported, "an instance with a file system of its own cannot be kept as it is")
		refused.Capability, refused.NoEffect = sdk.CapabilitySnapshots, true
		return made, refused
	}
	// It is not paused meanwhile.
	release, err := i.use()
	if err != nil {
		return made, err
	}
	defer release()
	if !req.Transient {
		if err := s.takeTurn(ctx); err != nil {
			return made, err
		}
		defer s.endTurn()
	}
	c, err := s.checkpoint(ctx, i, req.MaxBytes)
	if err != nil {
		return made, err
	}
	stays := false
	defer func() {
		if !stays {
			err = errors.Join(err, c.Remove())
		}
	}()
	made = sdk.Snapshot{ID: newID(), Labels: maps.Clone(req.Labels), Template: i.Template, CreatedAt: time.Now(), Memory: true}
	if made.Bytes, err = c.Bytes(); err != nil {
		return sdk.Snapshot{}, err
	}
	if req.MaxBytes > 0 && made.Bytes > req.MaxBytes {
		return sdk.Snapshot{}, tooLarge(made.Bytes, req.MaxBytes)
	}
	// Those that the sandbox got since the checkpoint do no harm.
	k := kept{Checkpoint: c, env: i.env, layers: i.sandbox().layers.all()}
	if i.sandbox().template != nil {
		k.image = i.sandbox().template.Image.Image
	}
	release, keep, err := s.images.use(ctx, k.image)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	if req.Transient {
		held, err := s.layers.hold(ctx, k.layers)
		if err != nil {
			release()
			return sdk.Snapshot{}, err
		}
		stays = true
		s.mu.Lock()
		defer s.mu.Unlock()
		s.transient[made.ID] = &transient{Snapshot: made, key: req.IdempotencyKey, kept: k, layers: held, release: release}
		return made, nil
	}
	defer func() {
		release()
		if err != nil {
			err = errors.Join(err, s.images.collect(context.WithoutCancel(ctx)))
		}
	}()
	if err := keep(); err != nil {
		return sdk.Snapshot{}, err
	}
	h, err := s.disk.Write(snapshotfile.Header{
		ID: made.ID, Labels: made.Labels, Template: made.Template, CreatedAt: made.CreatedAt,
		IdempotencyKey: req.IdempotencyKey, MadeWith: s.madeWith, Layers: k.layers, Image: k.image,
	}, req.Key, contentOf(ctx, k))
	if err != nil {
		return sdk.Snapshot{}, noSpace(err)
	}
	if req.MaxBytes > 0 && h.Bytes > req.MaxBytes {
		return sdk.Snapshot{}, errors.Join(tooLarge(h.Bytes, req.MaxBytes), s.disk.Delete(h.ID))
	}
	// Another process of the provider may have looked before the snapshot was there.
	if err := keep(); err != nil {
		return sdk.Snapshot{}, errors.Join(err, s.disk.Delete(h.ID))
	}
	return onDisk(h), nil
}

// takeTurn waits until there may be one checkpoint more in memory. Who gets it owes an endTurn.
func (s *snapshots) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *snapshots) endTurn() { <-s.turn }

// beside is what a checkpoint takes at most beside the memory that its sandbox tells of:
// the guest, and the state of gVisor.
const beside = 64 << 20

// fits says before anything is done whether a snapshot will be too large, and reserves
// the room for it until written is called.
func (s *snapshots) fits(ctx context.Context, i *instance, most int64) (written func(), err error) {
	used, err := i.measure(ctx)
	if err != nil {
		return nil, err
	}
	if most > 0 && used.Memory > most {
		return nil, tooLarge(used.Memory, most)
	}
	return s.reserve(used.Memory + beside)
}

// reserve has so many bytes of the room in memory be nobody else's until written is
// called, when they are taken or not needed any more. What is being written counts twice
// meanwhile.
func (s *snapshots) reserve(bytes int64) (written func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room, err := s.runtime.Room()
	if err != nil {
		return nil, err
	}
	if bytes > room-s.reserved {
		return nil, noRoom()
	}
	s.reserved += bytes
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reserved -= bytes
	}, nil
}

func tooLarge(bytes, most int64) error {
	e := sdk.Errorf(sdk.CodeQuotaExceeded, "the snapshot would take %d MiB, more than the %d MiB that it may: free memory and remove files in the instance", bytes>>20, most>>20)
	e.NoEffect = true
	return e
}

func noRoom() error {
	e := sdk.Errorf(sdk.CodeQuotaExceeded, "the machine has no room for another snapshot at the moment: delete some, or try again later")
	e.NoEffect = true
	return e
}

// checkpoint makes a checkpoint of an instance, if there is room for it.
func (s *snapshots) checkpoint(ctx context.Context, i *instance, most int64) (*runsc.Checkpoint, error) {
	// The guest expects one token at a time: that of a second checkpoint would be in the
	// first one, of which no copy would start.
	done, err := i.writing.Take(ctx, struct{}{})
	if err != nil {
		return nil, err
	}
	defer done()
	written, err := s.fits(ctx, i, most)
	if err != nil {
		return nil, err
	}
	defer written()
	token, err := i.expect(ctx)
	if err != nil {
		return nil, err
	}
	return i.writeDown(ctx, token)
}

func (s *snapshots) warn(err error) {
	if err != nil {
		s.logger.Warn("remove a checkpoint", "error", err)
	}
}

// neededLayers are those that snapshots on the disk need.
func (s *snapshots) neededLayers() (map[string]bool, error) {
	needed := map[string]bool{}
	if s == nil {
		return needed, nil
	}
	headers, err := s.disk.List(s.unreadable)
	for _, h := range headers {
		for _, id := range h.Layers {
			needed[id] = true
		}
	}
	return needed, err
}

// close removes the transient ones.
func (s *snapshots) close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, t := range s.transient {
		t.deleted = true
		errs = append(errs, s.removeUnused(t))
	}
	return errors.Join(errs...)
}

// noSpace explains that the disk is full.
func noSpace(err error) error {
	if errors.Is(err, errDiskFull) {
		return errors.Join(noRoom(), fmt.Errorf("keep a snapshot: %w", err))
	}
	return err
}
