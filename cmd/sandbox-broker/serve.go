package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker"
	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/readablelog"
)

type serveCommand struct {
	Config string `short:"c" default:"sandbox.hcl" help:"The configuration file." placeholder:"FILE"`
}

// Run is the daemon. The first SIGINT or SIGTERM stops it in order, the second
// at once.
func (c *serveCommand) Run(ctx context.Context, term *terminal, ask describe) error {
	cfg, diags := config.Load(c.Config)
	if diags.HasErrors() { // it will not start, so it can as well show all there is
		diags = diags.With(checkProviders(ctx, ask, cfg))
	}
	if err := diags.Write(term.err, term.style); err != nil {
		return err
	}
	if diags.HasErrors() {
		return refused(term, c.Config, diags)
	}
	// A core file would hold secrets. Plugins inherit the limit.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	ctx, stop := untilSignal(ctx, term.err)
	defer stop()
	reload := make(chan struct{}, 1)
	defer onHangup(reload)()
	sockets, err := inheritedSockets()
	if err != nil {
		return err
	}
	defer sockets.Close()
	logger := readablelog.New(hclog.New(&hclog.LoggerOptions{
		Level:      hclog.LevelFromString(cfg.Log.Level),
		Output:     term.err,
		JSONFormat: cfg.Log.Format == "json",
	}))
	defer context.AfterFunc(ctx, func() { tellServiceManager(logger, daemon.SdNotifyStopping) })()
	err = broker.Run(ctx, cfg, broker.Options{
		Logger:  logger,
		Sockets: sockets,
		// The daemon starts no children but plugins.
		Watchdog: thisProgram, Adopt: true,
		Load:    func() (*config.Config, config.Diagnostics) { return config.Load(c.Config) },
		Reload:  reload,
		Version: buildVersion(),
		Ready: func(address net.Addr) {
			banner(term.out, cfg, address)
			tellServiceManager(logger, daemon.SdNotifyReady)
		},
	})
	if diags, ok := errors.AsType[config.Diagnostics](err); ok {
		if err := diags.Write(term.err, term.style); err != nil {
			return err
		}
		return refused(term, c.Config, diags)
	}
	return err
}

func refused(term *terminal, file string, diags config.Diagnostics) error {
	fmt.Fprintf(term.err, "\n%s: %s; the broker does not start with them\n", file, counted(errorsIn(diags), "mistake"))
	return exitCode(1)
}

// untilSignal returns a context that the first signal ends; the second ends the
// process, and plugins and sandboxes end with it.
func untilSignal(ctx context.Context, log io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-signals:
				if !first {
					os.Exit(128 + int(s.(syscall.Signal)))
				}
				fmt.Fprintln(log, "sandbox-broker: stopping; running executions may finish. Signal again to stop at once.")
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// onHangup asks for a reload at each SIGHUP, until what it returns is called.
func onHangup(reload chan<- struct{}) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-signals:
				select {
				case reload <- struct{}{}:
				default: // one is on its way
				}
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// banner says where the broker is and how to try it.
func banner(out io.Writer, cfg *config.Config, address net.Addr) {
	url := "http://" + reachable(address)
	if cfg.TLS != nil {
		url = "https://" + reachable(address)
	}
	token, warning := "$SANDBOX_BROKER_TOKEN", ""
	if tenant, ok := demoTenant(cfg); ok {
		token = config.DemoToken
		warning = fmt.Sprintf("\nThe tenant %q has the token %s, which everybody knows. Replace it: sandbox-broker token\n", tenant, config.DemoToken)
	}
	fmt.Fprintf(out, `sandbox-broker %s serves on %s

  curl -sS %s/api/v1/execute -H "Authorization: Bearer %s" -H "Content-Type: application/json" -d '{"language":"python","code":"def main(name): return {\"message\": f\"Hello {name}!\"}","arguments":{"name":"World"}}'
%s`, buildVersion(), url, url, token, warning)
}

// reachable is an address that a client on this machine can use.
func reachable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
}

func demoTenant(cfg *config.Config) (name string, ok bool) {
	hash := sha256.Sum256([]byte(config.DemoToken))
	for _, t := range cfg.Tenants {
		if slices.Contains(t.TokenSHA256, hash) {
			return t.Name, true
		}
	}
	return "", false
}

// describePlugin starts the plugin of a block for `check`. What it logs is not
// for people who look for a mistake in a file.
func describePlugin(ctx context.Context, cfg *config.Config, p *config.Provider) (sdk.Description, config.Diagnostics, error) {
	description, diags, err := broker.Inspect(ctx, cfg, p, broker.Options{
		Logger:   hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
		Watchdog: thisProgram,
	})
	return description, diags, pluginhost.WithLastWords(err)
}
