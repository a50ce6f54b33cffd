package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/instance/registry"
	"github.com/sandbox-broker/sandbox-broker/broker/network"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/placement"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// CreateRequest asks for an instance.
type CreateRequest struct {
	// Session of the tenant; empty for one of the service's own making.
	Session string
	// Template or Language say what the instance is for; both may be empty.
	Template, Language string
	// Provider by label; empty for the usual one.
	Provider string
	// Requirements are packages of the language, or of the template's first, to
	// install before Create returns.
	Requirements []string
	// Env is added to the environment of every execution.
	Env map[string]string
	// Labels are the tenant's own notes, by which it finds instances again.
	Labels map[string]string
	// TTL is how long it lives from its creation, and again from the end of
	// each use; zero means the default, and of a Fixed one the longest there is.
	TTL time.Duration
	// Idle is how long it may be unused before it is destroyed, whatever is
	// left of the TTL; zero means the longest there is.
	Idle time.Duration
	// Fixed ends it when its TTL is over, whatever uses it or goes on in it then: nothing
	// but a renewal moves its end. It has no idle limit.
	Fixed bool
	// PauseAtEnd has it paused when its time is over, instead of destroyed, and kept until
	// the end of its maximum lifetime. Its provider must be able to.
	PauseAtEnd bool
	// FrontDoor names the front door that asks; empty for the broker's own API. Note is
	// what that has to know of the instance, without secrets, and means nothing to the
	// service. An instance that is there keeps what it was made with.
	FrontDoor, Note string
	// Volumes that code finds in it, all of the provider that Provider names.
	Volumes []Volume
	// Network asks for a part of what the tenant's network is, or for none; nil for all of it
	// where the provider has networks. Who asks, also for none, gets a provider that has. Of an
	// instance that goes on from a snapshot it asks for a part of what the original asked for.
	Network *network.Request
	// Key is the caller's own name for this request; empty for none. Without a
	// session, one that is made from the key takes its place: who asks again with
	// the key gets the same instance.
	Key string

	// Snapshot is what the instance goes on from; nil for a fresh one.
	Snapshot *Source

	// oneShot instances are destroyed after one execution.
	oneShot bool
	// reuse lets such an instance be one that the tenant had before.
	reuse bool

	// Wait is how long it may wait for its turn where a quota or the provider has
	// no room.
	Wait time.Duration

	// Languages and Capabilities that the provider must have; the request for one
	// by name is refused without them.
	Languages    []string
	Capabilities []sdk.Capability

	turn turn
	// network is what Network and the snapshot come to.
	network *network.Request
	// granted, if not nil, is for a fresh instance.
	granted *quota.Instance
	attempt attempt
}

// Source is what an instance goes on from. Its provider and its template are those of the
// request.
type Source struct {
	// From is the ID of the snapshot, or of the instance that the new one is a fork of.
	From string
	// Fork says that it is one copy of several, which are all made or none: a session that
	// has one of another attempt has not the one that is asked for.
	Fork bool
	// SnapshotID is the broker's name for the snapshot behind it, ProvidersID the
	// provider's, and Key opens it.
	SnapshotID, ProvidersID string
	Key                     []byte
	// Contexts are the default contexts that the original had, by language.
	Contexts map[string]string
	// Network is what the original asked for, then; nil for what its tenant has.
	Network *network.Request
}

// maxNote bounds the note of a front door, in bytes: the journal writes it with every
// change of the instance.
const maxNote = 8 << 10

func checkCreate(req CreateRequest, limits Limits) error {
	if req.Session != "" && !sessionName.MatchString(req.Session) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "session_id", "must be 1 to 64 of A-Z a-z 0-9 _ . -")
	}
	if req.TTL < 0 || req.TTL > limits.MaxLifetime {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "ttl", "must be more than 0 and at most %s", seconds(limits.MaxLifetime))
	}
	if req.Idle < 0 || req.Idle > limits.MaxIdle {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "idle", "must be more than 0 and at most %s", seconds(limits.MaxIdle))
	}
	if req.Fixed && req.Idle != 0 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "idle", "does not go with an end that is fixed")
	}
	if len(req.Note) > maxNote || !utf8.ValidString(req.Note) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "note", "must have at most %d bytes of UTF-8", maxNote)
	}
	if err := CheckLabels(req.Labels); err != nil {
		return err
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return err
	}
	if err := sdk.CheckVolumeMounts(mountsOf(req.Volumes)); err != nil {
		return err
	}
	return checkEnv(req.Env)
}

// mountsOf is what a provider is told of volumes.
func mountsOf(volumes []Volume) (mounts []sdk.VolumeMount) {
	for _, v := range volumes {
		mounts = append(mounts, sdk.VolumeMount{VolumeID: v.ID, Path: v.Path, ReadOnly: v.ReadOnly})
	}
	return mounts
}

// matches says where the request names something else than the session's
// instance is. What it does not name does not matter.
func (req CreateRequest) matches(is registry.Spec) error {
	switch {
	case req.Template != "" && req.Template != is.Template:
		return sdk.FieldErrorf(sdk.CodeConflict, "template", "the session already has an instance of the template %q", is.Template)
	case req.TTL != 0 && req.TTL != is.TTL:
		return sdk.FieldErrorf(sdk.CodeConflict, "ttl", "the session already has an instance with a ttl of %s; renew that to move its end", seconds(is.TTL))
	case req.Idle != 0 && req.Idle != is.Idle:
		return sdk.FieldErrorf(sdk.CodeConflict, "idle", "the session already has an instance with an idle limit of %s", seconds(is.Idle))
	case len(req.Volumes) > 0 && !slices.Equal(req.Volumes, is.Volumes):
		return sdk.FieldErrorf(sdk.CodeConflict, "volumes", "the session already has an instance, with other volumes")
	case req.Fixed && !is.Fixed:
		return sdk.FieldErrorf(sdk.CodeConflict, "session_id", "the session already has an instance whose end is not fixed")
	case req.Snapshot != nil && req.Snapshot.From != is.From:
		return sdk.FieldErrorf(sdk.CodeConflict, "session_id", "the session already has an instance, which does not go on from that")
	case req.Snapshot != nil && req.Snapshot.Fork && req.Snapshot.SnapshotID != is.Fork:
		return sdk.FieldErrorf(sdk.CodeConflict, "session_id", "the session already has an instance, which is not a copy of this fork")
	case req.PauseAtEnd && !is.PauseAtEnd:
		return sdk.FieldErrorf(sdk.CodeConflict, "session_id", "the session already has an instance that is destroyed at its end")
	case req.Network != nil && !network.Same(req.network, is.Network):
		return sdk.FieldErrorf(sdk.CodeConflict, "network", "the session already has an instance that was made with another network")
	default:
		return nil
	}
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%g seconds", d.Seconds())
}

var sessionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// ExecuteRequest asks for one execution.
type ExecuteRequest struct {
	// ID of the execution, by which it can be interrupted; empty for one of the
	// service's making. The tenant's other executions in progress have others.
	ID   string
	Code string
	// Language of the code; with a context it may be left out.
	Language string
	// Arguments for main, a JSON object; nil for none.
	Arguments json.RawMessage
	// Timeout of the code; zero means the default, or with Longest the longest there is.
	Timeout time.Duration
	Longest bool
	// Env is added to the instance's environment for this execution.
	Env map[string]string
	// ContextID names a context of the instance to run in; empty for a fresh
	// interpreter.
	ContextID string
	// Context is DefaultContext for the context that the service makes in the instance
	// at first use, one for each language; empty for none.
	Context string
	// ContextCwd is the directory that such a context begins in; empty for /workspace.
	ContextCwd string
	// Files to return as artifacts, by names or patterns below /workspace, beside
	// what comes by itself.
	Files []string
	// Requirements are packages of the language to install before the code runs,
	// unless the same were installed in the instance before.
	Requirements []string
	// Wait is how long it may wait for its turn where a quota or the provider has
	// no room.
	Wait time.Duration
	// Listener, if not nil, gets the output, which Execution does not hold then.
	Listener Listener
	// Taken, if not nil, is called when the execution is taken on, maybe more than once:
	// nothing that is wrong with the request, and no quota, is in its way. Where it may
	// wait for its turn, that is before it waits.
	Taken func()
}

// taken calls Taken.
func (req ExecuteRequest) taken() {
	if req.Taken != nil {
		req.Taken()
	}
}

// queued calls Taken for a request that may wait for its turn.
func (req ExecuteRequest) queued() {
	if req.Wait > 0 {
		req.taken()
	}
}

// RunRequest asks for an execution wherever it fits.
type RunRequest struct {
	ExecuteRequest
	// Session whose instance to use or to make; empty for a fresh one.
	Session            string
	Template, Provider string
	// FrontDoor is as in a CreateRequest.
	FrontDoor string
	// Keep the instance afterwards; nil means to keep it if a session was
	// named.
	Keep *bool
}

// bound is how long the provider may take in all.
func (req ExecuteRequest) bound() time.Duration {
	bound := req.Timeout + answerGrace
	if req.inContext() {
		bound += sdk.MaxContextWait
	}
	return bound
}

// check checks a request and fills in its timeout.
func (req *ExecuteRequest) check(limits Limits) error {
	switch {
	case req.Timeout == 0 && req.Longest:
		req.Timeout = limits.MaxTimeout
	case req.Timeout == 0:
		req.Timeout = limits.DefaultTimeout
	case req.Timeout < 0 || req.Timeout > limits.MaxTimeout:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "must be more than 0 and at most %s", seconds(limits.MaxTimeout))
	}
	if err := checkFiles(req.Files, limits.Artifacts.MaxCount); err != nil {
		return err
	}
	if err := req.checkContext(); err != nil {
		return err
	}
	if req.Language == "" && req.ContextID == "" {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "is required")
	}
	if sdk.ParseLanguage(req.Language) == sdk.Bash && req.Arguments != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "bash has no main that could take them; use env")
	}
	if err := checkRequirements(req.Requirements); err != nil {
		return err
	}
	return checkEnv(req.Env)
}

// inContext says whether the code runs in a context, whoever made it.
func (req ExecuteRequest) inContext() bool { return req.ContextID != "" || req.Context != "" }

func (req ExecuteRequest) checkContext() error {
	switch {
	case req.Context == "":
		return nil
	case req.Context != DefaultContext:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "context", "must be %q; a context that you have made goes by context_id", DefaultContext)
	case req.ContextID != "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "context", "does not go with context_id: the code runs in one context")
	default:
		return nil
	}
}

// InstallRequest asks for packages in an instance.
type InstallRequest struct {
	Language     string
	Requirements []string
	// Timeout of the installation; zero means the longest there is.
	Timeout time.Duration
}

// Bounds on the requirements of one request.
const (
	maxRequirements = 200
	maxRequirement  = 200 // bytes
)

func checkRequirements(requirements []string) error {
	if len(requirements) > maxRequirements {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "must be at most %d", maxRequirements)
	}
	for _, r := range requirements {
		if r == "" || len(r) > maxRequirement || r[0] == '-' || strings.ContainsFunc(r, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "requirements", "each must be 1 to %d bytes on one line, and not begin with -", maxRequirement)
		}
	}
	return nil
}

// Bounds of a tenant's labels.
const (
	maxLabels     = 50
	maxLabelValue = 256
)

var labelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$`)

// CheckLabels refuses labels that no tenant may give, with SB010.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels", "has %d labels; at most %d are allowed", len(labels), maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !labelName.MatchString(name):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels", "a name must have 1 to 63 of A-Z a-z 0-9 _ . / - and begin and end with a letter or digit")
		case len(labels[name]) > maxLabelValue || strings.ContainsFunc(labels[name], func(r rune) bool { return r < ' ' || r == 0x7f }):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels."+name, "must have at most %d bytes and no control characters", maxLabelValue)
		}
	}
	return nil
}

// maxArtifactName bounds the name of a file that is asked for, in bytes.
const maxArtifactName = 1024

func checkFiles(files []string, most int) error {
	if len(files) > most {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "artifacts.files", "has %d names; at most %d are allowed", len(files), most)
	}
	for _, name := range files {
		if name == "" || len(name) > maxArtifactName || strings.ContainsRune(name, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "artifacts.files", "a name must have 1 to %d bytes, none of them NUL", maxArtifactName)
		}
	}
	return nil
}

// capable says whether a provider can do all that a request wants beyond running
// code.
func (req ExecuteRequest) capable(p Provider) error {
	has := func(c sdk.Capability) bool { return slices.Contains(p.Description().Capabilities, c) }
	switch {
	case req.inContext() && !has(sdk.CapabilityContexts):
		return sdk.NotSupported(p.Label(), sdk.CapabilityContexts)
	case len(req.Files) > 0 && !has(sdk.CapabilityArtifacts):
		return sdk.NotSupported(p.Label(), sdk.CapabilityArtifacts)
	}
	return nil
}

// artifacts is what a provider is asked for within limits; nil for one that has
// none.
func (req ExecuteRequest) artifacts(p Provider, limits sdk.ArtifactLimits) *sdk.ArtifactLimits {
	if !slices.Contains(p.Description().Capabilities, sdk.CapabilityArtifacts) {
		return nil
	}
	limits.Files = req.Files
	return &limits
}

// Linux takes at most 128 KiB in one environment string; the rest of these
// bounds is common sense.
const (
	maxVariables     = 100
	maxVariableValue = 32 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,254}$`)

// checkEnv checks environment variables. What it says never holds a value.
func checkEnv(env map[string]string) error {
	if len(env) > maxVariables {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "has %d variables; at most %d are allowed", len(env), maxVariables)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		switch {
		case !variableName.MatchString(name):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "a name must be a letter or _, then letters, digits or _, at most 255 in all")
		case len(value) > maxVariableValue:
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env."+name, "is longer than %d bytes", maxVariableValue)
		case strings.ContainsRune(value, 0):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env."+name, "holds a NUL character, which no environment can")
		}
	}
	return nil
}

// Placer says at which of several brokers new sessions are made; placement.Placer does.
type Placer interface {
	// Place returns a peer.ElsewhereError for one that a peer is to make, and nil for one that
	// is made here.
	Place(ctx context.Context, need placement.Need) error
}

// placing finds out at which broker a session belongs that something is made for.
type placing struct {
	peer.Finder
	catalog Catalog
	placer  Placer       // nil for none
	held    func() error // nil for always
	has     func(tenant, session string) bool
}

// elsewhere returns a peer.ElsewhereError for what another broker has, or is to make: that of
// a session which one has, and that of a new one which has more room for it. bound says that
// what is made needs something that is here. Only who makes something asks. Its error is that of
// the state where others may have what this broker knows of sessions.
func (p placing) elsewhere(ctx context.Context, who tenant.Tenant, w routing.Wanted, session string, bound bool) error {
	if p.held != nil {
		if err := p.held(); err != nil {
			return err
		}
	}
	if err := p.SessionElsewhere(ctx, who, session); err != nil {
		return err
	}
	if p.placer == nil || bound || session != "" && p.has(who.Name, session) {
		return nil
	}
	offer := p.catalog.Offer(who)
	usable := offer.Usable()
	if len(usable) == 0 {
		return nil
	}
	candidates := offer.Candidates(usable)
	if w.Provider != "" {
		candidates = nil
		if named := routing.Labelled(usable, w.Provider); named != nil {
			candidates = []Provider{named}
		}
	}
	w.Templates = offer.Templates
	for _, candidate := range candidates {
		if fit, err := w.FitOf(candidate); err == nil {
			return p.placer.Place(ctx, placement.Need{Provider: candidate.Label(), Template: fit.Template})
		}
	}
	return nil // it is refused, as it would be anywhere
}

// stopping returns what becomes of a creation while the broker shuts down: a peer makes it
// where there is one, and else it is refused, by an error that is given.
func (p placing) stopping(ctx context.Context, who tenant.Tenant, req CreateRequest, refusal error) error {
	if err := p.elsewhere(ctx, who, req.wanted(), req.Session, req.Snapshot != nil || len(req.Volumes) > 0); peer.Has(err) {
		return err
	}
	return refusal
}

// wanted is what a creation says about its provider.
func (r CreateRequest) wanted() routing.Wanted {
	return routing.Wanted{
		Provider: r.Provider, Template: r.Template, Language: r.Language,
		Languages: r.Languages, Capabilities: r.Capabilities,
	}
}
