package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// verifiedPlugin starts an executable as the broker would, time and again.
type verifiedPlugin struct {
	launcher *pluginhost.Launcher
	spec     pluginhost.Spec
	log      *keptLog
}

func newVerifiedPlugin(path string, startTimeout time.Duration, log io.Writer) (*verifiedPlugin, error) {
	kept := &keptLog{}
	launcher, err := pluginhost.NewLauncher(pluginhost.LauncherOptions{
		PluginDir: filepath.Dir(path), StartTimeout: startTimeout, Watchdog: thisProgram,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: io.MultiWriter(kept, log)}),
	})
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	return &verifiedPlugin{launcher: launcher, spec: pluginhost.Spec{Label: "verified", Plugin: name}, log: kept}, nil
}

func (v *verifiedPlugin) close() error { return v.launcher.Close() }

// start is a providertest.Opener.
func (v *verifiedPlugin) start(ctx context.Context) (*providertest.Plugin, error) {
	process, err := v.launcher.Launch(ctx, v.spec)
	if err != nil {
		return nil, pluginhost.WithLastWords(err)
	}
	return &providertest.Plugin{
		Conn: process.Conn(),
		Stop: func(ctx context.Context) error {
			_, err := providerv1.NewProviderServiceClient(process.Conn()).Close(ctx, &providerv1.CloseRequest{})
			process.Stop(ctx)
			return wire.DecodeError(err)
		},
		Kill: process.Kill,
		Log:  v.log.String,
	}, nil
}

func (v *verifiedPlugin) describe(ctx context.Context) (sdk.Description, error) {
	process, err := v.launcher.Launch(ctx, v.spec)
	if err != nil {
		return sdk.Description{}, pluginhost.WithLastWords(err)
	}
	process.Stop(ctx)
	return process.Provider().Describe(), nil
}

// shellBreakage takes a back end away and brings it back with shell commands.
func shellBreakage(damage, repair string) providertest.Breakage {
	shell := func(ctx context.Context, line string) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.WaitDelay = time.Second
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(output)))
		}
		return nil
	}
	return func(ctx context.Context) (func(context.Context) error, error) {
		err := shell(ctx, damage)
		return func(ctx context.Context) error { return shell(ctx, repair) }, err
	}
}

// keptLog keeps the end of what is written to it.
type keptLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxKeptLog = 16 << 20

func (l *keptLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len()+len(p) > maxKeptLog {
		l.buf.Next(maxKeptLog / 2)
	}
	return l.buf.Write(p)
}

func (l *keptLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
