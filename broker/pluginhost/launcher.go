package pluginhost

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/handshake"
)

// defaultStartTimeout bounds the time from the start of a plugin to its
// description.
const defaultStartTimeout = 10 * time.Second

// LauncherOptions say where plugins are and how they start.
type LauncherOptions struct {
	// PluginDir holds the executables of specs that name no other directory.
	PluginDir string
	// RuntimeDir is where a private directory for sockets is made; empty for
	// the user's or the system's runtime directory.
	RuntimeDir string
	// LogLevel of the plugins: trace, debug, info, warn, error or off. Empty
	// means that of Logger, whatever it is at the moment.
	LogLevel string
	// StartTimeout bounds the time from the start of a plugin to its
	// description; 10 s by default.
	StartTimeout time.Duration
	// Logger receives what plugins log. It is required.
	Logger hclog.Logger
	// Calls may be nil.
	Calls CallObserver
	// Lease says what plugins are told of the broker's lease (wire.LeaseText); nil, or "", for
	// a broker that needs none.
	Lease func() string
	// Watchdog is a program whose main calls watchdog.Main first; "/proc/self/exe" is
	// the one that runs. It is required: each plugin gets a watchdog, which ends it with
	// all that it has started.
	Watchdog string
	// Adopt has this process end what a watchdog that was killed has left. It must start
	// children through launchers only then.
	Adopt bool
}

// Spec says which plugin to start.
type Spec struct {
	// Label is the provider's name in the configuration.
	Label string
	// Dir holds the executable; empty for the launcher's.
	Dir string
	// Plugin is the executable's name in it.
	Plugin string
	// SHA256 pins the executable, in hexadecimal; empty for no pin.
	SHA256 string
	// Env lists names of the broker's environment variables that the plugin
	// gets beside the usual ones.
	Env []string
	// Secrets are blanked in whatever the plugin says, beside the values of Env
	// and the settings that its schema calls secret.
	Secrets []string
}

// Launcher starts plugins.
type Launcher struct {
	options LauncherOptions
	dir     *runtimeDir
	host    *watchdog.Host
}

// NewLauncher makes the private socket directory; Close removes it.
func NewLauncher(options LauncherOptions) (*Launcher, error) {
	if options.LogLevel != "" && hclog.LevelFromString(options.LogLevel) == hclog.NoLevel {
		return nil, fmt.Errorf("log level %q is none of trace, debug, info, warn, error and off", options.LogLevel)
	}
	if options.StartTimeout == 0 {
		options.StartTimeout = defaultStartTimeout
	}
	host, err := watchdog.NewHost(options.Watchdog, options.Adopt)
	if err != nil {
		return nil, err
	}
	dir, err := newRuntimeDir(options.RuntimeDir)
	if err != nil {
		return nil, err
	}
	return &Launcher{options: options, dir: dir, host: host}, nil
}

// Close removes the socket directory. Stop all processes first.
func (l *Launcher) Close() error { return l.dir.close() }

// KeepInPlace makes the socket directory again if somebody has removed it. Plugins that
// run are spoken to by connections that they have already.
func (l *Launcher) KeepInPlace() error { return l.dir.keepInPlace() }

func (l *Launcher) dirOf(spec Spec) string { return cmp.Or(spec.Dir, l.options.PluginDir) }

// fingerprint is that of the executable that Launch would start now, "" if there
// is none.
func (l *Launcher) fingerprint(spec Spec) string {
	info, err := os.Stat(filepath.Join(l.dirOf(spec), spec.Plugin))
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return fingerprint(info)
}

// Launch starts a plugin and returns when it has described itself. The process
// outlives ctx; its owner calls Stop. An error is a *LaunchError or the end of
// ctx.
func (l *Launcher) Launch(ctx context.Context, spec Spec) (*Process, error) {
	exe, err := openExecutable(l.dirOf(spec), spec.Plugin, spec.SHA256)
	if err != nil {
		return nil, named(spec.Label, err)
	}
	defer exe.close()

	logger := l.options.Logger.Named("plugin").With("provider", spec.Label)
	p := newProcess(spec.Label, newRunner(l.host, spec.Label, exe, append(environment(spec.Env, l.logLevel()), watchdog.Mark(l.dir.path)), logger))
	p.runner.log.hide(slices.Concat(listedValues(spec.Env), spec.Secrets))
	bounded, cancel := context.WithTimeoutCause(ctx, l.options.StartTimeout,
		notStarted(fmt.Sprintf("the plugin %q did not answer within %v", spec.Plugin, l.options.StartTimeout)))
	defer cancel()
	// go-plugin's own waits cannot be cancelled, but they end with the process.
	inTime := context.AfterFunc(bounded, p.runner.kill)
	err = p.start(bounded, l.clientConfig(p))
	if err == nil && inTime() {
		logger.Debug("plugin started", "plugin", spec.Plugin, "pid", p.PID(), "version", p.provider.Describe().Version)
		return p, nil
	}
	p.runner.kill()
	<-p.done
	return nil, named(spec.Label, p.launchError(bounded, err))
}

func (l *Launcher) clientConfig(p *Process) *plugin.ClientConfig {
	return &plugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: handshake.Plugins(),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		RunnerFunc:       p.runner.prepare,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: l.dir.path},
		SkipHostEnv:      true,
		// Ours is shorter and kills the process; this one must not come first.
		StartTimeout: 2 * l.options.StartTimeout,
		// A null logger would not do: its level is not Off.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
		// A plugin whose output nobody takes blocks once its pipe is full.
		SyncStdout: p.stdout,
		SyncStderr: p.stderr,
		GRPCDialOptions: slices.Concat(wire.DialOptions(), []grpc.DialOption{
			grpc.WithContextDialer(p.runner.dial),
			grpc.WithChainStreamInterceptor(tellRequestOfStream, l.tellLeaseOfStream, p.openStream),
			grpc.WithChainUnaryInterceptor(tellRequest, l.tellLease, l.tellLogLevel),
			grpc.WithStatsHandler(callWatch{p.label, l.options.Calls}),
		}),
	}
}
