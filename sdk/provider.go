package sdk

import (
	"context"
	"time"
)

// Provider is what a provider author implements; Serve turns it into a plugin.
//
// The broker calls Configure once, before anything else but Describe, and never
// calls a method on a provider that refused its configuration. All other
// methods may be called concurrently, for the same instance too. Every method
// must return soon after its context ends. Code that runs as processes of this machine
// ends with the plugin, however that ends, also by kill -9. A method that fails should return an
// *Error: its code reaches the agent, unchanged but for those that
// Code.FromProvider translates. Any other error becomes SB000.
type Provider interface {
	// Describe says what this provider is. It must not block or touch the
	// network: it is called before Configure, also for `check` and for docs.
	Describe() Description

	// Configure validates the settings beyond the schema and connects. The
	// settings already obey the schema, with defaults filled in. Return
	// CodeInvalidConfig with Field set when a setting is at fault, and
	// CodeConnectionFailed when the back end cannot be reached.
	Configure(ctx context.Context, req ConfigureRequest) error

	// Health says whether Create would work now. It is called every few
	// seconds: keep it cheap. A nil error with Healthy false and a Reason is
	// the normal way to say no; an error means that health is unknown.
	Health(ctx context.Context) (Health, error)

	// Create makes an instance and returns when the instance can execute code.
	//
	// The error says what the broker does next:
	//
	//	error                              what it means             what the broker does
	//	CodeQuotaExceeded                  the account is exhausted  asks another provider, or tells the caller
	//	CodeInvalidRequest, ...            a refusal: none was made  tells the caller
	//	CodeCreateFailed, CodeUnavailable, there may be an instance  looks for its labels by List, destroys
	//	CodeConnectionFailed, CodeInternal                           or takes what it finds
	//	any of these with NoEffect         none can have been made   asks another provider at once
	//	the error of ctx                   there may be an instance  looks for its labels by List
	//
	// The search by List takes up to a minute unless the provider is Ephemeral. The
	// session waits meanwhile. NoEffect saves that wait: set it where the back end has
	// refused, or was never reached. Code.LeavesOpen names the codes that leave open
	// whether there is an instance.
	//
	// When ctx ends, Create asks the back end for nothing more. With an
	// IdempotencyKey it also destroys nothing then: the broker may have found the
	// instance and given it to somebody. An instance that was certainly made and is of
	// no use is destroyed by Create before it returns.
	Create(ctx context.Context, req CreateRequest) (Instance, error)

	// Execute runs code in an instance. It returns when the code and all processes that
	// the code started have ended. Output goes to out as it appears. When ctx ends,
	// Execute stops the code with its whole process tree, and the instance stays usable.
	//
	// What becomes of the code is a result: a non-zero exit, a timeout, out of memory.
	// An error says that there is no result:
	//
	//	error                       what it means                       what the broker does
	//	CodeNotFound with NoEffect  no instance; no code has begun      makes a new one for the session, runs the code there
	//	CodeUnavailable             the instance ended under code that  tells the caller; no code runs twice
	//	                            may have begun
	//
	// ExecutionError makes these two of what the back end says. Contexts says what it is
	// for an unknown context.
	Execute(ctx context.Context, req ExecuteRequest, out Output) (ExecuteResult, error)

	// Destroy ends an instance and frees all it holds, running executions
	// included. Destroying an instance that does not exist is a success.
	Destroy(ctx context.Context, instanceID string) error

	// List returns every live instance that carries the broker ID given to
	// Configure, and no other. The broker uses it after a crash to find what
	// it lost.
	List(ctx context.Context) ([]Instance, error)
}

// Closer is implemented by providers that have something to release when the
// plugin process ends in an orderly way: a warm pool, local processes. Serve
// calls Close once, after the last call has returned, with a deadline of a few
// seconds. After a kill -9 nothing is called. Unless the provider is Ephemeral it leaves
// its instances alone: the next process has them by List.
type Closer interface {
	Close(ctx context.Context) error
}

// Drainer is implemented by providers that make things ahead of need. The broker
// calls Drain once in a process that another is taking over from, after an upgrade
// or a change of its settings: Create is not called any more, everything else is,
// until the last of its instances has ended.
type Drainer interface {
	Drain(ctx context.Context) error
}

// Description is what a provider says about itself.
type Description struct {
	// Name is the plugin's own name, [a-z][a-z0-9_]{0,62}, such as "e2b". An
	// operator may run it under another label.
	Name string
	// Version is the plugin's version, for people.
	Version string
	// Summary is one sentence for people.
	Summary string
	// Icon is for pages that list providers: the name of an icon, such as
	// "cloud", or a data URI of a small image. Optional; CheckAppearance has the
	// form.
	Icon string
	// Tags are words to choose by, such as "cloud" or "gvisor". Optional, at most
	// MaxTags.
	Tags []string
	// Languages that Execute accepts.
	Languages []Language
	// Templates that Create accepts; the first is the default.
	Templates []Template
	// Schema of the settings that Configure takes.
	Schema Schema
	// Capabilities beyond Provider. Serve fills it in from the interfaces
	// that the provider implements; an author lists CapabilityArtifacts here,
	// and anything else is ignored.
	Capabilities []Capability
	// Ephemeral says that instances end with the plugin's process. The broker
	// then takes one that List lacks for gone at once; otherwise it waits for a
	// while first, since the list of a cloud may be late.
	Ephemeral bool
}

// Template names what an instance is made for.
type Template struct {
	Name        string
	Description string
	// Languages that this template serves best: an execution that names no
	// template gets the first one listing its language.
	Languages []Language
}

// ConfigureRequest carries a provider's settings.
type ConfigureRequest struct {
	// Label is the name of the provider block in the broker's configuration.
	Label string
	// BrokerID identifies this broker. Mark every instance with it, so that
	// two brokers on one account never touch each other's.
	BrokerID string
	// StateDir is a directory that belongs to this process alone, made by the
	// broker with mode 0700. The process after a crash gets the same, with what
	// was left behind in it; during an upgrade the old and the new process have
	// one each.
	StateDir string
	// AbandonedDirs were the StateDir of processes that are no more, and nobody
	// else will have them: free what they stand for, such as local sandboxes. They
	// are removed after Configure has succeeded.
	AbandonedDirs []string
	// KeepDir belongs to all processes of the provider, which may be two at once, and
	// outlives them: it is for what a later one must find again, such as snapshots. It was
	// made by the broker with mode 0700. "" where nothing is to be kept, as in a trial.
	KeepDir string
	// Settings as the schema describes them; see Settings.Decode.
	Settings Settings
}

// Health is the answer to a health probe.
type Health struct {
	Healthy bool
	// Reason says in one sentence why not, and what to do about it.
	Reason string
	// Details are facts for people, such as versions and pool depths.
	Details map[string]string
	// Metrics are numbers for the operator; the broker shows them with its own,
	// and never to tenants.
	Metrics []Metric
}

// CreateRequest asks for an instance.
type CreateRequest struct {
	// Template is one of Description.Templates, or with Image a name of the operator's.
	Template string
	// Image is what BuildTemplate has made of that template; empty for one of
	// Description.Templates. One that the provider does not have is refused with
	// CodeInvalidRequest and the field "template". A provider without CapabilityTemplates
	// gets none.
	Image string
	// Labels to keep with the instance and to return from List: at least
	// LabelTenant, LabelSession, LabelInstance and LabelBroker.
	Labels map[string]string
	// Env is added to the environment of every execution, and to that of every context
	// and command. A value may be any text without the byte 0, and arrives byte for
	// byte. One of up to 32 KiB always does. Refuse a longer one that cannot, with
	// CodeInvalidRequest and the field "env", or "env." and the name. Values reach the
	// code and nothing else: no output that the code did not print, no artifact, error,
	// label or log has them. The same is true of Env elsewhere.
	Env map[string]string
	// TTL after which the provider may destroy the instance by itself.
	// Zero means the provider's default.
	TTL time.Duration
	// IdempotencyKey names this creation: a second Create with the same key
	// returns the instance that the first one made.
	IdempotencyKey string
	// MaxQueue is how long the creation may wait for room where the provider has none:
	// for an instance of somebody else to end, not for its own to be made. When that is
	// over, return CodeQuotaExceeded, without RetryAfter unless the provider shall not be
	// asked before then: another provider is asked. Nil means as long as the provider
	// waits by itself. A provider without a queue need not look at it.
	MaxQueue *time.Duration
	// Reuse says that the instance is for one execution, that it is destroyed after it,
	// and that its tenant (LabelTenant) lets such executions have one sandbox after the
	// other: a provider whose operator wants that too may hand over one that an earlier
	// execution of this tenant has left, as long as nothing of that execution can be
	// found in it. The instance is a new one to the broker, with an ID that no other
	// had. A provider without such sandboxes need not look at it.
	Reuse bool
	// Snapshot is what the instance goes on from; nil for a fresh one. Only a Snapshotter
	// is asked for it, with the Template of the snapshot. Files are as they were. With
	// Snapshot.Memory processes go on where they were, contexts and commands have the IDs
	// that they had, and the variables of a context are its own from then on. What may
	// not be the same twice is not: sources of randomness are seeded anew, and connections
	// of the original are broken in the copy. Env is added
	// to the one that the original was made with, for what starts in the copy. Labels are those of this request alone. An
	// execution that ran in the original meanwhile is none of the copy: it may be ended
	// there, and no output of it goes anywhere.
	//
	// A snapshot that is not there is CodeNotFound with the field "snapshot" and NoEffect,
	// one that the key does not open is CodeInvalidRequest with that field.
	Snapshot *SnapshotSource
	// Volumes of the same tenant that code finds in the instance, at most
	// MaxVolumeMounts. Return CodeNotFound with the field "volumes" for one that does not
	// exist. A provider that is no VolumeKeeper gets none.
	Volumes []VolumeMount
	// Network is what the instance may reach; nil for nothing. Only providers with
	// CapabilityNetwork are asked for one. It holds secrets, which reach no instance, label,
	// error or log.
	Network *NetworkPolicy
}

// Labels that the broker sets on every instance.
const (
	LabelTenant   = "tenant"
	LabelSession  = "session"
	LabelInstance = "instance"
	// LabelSnapshot is on snapshots in the place of LabelInstance, and has the broker's
	// ID of the snapshot.
	LabelSnapshot = "snapshot"
	// LabelBroker is the broker ID again: the broker leaves alone what it finds
	// in a list without it. A provider that has lost the labels of an instance,
	// but knows that it is this broker's, lists it with this one.
	LabelBroker = "broker"
)

// Instance is one live sandbox.
type Instance struct {
	// ID is the provider's own name for it, opaque to the broker. No ID may
	// be a prefix of another: some back ends resolve unique prefixes.
	ID       string
	Template string
	Labels   map[string]string
	// Metadata are facts for the agent, such as a region or a runtime. MetadataCPUs and its
	// like are names that others know too.
	Metadata  map[string]string
	CreatedAt time.Time
	// ExpiresAt is when the provider will destroy it; zero if it will not. Create answers
	// a time to come: what has ended already is refused, and destroyed.
	ExpiresAt time.Time
}

// Names of what an Instance's Metadata may say of its size: processors, which
// may be a fraction, and memory and room for files in whole MiB. Who lacks them says nothing
// of it.
const (
	MetadataCPUs     = "cpus"
	MetadataMemoryMB = "memory_mb"
	MetadataDiskMB   = "disk_mb"
)

// Bounds of what a Description says for lists of providers.
const (
	// MaxIcon is the longest Icon, in bytes.
	MaxIcon = 16 << 10
	// MaxTags is how many Tags there may be.
	MaxTags = 16
)
