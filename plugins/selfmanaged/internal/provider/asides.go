package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestcalls"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/pool"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/snapshotfile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// asides put paused instances on the disk, where they hold no memory of the machine. A nil one
// has nowhere to put them: they are frozen.
type asides struct {
	dir    string
	disk   *snapshotfile.Dir
	logger hclog.Logger
	// snapshots bound what of checkpoints is in memory at a time.
	snapshots *snapshots
	sandboxes *maker
	place     func(context.Context, pool.Request) error
	release   func()
	patience  time.Duration // for a place
	inTurn    time.Duration // for a turn
	most      int64         // bytes on the disk

	mu sync.Mutex
	// used is what is on the disk, and what is being written there.
	used, count int64
}

// placePatience is how long a resume waits for a place at most, and turnPatience how long it and
// a pause wait for others that are in memory: whoever asks gives up after 30 seconds, and shall
// know before that nothing was done.
const (
	placePatience = 10 * time.Second
	turnPatience  = 10 * time.Second
)

// aside is an instance on the disk.
type aside struct {
	all *asides
	id  string
	// key is nowhere else: what is on the disk is of no use to anybody after this process.
	key   []byte
	bytes int64
	// layers and image are what its sandbox had, and stay for the next one.
	layers *usedLayers
	image  func()
}

// openAsides returns nil where there can be none, or shall be none.
func openAsides(p *Provider, req sdk.ConfigureRequest) (*asides, error) {
	if p.snapshots == nil || p.settings.PausedMB == 0 {
		return nil, nil
	}
	dir := filepath.Join(req.StateDir, "paused")
	// Nobody has the keys of what an earlier process left.
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("remove what was paused before: %w", err)
	}
	disk, err := snapshotfile.Open(dir)
	if err != nil {
		return nil, err
	}
	return &asides{
		dir: dir, disk: disk, logger: p.logger, snapshots: p.snapshots, sandboxes: p.sandboxes,
		place: p.pool.Place, release: p.pool.Release, patience: min(p.settings.QueueTimeout, placePatience), inTurn: turnPatience, most: p.settings.PausedMB << 20,
	}, nil
}

// close removes what is left. No instance is there any more.
func (a *asides) close() error {
	if a == nil {
		return nil
	}
	return os.RemoveAll(a.dir)
}

// metrics are the figures for the operator.
func (a *asides) metrics() []sdk.Metric {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return []sdk.Metric{
		{Name: "paused_on_disk_instances", Help: "Paused instances that are on the disk and hold no memory.", Kind: sdk.MetricGauge, Value: float64(a.count)},
		{Name: "paused_on_disk_bytes", Help: "What paused instances take on the disk.", Kind: sdk.MetricGauge, Value: float64(a.used)},
	}
}

// can says whether an instance can be put aside.
func (a *asides) can(i *instance) bool {
	if a == nil || i.volumes {
		return false
	}
	s := i.sandbox()
	_, able := s.running.(checkpointable)
	return able && (s.usual || s.template != nil)
}

// take claims room on the disk until it is given back.
func (a *asides) take(bytes int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+bytes > a.most {
		return noRoomAside()
	}
	a.used += bytes
	return nil
}

func (a *asides) give(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= bytes
}

func noRoomAside() error {
	e := sdk.Errorf(sdk.CodeQuotaExceeded, "the machine has no room for another paused instance at the moment: destroy or resume some, or try again later")
	e.NoEffect = true
	return e
}

// put has an instance that nobody uses stand still: on the disk, where that can be, or else
// frozen. One that has only no room goes on, which the error says. released says that it
// holds no memory any more.
func (a *asides) put(ctx context.Context, i *instance) (released bool, err error) {
	if !a.can(i) {
		return false, i.freeze(ctx)
	}
	if err := a.takeTurn(ctx); err != nil {
		return false, err
	}
	defer a.snapshots.endTurn()
	done, err := i.writing.Take(ctx, struct{}{})
	if err != nil {
		return false, err
	}
	defer done()
	written, err := a.snapshots.fits(ctx, i, 0)
	if err != nil {
		return false, noPlaceFor(err)
	}
	defer written()
	token, err := i.expect(ctx)
	if err != nil {
		return false, err
	}
	// First it stands still: what it did after it was written down would be undone.
	if err := i.freeze(ctx); err != nil {
		return false, err
	}
	kept, err := a.write(ctx, i, token)
	switch {
	case err == nil:
		return a.leave(ctx, i, kept)
	case sdk.CodeOf(err) == sdk.CodeQuotaExceeded, ctx.Err() != nil:
		i.thaw(ctx)
		return false, noPlaceFor(err)
	}
	select {
	case <-i.sandbox().Exited():
		return false, i.Lost(ctx)
	default:
	}
	// It stands still, which is what was asked for.
	i.logger.Warn("a paused instance is frozen and keeps its memory: it could not be written down", "instance", i.ID, "error", err)
	return false, nil
}

// takeTurn waits until there may be one checkpoint more in memory, and not too long.
func (a *asides) takeTurn(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, a.inTurn)
	defer cancel()
	err := a.snapshots.takeTurn(waiting)
	if err != nil && ctx.Err() == nil {
		busy := sdk.Errorf(sdk.CodeQuotaExceeded, "too many instances are being paused and resumed at the moment: try again later")
		busy.NoEffect = true
		return busy
	}
	return err
}

// noPlaceFor says of a pause what snapshots say of themselves.
func noPlaceFor(err error) error {
	if sdk.CodeOf(err) == sdk.CodeQuotaExceeded {
		return errors.Join(noRoomAside(), err)
	}
	return err
}

// write puts a frozen sandbox on the disk.
func (a *asides) write(ctx context.Context, i *instance, token []byte) (_ *aside, err error) {
	c, err := i.writeDown(ctx, token)
	if err != nil {
		return nil, err
	}
	defer func() { a.snapshots.warn(c.Remove()) }()
	s := i.sandbox()
	k := kept{Checkpoint: c, layers: s.layers.all()}
	if s.template != nil {
		k.image = s.template.Image.Image
	}
	about, err := c.Bytes()
	if err != nil {
		return nil, err
	}
	if err := a.take(about); err != nil {
		return nil, err
	}
	defer a.give(about)
	put := &aside{all: a, id: newID(), key: make([]byte, snapshotfile.KeyBytes)}
	_, _ = rand.Read(put.key) // never fails since Go 1.24
	if put.image, _, err = a.snapshots.images.use(ctx, k.image); err != nil {
		return nil, err
	}
	if put.layers, err = a.snapshots.layers.hold(ctx, k.layers); err != nil {
		put.image()
		return nil, err
	}
	h, err := a.disk.Write(snapshotfile.Header{
		ID: put.id, Template: i.Template, CreatedAt: time.Now(), Layers: k.layers, Image: k.image,
	}, put.key, contentOf(ctx, k))
	if err != nil {
		put.layers.end()
		put.image()
		return nil, noSpace(err)
	}
	put.bytes = h.Bytes
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used += h.Bytes
	a.count++
	return put, nil
}

// leave ends the sandbox of an instance that is on the disk, and gives back its place.
func (a *asides) leave(ctx context.Context, i *instance, put *aside) (released bool, err error) {
	s := i.sandbox()
	if !i.putAside(put) {
		return false, errors.Join(sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed"), put.remove())
	}
	i.network.pause()
	a.end(ctx, i, s)
	return true, nil
}

// end ends a sandbox that nobody is in, and gives back its place.
func (a *asides) end(ctx context.Context, i *instance, s *sandbox) {
	defer a.release()
	// A frozen guest does not see that it shall end.
	killed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	if err := s.Destroy(killed); err != nil {
		i.logger.Warn("end the sandbox of a paused instance", "instance", i.ID, "error", err)
	}
}

// back has an instance go on in a new sandbox. Where that does not work it stays aside.
func (a *asides) back(ctx context.Context, i *instance, put *aside) error {
	err := a.place(ctx, pool.Request{Tenant: i.Labels[sdk.LabelTenant], Patience: a.patience})
	if err != nil {
		if sdk.CodeOf(err) == sdk.CodeCreateFailed { // nobody has made anything
			err = errors.Join(noPlaceToResume(), err)
		}
		return err
	}
	s, err := a.start(ctx, put)
	if err != nil {
		a.release()
		return a.explain(ctx, i, err)
	}
	s.past = i.sandbox().past
	if !i.bringBack(s) {
		a.end(ctx, i, s)
		return sdk.Errorf(sdk.CodeNotFound, "the instance was destroyed")
	}
	if err := put.remove(); err != nil {
		i.logger.Warn("remove what was written of a paused instance", "instance", i.ID, "error", err)
	}
	return nil
}

// start starts a sandbox that goes on from what is on the disk.
func (a *asides) start(ctx context.Context, put *aside) (*sandbox, error) {
	if err := a.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer a.snapshots.endTurn()
	f, err := a.disk.Read(put.id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	written, err := a.snapshots.reserve(f.Header.Bytes)
	if err != nil {
		return nil, noMemoryToResume()
	}
	defer written()
	content, err := f.Content(put.key)
	if err != nil {
		return nil, err
	}
	k, err := checkpointFrom(ctx, a.snapshots.runtime, content)
	if err != nil {
		return nil, err
	}
	defer func() { a.snapshots.warn(k.Remove()) }()
	k.layers, k.image = f.Header.Layers, f.Header.Image
	making, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	return a.sandboxes.startFrom(making, k, func(s *sandbox) error { return s.guest.GoOn(making) })
}

func noPlaceToResume() error {
	e := sdk.Errorf(sdk.CodeQuotaExceeded, "there is no room for the instance among the sandboxes that may run; it stays paused: try again later")
	e.NoEffect = true
	return e
}

func noMemoryToResume() error {
	e := sdk.Errorf(sdk.CodeQuotaExceeded, "the machine has no memory for the instance at the moment; it stays paused: try again later")
	e.NoEffect = true
	return e
}

// explain says why an instance stays aside; the details are for the log.
func (a *asides) explain(ctx context.Context, i *instance, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case sdk.CodeOf(err) == sdk.CodeQuotaExceeded:
		return err
	}
	i.logger.Error("an instance stays paused: it could not be started from the disk", "instance", i.ID, "error", err)
	if errors.Is(err, runsc.ErrUnlike) {
		return sdk.Errorf(sdk.CodeConflict, "the instance was paused with other files or limits than sandboxes have now, and cannot go on: destroy it")
	}
	return sdk.Errorf(sdk.CodeUnavailable, "the instance could not be started from the disk and stays paused; the log of the broker says why")
}

// remove removes what is on the disk, once.
func (p *aside) remove() error {
	p.layers.end()
	p.image()
	p.all.mu.Lock()
	p.all.used -= p.bytes
	p.all.count--
	p.all.mu.Unlock()
	return p.all.disk.Delete(p.id)
}

// expect tells the guest the token with which it is reached in a copy.
func (i *instance) expect(ctx context.Context) (token []byte, err error) {
	token = make([]byte, stdio.TokenBytes)
	_, _ = rand.Read(token) // never fails since Go 1.24
	bounded, cancel := context.WithTimeoutCause(ctx, guestcalls.AnswerBound, guestcalls.ErrNoAnswer)
	defer cancel()
	if err := i.sandbox().guest.Expect(bounded, token); err != nil {
		return nil, guestcalls.Explain(ctx, bounded, i, err)
	}
	return token, nil
}

// writeDown makes a checkpoint of a sandbox whose guest expects the token.
func (i *instance) writeDown(ctx context.Context, token []byte) (*runsc.Checkpoint, error) {
	raw, can := i.sandbox().running.(checkpointable)
	if !can {
		return nil, noSnapshots()
	}
	writing, stop := context.WithTimeout(ctx, checkpointTimeout)
	defer stop()
	c, err := raw.Checkpoint(writing, newID(), token)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, runsc.ErrNoRoom):
		i.logger.Warn("a sandbox cannot be written down", "instance", i.ID, "error", err)
		return nil, noRoom()
	}
	i.logger.Warn("a sandbox cannot be written down", "instance", i.ID, "error", err)
	return nil, sdk.Errorf(sdk.CodeUnavailable, "the sandbox could not be written down; the log of the broker says why")
}
