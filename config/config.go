package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

// Config is one accepted configuration. Nobody changes it after Load: a new
// file makes a new Config.
type Config struct {
	// Listen is host:port of the REST API; port 0 picks a free one.
	Listen string
	// StateDir and PluginDir are absolute paths. Load does not look whether
	// they exist.
	StateDir, PluginDir string
	// Database is the URL of the database with the state, "" where that is in StateDir.
	Database string
	Log      Log
	Metrics  Metrics
	// Tracing; the zero value for none.
	Tracing Tracing
	// TLS of the REST API; nil for plain HTTP.
	TLS *TLS
	// Peers are other brokers on the same database; nil for none.
	Peers    *Peers
	Limits   Limits
	Previews Previews
	// Connections to the REST API.
	Connections Connections
	// Quota of a tenant whose block says nothing else.
	Quota Quota
	Admin Admin
	Audit Audit
	// ActiveProvider is the label of the provider that serves a request
	// naming none.
	ActiveProvider string
	// FallbackProviders are the labels of those to turn to, in this order, when
	// the active one cannot serve. None stands twice, and none is the active.
	FallbackProviders []string
	// FallbackWritten is that list as it is written, with the active one if that is
	// among them.
	FallbackWritten []string
	// OnStop says what becomes of instances in clouds when the broker stops in order:
	// OnStopDestroy or OnStopKeep.
	OnStop string
	// FailOver says how patient requests are with a provider before the next is asked.
	FailOver FailOver
	// RoutingPolicy says by what these and the active one are ordered: ordered,
	// cheapest or fastest.
	RoutingPolicy string
	// Providers in the order of the files, at least one.
	Providers []*Provider
	// Tenants in the order of the files, at least one.
	Tenants []Tenant
	// Templates in the order of the files; none where there is no such block.
	Templates []Template
	// FrontDoors in the order of the files; none where there is no such block.
	FrontDoors []FrontDoor
	// Revision is a hexadecimal SHA-256 sum over the names and contents of all
	// Files: it is another one when any of them is. It is for the operators;
	// who knows the rest could try out what is in a file with a weak secret.
	Revision string

	files []File
	keys  *seal.Keyring
	// shared is the text of Peers.SharedFile.
	shared []byte
}

// FailOver says how patient requests are with a provider where others could be asked.
type FailOver struct {
	// StartGrace is how long after the start of the broker they wait for a provider
	// that is not ready yet.
	StartGrace time.Duration
	// SpillAfter is how long they wait for room at one that is full.
	SpillAfter time.Duration
	// UnclearTimeout is how long they wait until it is known whether a creation has
	// made an instance.
	UnclearTimeout time.Duration
}

// What OnStop may be.
const (
	OnStopDestroy = "destroy"
	OnStopKeep    = "keep"
)

// Log says what the broker logs and how.
type Log struct {
	Level  string `config:"level"`  // trace, debug, info, warn or error
	Format string `config:"format"` // text or json
}

// Metrics says where the broker shows its metrics.
type Metrics struct {
	// Listen is host:port, port 0 picks a free one; "" for nowhere.
	Listen string `config:"listen"`
}

// Admin says who may look behind the scenes.
type Admin struct {
	// TokenSHA256 are the SHA-256 sums of the administrators' tokens; none if
	// there are no administrators. No sum is a tenant's too.
	TokenSHA256 [][32]byte
}

// Limits of the broker, for every tenant.
type Limits struct {
	// RequestBody is the largest body of a request, in bytes.
	RequestBody int64 `config:"request_body"`
	// Output is how much of stdout and of stderr, each, is kept, in bytes.
	Output int64 `config:"output"`
	// ArtifactCount is how many artifacts an execution may return, ArtifactBytes
	// the size of one and ArtifactTotal that of all of them.
	ArtifactCount int64 `config:"artifact_count"`
	ArtifactBytes int64 `config:"artifact_bytes"`
	ArtifactTotal int64 `config:"artifact_total"`
	// DefaultTimeout of an execution that names none; never above MaxTimeout.
	DefaultTimeout time.Duration `config:"default_timeout"`
	// MaxTimeout that an execution may name.
	MaxTimeout time.Duration `config:"max_timeout"`
	// CreateTimeout of an instance on one provider, waiting until that is ready
	// included, but not what a request asks to wait for its turn.
	CreateTimeout time.Duration `config:"create_timeout"`
	// DefaultTTL of an instance whose creator names none; never above
	// MaxLifetime.
	DefaultTTL time.Duration `config:"default_ttl"`
	// MaxLifetime of an instance, renewals and use included.
	MaxLifetime time.Duration `config:"max_lifetime"`
	// MaxIdle is how long an instance may be unused; its creator may name
	// less. Never above MaxLifetime.
	MaxIdle time.Duration `config:"max_idle"`
	// SnapshotTTL is how long a snapshot is kept whose maker names nothing, and MaxSnapshotTTL
	// the longest that may be named.
	SnapshotTTL    time.Duration `config:"snapshot_ttl"`
	MaxSnapshotTTL time.Duration `config:"max_snapshot_ttl"`
	// MaxWait is how long a request may ask to wait for its turn.
	MaxWait time.Duration `config:"max_wait"`
	// MaxWaiting is how many requests of a tenant may wait at a time.
	MaxWaiting int64 `config:"max_waiting"`
	// ExecutionLogBytes is how much is remembered of what one execution has told,
	// ExecutionLogsBytes that of all together, and ExecutionLogTime how long after the
	// end.
	ExecutionLogBytes  int64         `config:"execution_log_bytes"`
	ExecutionLogsBytes int64         `config:"execution_logs_bytes"`
	ExecutionLogTime   time.Duration `config:"execution_log_time"`
	// DiskTimeout is how long a request may wait for the broker's own disk.
	DiskTimeout time.Duration `config:"disk_timeout"`
	// ShutdownTimeout is how long a stop lets running executions finish.
	ShutdownTimeout time.Duration `config:"shutdown_timeout"`
}

// Tenant is who may ask.
type Tenant struct {
	// Name is the block's label, [a-z0-9][a-z0-9_-]{0,31}.
	Name string
	// TokenSHA256 are the SHA-256 sums of its tokens, at least one. No sum
	// belongs to two tenants.
	TokenSHA256 [][32]byte
	// Providers that it may use, by label; empty means all.
	Providers []string
	// Reuse says that its executions in no instance of their own may have a sandbox which
	// an earlier one has left.
	Reuse bool
	// Webhooks are where it may have results posted to.
	Webhooks Webhooks
	// Quota is its own, complete: what its block does not say is as in
	// Config.Quota.
	Quota Quota
	// Network is the most that its instances may reach; nil for nothing. It holds secrets.
	Network *Network
}

// Quota says how much a tenant may use. Zero means as much as it likes.
type Quota struct {
	// Instances that exist and executions that run at a time.
	MaxInstances int64 `config:"max_instances"`
	// MaxPaused are instances that are paused and hold no memory.
	MaxPaused     int64 `config:"max_paused"`
	MaxConcurrent int64 `config:"max_concurrent"`
	// RequestsPerSecond on average; those of one second may come at once.
	RequestsPerSecond float64 `config:"requests_per_second"`
	// A day and a month are those of UTC.
	ExecutionsPerDay    int64         `config:"executions_per_day"`
	ExecutionTimePerDay time.Duration `config:"execution_seconds_per_day"`
	// MaxMemoryMB and MaxCPUs of one instance.
	MaxMemoryMB int64   `config:"max_memory_mb"`
	MaxCPUs     float64 `config:"max_cpus"`
	// Money in the unit of Provider.CostPerSecond.
	MoneyPerDay   float64 `config:"money_per_day"`
	MoneyPerMonth float64 `config:"money_per_month"`
	// Snapshots that are kept, and their bytes together.
	MaxSnapshots     int64 `config:"max_snapshots"`
	MaxSnapshotBytes int64 `config:"max_snapshot_bytes"`
	// Volumes that exist, and the bytes of all of them together.
	MaxVolumes     int64 `config:"max_volumes"`
	MaxVolumeBytes int64 `config:"max_volume_bytes"`
}

// Provider returns the provider with that label, or nil.
func (c *Config) Provider(label string) *Provider {
	for _, p := range c.Providers {
		if p.Label == label {
			return p
		}
	}
	return nil
}

// Option changes what Load and Parse take from their surroundings.
type Option func(*surroundings)

type surroundings struct {
	lookupEnv func(string) (string, bool)
	pluginDir string
	contents  map[string][]byte
}

// WithEnv sets where env() looks; os.LookupEnv unless given.
func WithEnv(lookup func(name string) (value string, set bool)) Option {
	return func(s *surroundings) { s.lookupEnv = lookup }
}

// WithPluginDir sets the default of plugin_dir; unless given it is the
// directory `plugins` beside the executable.
func WithPluginDir(dir string) Option {
	return func(s *surroundings) { s.pluginDir = dir }
}

// WithContent reads content in place of the file at path, to find out what a
// change would do before it is written.
func WithContent(path string, content []byte) Option {
	return func(s *surroundings) {
		if absolute, err := filepath.Abs(path); err == nil {
			s.contents[absolute] = content
		}
	}
}

// maxFileSize bounds each configuration file. The parser recurses over it, so
// the limit also bounds its stack.
const maxFileSize = 256 << 10

// Load reads a configuration file and those that it includes. With errors among
// the diagnostics, the Config is not to be used but for three things: its Files
// and its Revision, and its Providers, which are those whose settings can still
// be checked, so that a person sees all mistakes at once, unless PluginDir is
// empty. The Config is never nil. Without errors there may be warnings.
func Load(path string, options ...Option) (*Config, Diagnostics) {
	p, err := newParser(path, options)
	if err != nil {
		return &Config{}, unreadable(path, err)
	}
	cfg := p.parse()
	cfg.files = p.reading.files
	cfg.Revision = p.reading.revision()
	p.diags.sort()
	return cfg, p.diags
}

// Parse is Load with the content of the file, which need not exist.
func Parse(filename string, src []byte, options ...Option) (*Config, Diagnostics) {
	return Load(filename, append(options[:len(options):len(options)], WithContent(filename, src))...)
}

// Files returns every file and directory that was read or looked for, the main
// file first: when one of them changes, the configuration may be another.
func (c *Config) Files() []File { return slices.Clone(c.files) }

// DefaultPluginDir is what plugin_dir is unless a configuration says another: the
// directory `plugins` beside the executable.
func DefaultPluginDir() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the default of plugin_dir: %w", err)
	}
	return filepath.Join(filepath.Dir(executable), "plugins"), nil
}
