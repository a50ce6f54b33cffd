// Package audited stands between the broker and its providers and takes every call
// that has an effect to the audit log: before it is made, and when it is over. What
// is not in the log does not happen, since there is no other way to a provider.
//
// Start with Recorder, of which each provider has one. What a provider can do beyond
// the interfaces of package sdk does not reach it from here: a new method is either
// recorded in this package or listed as one that only looks (a test compares both
// lists with the client). How the log is written is package audit's.
package audited

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Log is the audit log; audit.Log is it.
type Log interface {
	Begin(ctx context.Context, effect audit.Effect) (*audit.Record, error)
	Tell(what audit.Effect, outcome audit.Outcome, took time.Duration) error
}

// listDelay is how long a list may lack an instance that there is, as in package
// instance: whoever uses it meanwhile, and the commands in it, keep their names.
const listDelay = time.Minute

// Recorder records what is done with one provider. It knows whose the provider's
// instances are: from the labels with which the broker had them made and, of those that
// a process before this one had made, from the labels with which they are first listed.
type Recorder struct {
	label string
	log   Log

	mu    sync.Mutex
	known map[string]*owned // by the provider's ID
}

// owned is an instance and whose it is.
type owned struct {
	tenant, session, id, region string
	// made means that the broker says whose it is, and not the plugin.
	made bool
	// missing is since when the lists lack it; zero if the last one had it.
	missing time.Time
	// commands that run in it, as far as the broker knows, by ID.
	commands map[string]*audit.Record
	// once is set where one effect covers its life.
	once *once
}

// once is the effect of an execution that an instance was made for. It covers the end of
// the instance too.
type once struct {
	// record is nil when the execution has begun.
	record                *audit.Record
	executionID, codeHash string
	// ended means that the end of the instance was tried.
	ended bool
}

// NewRecorder returns a recorder for the provider with that label.
func NewRecorder(label string, log Log) *Recorder {
	return &Recorder{label: label, log: log, known: map[string]*owned{}}
}

// client is what a provider of the plugin host is: all that a plugin may be able to
// do, whether or not it can.
type client interface {
	sdk.Provider
	sdk.Interrupter
	sdk.Contexts
	sdk.Commands
	sdk.Files
	sdk.FileSearcher
	sdk.FileWatcher
	sdk.FileModeSetter
	sdk.Archiver
	sdk.Ports
	sdk.PauseReleaser
	sdk.TTLSetter
	sdk.Meter
	sdk.PackageInstaller
	sdk.TemplateBuilder
	sdk.Snapshotter
	sdk.VolumeKeeper
	sdk.NetworkGovernor
	sdk.Adopter
	Explain(ctx context.Context, err error) error
}

// provider is a client with a recorder. Calls that only look go to the client.
type provider struct {
	client
	recorder *Recorder
}

// Provider returns p with its effects in the log. The error is SB000, for something
// that is no client of a plugin.
func (rec *Recorder) Provider(p sdk.Provider) (sdk.Provider, error) {
	c, ok := p.(client)
	if !ok {
		return nil, sdk.Errorf(sdk.CodeInternal, "the client of provider %q cannot be recorded", rec.label)
	}
	return &provider{client: c, recorder: rec}, nil
}

// effect is what all effects on an instance have.
func (rec *Recorder) effect(ctx context.Context, operation, instanceID string) audit.Effect {
	from := origin.Of(ctx)
	e := audit.Effect{
		Operation: operation, Cause: string(from.Cause), Tenant: from.Tenant, RequestID: from.RequestID, Remote: from.Remote,
		FrontDoor: from.FrontDoor, Provider: rec.label, ProviderInstance: instanceID,
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	// A tenant reaches its own instances only: labels that name another one are wrong.
	if o := rec.known[instanceID]; o != nil && (o.made || e.Tenant == "" || e.Tenant == o.tenant) {
		e.Tenant, e.Session, e.Instance = o.tenant, o.session, o.id
	}
	return e
}

// ofSnapshot puts into an effect which snapshot it is about.
func ofSnapshot(ctx context.Context, e *audit.Effect) {
	if tenant, id, ok := effect.SnapshotOf(ctx); ok {
		e.Tenant, e.SnapshotID = tenant, id
	}
}

// failed puts an error into an outcome: its code, and not the words of a provider.
func failed(ctx context.Context, outcome *audit.Outcome, err error) {
	outcome.Status, outcome.Error = audit.StatusError, sdk.CodeOf(err)
	if ctx.Err() != nil {
		outcome.Status = string(sdk.StatusCancelled)
	}
}

// region is what the provider said of where an instance is.
func (rec *Recorder) region(instanceID string) string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if o := rec.known[instanceID]; o != nil {
		return o.region
	}
	return ""
}

// made remembers whose an instance is that the provider has just made, and the effect that
// covers its life, if one does. An instance that the provider had given out before stays
// with whom it belongs to; made returns false for it.
func (rec *Recorder) made(i sdk.Instance, labels map[string]string, covering *once) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.remember(i)
	if o.made {
		return false
	}
	o.made, o.once = true, covering
	o.tenant, o.session, o.id = labels[sdk.LabelTenant], labels[sdk.LabelSession], idOf(labels)
	return true
}

// begunFor returns the record of an execution that was begun with the creation of its
// instance, once.
func (rec *Recorder) begunFor(req sdk.ExecuteRequest) *audit.Record {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.known[req.InstanceID]
	if o == nil || o.once == nil || o.once.executionID != req.ExecutionID || o.once.codeHash != hashOf(req.Code) {
		return nil
	}
	r := o.once.record
	o.once.record = nil
	return r
}

// coversEnd reports, once, whether the end of an instance has its line already.
func (rec *Recorder) coversEnd(instanceID string) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.known[instanceID]
	if o == nil || o.once == nil || o.once.ended {
		return false
	}
	o.once.ended = true
	return true
}

// listed learns of an instance that the provider lists what is not known yet.
func (rec *Recorder) listed(i sdk.Instance) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.remember(i)
	o.missing = time.Time{}
	if o.id == "" && (o.tenant == "" || o.tenant == i.Labels[sdk.LabelTenant]) {
		o.tenant, o.session, o.id = i.Labels[sdk.LabelTenant], i.Labels[sdk.LabelSession], idOf(i.Labels)
	}
}

// remember returns what is known of an instance. The caller holds mu.
func (rec *Recorder) remember(i sdk.Instance) *owned {
	o := rec.known[i.ID]
	if o == nil {
		o = &owned{commands: map[string]*audit.Record{}}
		rec.known[i.ID] = o
	}
	o.region = cmp.Or(o.region, i.Metadata["region"])
	return o
}

// unlisted takes down that a list lacks instances, and forgets those that the lists have
// lacked for as long as patience.
func (rec *Recorder) unlisted(ids map[string]bool, patience time.Duration) {
	var gone []string
	now := time.Now()
	rec.mu.Lock()
	for id := range ids {
		o := rec.known[id]
		if o == nil {
			continue
		}
		if o.missing.IsZero() {
			o.missing = now
		}
		if now.Sub(o.missing) >= patience {
			gone = append(gone, id)
		}
	}
	rec.mu.Unlock()
	for _, id := range gone {
		rec.forget(id)
	}
}

// idOf is the broker's name for an instance, "" for labels that are not ours.
func idOf(labels map[string]string) string {
	parts := []string{labels[sdk.LabelTenant], labels[sdk.LabelSession], labels[sdk.LabelInstance]}
	if slices.Contains(parts, "") {
		return ""
	}
	return strings.Join(parts, ":")
}

// all returns the instances that are known.
func (rec *Recorder) all() map[string]bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	ids := map[string]bool{}
	for id := range rec.known {
		ids[id] = true
	}
	return ids
}

// forget drops an instance that is gone. Nobody will ever know what became of the
// commands in it.
func (rec *Recorder) forget(instanceID string) {
	rec.mu.Lock()
	o := rec.known[instanceID]
	delete(rec.known, instanceID)
	rec.mu.Unlock()
	if o == nil {
		return
	}
	if o.once != nil && o.once.record != nil {
		_ = o.once.record.End(audit.Outcome{Status: string(sdk.StatusCancelled), Made: instanceID, Detail: "the instance ended before the code was to run"})
	}
	for _, id := range slices.Sorted(maps.Keys(o.commands)) {
		_ = o.commands[id].End(audit.Outcome{Status: audit.StatusUnknown, Made: id, Detail: "the instance ended"}) // the log owes it
	}
}

// started remembers a command whose end is to come.
func (rec *Recorder) started(instanceID, commandID string, r *audit.Record) bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.known[instanceID]
	if o == nil || o.commands[commandID] != nil {
		return false
	}
	o.commands[commandID] = r
	return true
}

// ended gives back a command's record, to whoever is the first to see its end.
func (rec *Recorder) ended(instanceID, commandID string) *audit.Record {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	o := rec.known[instanceID]
	if o == nil {
		return nil
	}
	r := o.commands[commandID]
	delete(o.commands, commandID)
	return r
}
