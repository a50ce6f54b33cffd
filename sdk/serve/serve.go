package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/handshake"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/readablelog"
)

// Factory makes a provider. It must not fail or block; that is for Configure.
// What is written to the logger appears in the broker's log.
type Factory func(logger hclog.Logger) sdk.Provider

// closeTimeout bounds Closer.Close when the broker has gone without a word.
const closeTimeout = 3 * time.Second

// Serve runs a provider as a plugin and returns when the broker has closed it.
// A plugin's main is one line:
//
//	func main() { serve.Serve(New) }
//
// The plugin ends when the broker does, also when the broker is killed: the
// broker holds the other end of the plugin's standard input, and its end of
// file is the sign. What the plugin has started, and has not ended by then, ends with
// it, wherever it has gone: nothing of a plugin outlives it. SIGINT and SIGTERM are left to the broker, which gets them
// too and stops its plugins in order.
func Serve(factory Factory) {
	logger := readablelog.New(hclog.New(&hclog.LoggerOptions{
		Level:      hclog.LevelFromString(os.Getenv(wire.EnvLogLevel)),
		Output:     os.Stderr, // before plugin.Serve replaces it by a pipe to the host
		JSONFormat: true,
	}))
	// Notify, not Ignore: children would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)

	srv := &server{logger: logger}
	if os.Getenv(handshake.Config().MagicCookieKey) == handshake.Config().MagicCookieValue {
		// Before the factory, which may already start processes that would
		// inherit standard input.
		lifeline, err := takeStdin()
		if err != nil {
			logger.Error("cannot watch standard input, so this plugin would outlive the broker", "error", err)
			os.Exit(1)
		}
		go srv.endWith(lifeline)
	}
	srv.provider = factory(logger)

	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{
			wire.ProtocolVersion: {handshake.Key: &servedPlugin{server: srv}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, ServerOptions(logger)...)...)
		},
		Logger: hclog.NewNullLogger(),
	})
	srv.close(context.Background())
}

// RegisterServer serves a provider on a gRPC server that somebody else owns, with
// ServerOptions: tests do so without a process.
func RegisterServer(registrar grpc.ServiceRegistrar, provider sdk.Provider, logger hclog.Logger) {
	(&server{provider: provider, logger: logger}).register(registrar)
}

// servedPlugin is the plugin's side of go-plugin's contract.
type servedPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

var _ plugin.GRPCPlugin = (*servedPlugin)(nil)

func (p *servedPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.server.register(s)
	return nil
}

func (p *servedPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the host's side is in sdk/wire")
}

// endWith ends the process when the broker's end of the pipe closes.
func (s *server) endWith(lifeline io.Reader) {
	_, _ = io.Copy(io.Discard, lifeline)
	s.close(context.Background())
	os.Exit(0)
}

// close calls the provider's Close once, whoever comes first.
func (s *server) close(ctx context.Context) {
	s.closeOnce.Do(func() {
		// Nothing is called on a provider that is not configured.
		if !s.configured.Load() {
			return
		}
		closer, ok := s.provider.(sdk.Closer)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, closeTimeout)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := closer.Close(ctx); err != nil {
				s.logger.Warn("close", "error", err)
			}
		}()
		select {
		case <-done:
		case <-ctx.Done():
		}
	})
}

// takeStdin moves standard input to a descriptor that children do not inherit
// and leaves /dev/null in its place.
func takeStdin() (*os.File, error) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate standard input: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if err := syscall.Dup3(int(null.Fd()), 0, 0); err != nil {
		return nil, fmt.Errorf("replace standard input: %w", err)
	}
	return os.NewFile(uintptr(fd), "lifeline"), nil
}

// stripEnvironment removes what go-plugin needed, so that nothing the provider
// starts can pose as a plugin.
var stripEnvironment = sync.OnceFunc(func() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PLUGIN_") || name == handshake.Config().MagicCookieKey {
			_ = os.Unsetenv(name)
		}
	}
})
