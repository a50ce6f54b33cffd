package provider

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/snapshotbook"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

var _ sdk.Snapshotter = (*Provider)(nil)

// A snapshot of E2B has a name and nothing else that is ours. The name says whose it is and
// which, so that one whose creation was not answered is found again, and so that another
// broker's are let alone. What more the contract asks for is in the book.

// snapshots are those of a provider.
type snapshots struct {
	*Provider
	book *snapshotbook.Book
	// naming is held by who makes or deletes the snapshot of a name.
	naming keylock.Locks[string]
	// undeleted are those that E2B could not delete yet, and erasedAt is when it was asked
	// last; both are guarded by the provider's mu.
	undeleted map[string]bool
	erasedAt  time.Time
}

// snapshotName is the form of our names: of which broker, by which key, and the ID that the
// broker has given it. E2B makes them lower case by itself.
var snapshotName = regexp.MustCompile(`^sb-([0-9a-f]{16})-([0-9a-f]{32})-([a-z2-7]{0,` + fmt.Sprint(maxSnapshotLabel*8/5+1) + `})$`)

// maxSnapshotLabel bounds the ID that the broker gives a snapshot, in bytes.
const maxSnapshotLabel = 60

// referenceForm is what E2B calls a snapshot: nothing else goes into a path.
var referenceForm = regexp.MustCompile(`^([a-zA-Z0-9_-]+/)?[a-zA-Z0-9_-]+(:[a-zA-Z0-9_.-]+)?$`)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func sumOf(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}

// nameSnapshot is the name of the snapshot that a request asks for.
func (p *snapshots) nameSnapshot(req sdk.SnapshotRequest) (string, error) {
	label := req.Labels[sdk.LabelSnapshot]
	if len(label) > maxSnapshotLabel {
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels", "the label %s has more than %d bytes", sdk.LabelSnapshot, maxSnapshotLabel)
	}
	key := req.IdempotencyKey
	if key == "" {
		key = remote.NewName()
	}
	return fmt.Sprintf("sb-%s-%s-%s", sumOf(p.brokerID, 16), sumOf(key, 32), lowerBase32.EncodeToString([]byte(label))), nil
}

// ownSnapshot says whether a name is that of a snapshot of this broker, and which ID the
// broker has given it.
func (p *snapshots) ownSnapshot(name string) (label string, own bool) {
	parts := snapshotName.FindStringSubmatch(name)
	if parts == nil || parts[1] != sumOf(p.brokerID, 16) {
		return "", false
	}
	text, err := lowerBase32.DecodeString(parts[3])
	return string(text), err == nil
}

// open opens the book. Where nothing outlives the process, neither do they.
func (p *snapshots) open(req sdk.ConfigureRequest) (err error) {
	dir := req.KeepDir
	if dir == "" {
		dir = req.StateDir
	}
	if p.book, err = snapshotbook.Open(filepath.Join(dir, "snapshots")); err != nil {
		return err
	}
	names, err := p.book.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		note, known, err := p.book.Read(name)
		if err != nil {
			return err
		}
		if known && note.Deleted {
			p.undeleted[name] = true
		}
	}
	return nil
}

// keptContent is what a copy is to have beside what is in the snapshot.
type keptContent struct {
	Env      map[string]string `json:"env,omitempty"`
	Contexts []keptContext     `json:"contexts,omitempty"`
}

type keptContext struct {
	contexts.Saved
	// Busy says that code ran in it.
	Busy bool `json:"busy,omitempty"`
}

func errNoSnapshots(format string, args ...any) error {
	refused := sdk.Errorf(sdk.CodeNotSupported, format, args...)
	refused.Capability, refused.NoEffect = sdk.CapabilitySnapshots, true
	return refused
}

func snapshotOf(name string, note snapshotbook.Note) sdk.Snapshot {
	return sdk.Snapshot{ID: name, Labels: note.Labels, Template: note.Template, CreatedAt: note.CreatedAt, Memory: note.Memory}
}

// Snapshot implements sdk.Snapshotter.
func (p *Provider) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	return p.snapshots.make(ctx, req)
}

// ListSnapshots implements sdk.Snapshotter.
func (p *Provider) ListSnapshots(ctx context.Context) ([]sdk.Snapshot, error) {
	return p.snapshots.list(ctx)
}

// DeleteSnapshot implements sdk.Snapshotter.
func (p *Provider) DeleteSnapshot(ctx context.Context, snapshotID string) error {
	return p.snapshots.delete(ctx, snapshotID)
}

// make makes a snapshot, unless there is one of that key. E2B keeps memory with the files. An
// instance in which commands run is kept without, as far as the broker is told: E2B does not
// say again what a command has printed, so that a copy could not go on with it.
func (p *snapshots) make(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	if len(req.Key) != sdk.SnapshotKeyBytes {
		return sdk.Snapshot{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "key", "must have %d bytes", sdk.SnapshotKeyBytes)
	}
	name, err := p.nameSnapshot(req)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	release, err := p.naming.Take(ctx, name)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	defer release()
	if made, is, err := p.madeSnapshot(ctx, name); is || err != nil {
		return made, err
	}
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	note, err := sb.note(ctx, req, name)
	if err != nil {
		return sdk.Snapshot{}, err
	}
	if err := p.book.Write(name, note); err != nil {
		return sdk.Snapshot{}, err
	}
	var effect retry.Effect
	made, err := sb.keep(ctx, name, &effect)
	if err != nil {
		if effect.None() {
			p.forgetNote(name)
		}
		return sdk.Snapshot{}, effect.Error(p.explainSnapshot(ctx, sb, err))
	}
	note.Reference = made.SnapshotID
	if err := p.book.Write(name, note); err != nil { // it is found by its name as well
		p.logger.Warn("what E2B calls a snapshot could not be written down", "snapshot", name, "error", err)
	}
	return snapshotOf(name, note), nil
}

// madeSnapshot finds what an earlier call with the same key has made.
func (p *snapshots) madeSnapshot(ctx context.Context, name string) (sdk.Snapshot, bool, error) {
	note, known, err := p.book.Read(name)
	switch {
	case err != nil || !known:
		return sdk.Snapshot{}, false, err
	case note.Deleted:
		return sdk.Snapshot{}, false, sdk.Errorf(sdk.CodeConflict, "the snapshot of this key is being deleted")
	}
	found, is, err := p.findSnapshot(ctx, name)
	if err != nil || !is {
		return sdk.Snapshot{}, false, p.failure(err)
	}
	note.Reference = found.SnapshotID
	return snapshotOf(name, note), true, p.book.Write(name, note)
}

// note describes an instance as it is now.
func (sb *sandbox) note(ctx context.Context, req sdk.SnapshotRequest, name string) (snapshotbook.Note, error) {
	env, err := sb.globalEnv(ctx)
	if err != nil {
		return snapshotbook.Note{}, sb.explain(ctx, err)
	}
	known, err := sb.p.Contexts(ctx, sb.id, sb)
	if err != nil {
		return snapshotbook.Note{}, err
	}
	content := keptContent{Env: map[string]string{}}
	for name, value := range env {
		if !slices.Contains(ofE2B, name) {
			content.Env[name] = value
		}
	}
	for _, c := range known {
		content.Contexts = append(content.Contexts, keptContext{c.Saved(), contexts.State(c).Busy})
	}
	note := snapshotbook.Note{Labels: req.Labels, Template: sb.template, CreatedAt: time.Now(), Memory: !sb.hasCommands()}
	note.Sealed, err = snapshotbook.Seal(req.Key, name, content)
	return note, err
}

// ofE2B are the variables that E2B gives each sandbox by itself.
var ofE2B = []string{"E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID", "E2B_EVENTS_ADDRESS"}

// hasCommands says whether any command runs.
func (sb *sandbox) hasCommands() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return slices.ContainsFunc(sb.commands, func(c *command) bool { return c.snapshot().State == sdk.CommandRunning })
}

// errPaused says that nothing can be kept of the instance now.
var errPaused = sdk.Errorf(sdk.CodeConflict, "the instance is paused")

// keep has E2B keep the sandbox. Before it asks again it looks for what it has asked for
// before.
func (sb *sandbox) keep(ctx context.Context, name string, effect *retry.Effect) (control.Snapshot, error) {
	sb.halts()
	return retry.Do(ctx, betweenStates, func(ctx context.Context) (control.Snapshot, error) {
		made, err := sb.p.api.Snapshot(ctx, sb.id, name)
		if err == nil {
			return made, sb.p.snapshots.checkMade(ctx, name, made)
		}
		e, answered := errors.AsType[*e2bhttp.Error](err)
		switch {
		case remote.NotSent(err):
			return made, retry.Again(err, 0)
		case answered && e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
			return made, retry.Again(err, e.RetryAfter)
		case answered && e.Status == http.StatusConflict:
			detail, inspected := sb.p.inspect(ctx, sb.id)
			switch {
			case inspected != nil:
				return made, inspected
			case detail.State == control.StatePaused:
				return made, errPaused
			}
			return made, retry.Again(err, 0)
		case denied(err), answered && e.Status == http.StatusNotImplemented:
			return made, err
		}
		effect.Possible()
		if !answered && !isLost(err) {
			return made, err
		}
		found, is, looked := sb.p.snapshots.lookForSnapshot(ctx, name)
		switch {
		case is, looked != nil:
			return found, looked
		}
		return made, retry.Again(err, 0)
	})
}

// checkMade refuses a snapshot that could not be found again by its name, and deletes it.
func (p *snapshots) checkMade(ctx context.Context, name string, made control.Snapshot) error {
	if referenceForm.MatchString(made.SnapshotID) && slices.Contains(made.ShortNames(), name) {
		return nil
	}
	if referenceForm.MatchString(made.SnapshotID) {
		if err := p.api.DeleteSnapshot(context.WithoutCancel(ctx), made.SnapshotID); err != nil {
			p.logger.Warn("a snapshot that is no good could not be deleted", "snapshot", made.SnapshotID, "error", p.failure(err))
		}
	}
	return errNoSnapshots("the cloud does not give a snapshot the name that it is asked for")
}

// findSnapshot asks for the snapshot of a name.
func (p *snapshots) findSnapshot(ctx context.Context, name string) (control.Snapshot, bool, error) {
	all, err := again(ctx, p.retry, func(ctx context.Context) ([]control.Snapshot, error) { return p.api.Snapshots(ctx, name) })
	for _, one := range all {
		if slices.Contains(one.ShortNames(), name) && referenceForm.MatchString(one.SnapshotID) {
			return one, true, nil
		}
	}
	return control.Snapshot{}, false, err
}

// lookForSnapshot looks for one whose creation was not answered. It may turn up a little
// later.
func (p *snapshots) lookForSnapshot(ctx context.Context, name string) (found control.Snapshot, is bool, err error) {
	for _, pause := range p.patience.looks {
		if err := remote.Pause(ctx, pause); err != nil {
			return found, false, err
		}
		if found, is, err = p.findSnapshot(ctx, name); is {
			return found, true, nil
		}
	}
	return found, false, err
}

// explainSnapshot says why there is no snapshot.
func (p *snapshots) explainSnapshot(ctx context.Context, sb *sandbox, err error) error {
	switch status := statusOf(err); {
	case isAbsent(err, sb.id):
		if _, gone := p.inspect(ctx, sb.id); gone != nil {
			return gone
		}
		return p.redact.Error(errNoSnapshots("the cloud makes no snapshots: %w", err))
	case status == http.StatusConflict:
		return p.redact.Error(sdk.Errorf(sdk.CodeConflict, "the instance is between two states: %w", err))
	case status == http.StatusBadRequest, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return p.redact.Error(errNoSnapshots("E2B makes no snapshot of this instance; its template may have too old an envd: %w", err))
	}
	return p.failure(err)
}

// list is what E2B has of this broker's. One that nothing is known of any more has the labels
// that its name tells.
func (p *snapshots) list(ctx context.Context) ([]sdk.Snapshot, error) {
	all, err := again(ctx, p.retry, func(ctx context.Context) ([]control.Snapshot, error) { return p.api.Snapshots(ctx, "") })
	if lacksSnapshots(err) {
		return nil, nil
	}
	if err != nil {
		return nil, p.failure(err)
	}
	there := map[string]bool{}
	var list []sdk.Snapshot
	for _, one := range all {
		for _, name := range one.ShortNames() {
			label, own := p.ownSnapshot(name)
			if !own || there[name] {
				continue
			}
			there[name] = true
			note, known, err := p.book.Read(name)
			switch {
			case err != nil:
				return nil, err
			case !known:
				list = append(list, sdk.Snapshot{ID: name, Labels: map[string]string{sdk.LabelBroker: p.brokerID, sdk.LabelSnapshot: label}})
			case !note.Deleted:
				list = append(list, snapshotOf(name, note))
			}
		}
	}
	p.forgetOldNotes(there)
	return list, nil
}

// lacksSnapshots says that a cloud speaks the protocol and has no list of snapshots, and so
// none.
func lacksSnapshots(err error) bool {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	return answered && e.Own && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented)
}

// rememberUnmade is how long a snapshot is known that E2B does not list.
const rememberUnmade = 24 * time.Hour

// forgetOldNotes forgets what E2B does not have, except lately.
func (p *snapshots) forgetOldNotes(there map[string]bool) {
	names, err := p.book.Names()
	if err != nil {
		p.logger.Warn("what is known of snapshots cannot be read", "error", err)
		return
	}
	for _, name := range names {
		if there[name] {
			continue
		}
		if note, known, err := p.book.Read(name); err == nil && known && time.Since(note.CreatedAt) > rememberUnmade {
			p.forgetNote(name)
		}
	}
}

func (p *snapshots) forgetNote(name string) {
	if err := p.book.Remove(name); err != nil {
		p.logger.Warn("what was written down about a snapshot that is gone is left", "snapshot", name, "error", err)
	}
}

// delete deletes a snapshot. E2B deletes none while sandboxes are there that were made of it:
// until then it is no snapshot any more to the broker, and deleted later.
func (p *snapshots) delete(ctx context.Context, snapshotID string) error {
	if _, own := p.ownSnapshot(snapshotID); !own {
		return nil
	}
	release, err := p.naming.Take(ctx, snapshotID)
	if err != nil {
		return err
	}
	defer release()
	note, _, err := p.book.Read(snapshotID)
	if err != nil {
		return err
	}
	if note.Reference == "" {
		found, is, err := p.findSnapshot(ctx, snapshotID)
		switch {
		case err != nil && !lacksSnapshots(err):
			return p.failure(err)
		case !is:
			return p.book.Remove(snapshotID)
		}
		note.Reference = found.SnapshotID
	}
	used, err := p.erase(ctx, note.Reference)
	switch {
	case err != nil:
		return p.failure(fmt.Errorf("delete the snapshot: %w", err))
	case !used:
		return p.book.Remove(snapshotID)
	}
	note.Deleted, note.Sealed = true, nil
	if note.CreatedAt.IsZero() {
		note.CreatedAt = time.Now()
	}
	if err := p.book.Write(snapshotID, note); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undeleted[snapshotID] = true
	return nil
}

// erase deletes a snapshot at E2B, unless it is in use there.
func (p *snapshots) erase(ctx context.Context, reference string) (used bool, err error) {
	_, err = again(ctx, p.retry, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.api.DeleteSnapshot(ctx, reference) })
	e, answered := errors.AsType[*e2bhttp.Error](err)
	switch {
	case answered && e.Own && e.Status == http.StatusNotFound:
		return false, nil
	case answered && e.Own && e.Status == http.StatusBadRequest:
		return true, nil
	}
	return false, err
}

// eraseSoon has those deleted that were in use at the next look: a sandbox has ended.
func (p *snapshots) eraseSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erasedAt = time.Time{}
}

// keepErasing deletes, until the provider ends, what was in use. It has a goroutine of its
// own: leases are renewed in time whatever becomes of it.
func (p *snapshots) keepErasing() {
	ticker := time.NewTicker(p.patience.renewals)
	defer ticker.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
			p.eraseDeleted(p.life, time.Now())
		}
	}
}

// eraseDeleted deletes those at E2B that were in use.
func (p *snapshots) eraseDeleted(ctx context.Context, now time.Time) {
	p.mu.Lock()
	var names []string
	if now.Sub(p.erasedAt) >= p.patience.erasures {
		p.erasedAt = now
		for name := range p.undeleted {
			names = append(names, name)
		}
	}
	p.mu.Unlock()
	for _, name := range names {
		note, known, err := p.book.Read(name)
		used := false
		if err == nil && known && note.Deleted {
			used, err = p.erase(ctx, note.Reference)
		}
		switch {
		case err != nil:
			p.logger.Debug("a snapshot that was deleted is at E2B yet; it is tried again", "snapshot", name, "error", p.failure(err))
			continue
		case used:
			continue
		}
		p.forgetNote(name)
		p.mu.Lock()
		delete(p.undeleted, name)
		p.mu.Unlock()
	}
}

// halts notes that the sandbox may stand still for a moment, and that what listens to it may
// be cut off: E2B starts its machine afresh where it cannot keep it in place.
func (sb *sandbox) halts() {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.pauses++
}

// wasCut says whether the stream of a job may have been cut by a pause, or by a snapshot.
func (sb *sandbox) wasCut(j *job) bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	knows, listens := sb.listeners[j]
	return listens && knows < sb.pauses
}
