package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/handshake"
)

const mockName = "mock"

// buildMock makes a directory with the mock provider as its only plugin. The caller
// owes its removal.
func buildMock(ctx context.Context) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "sb"); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, mockName), "./e2e/mockprovider")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build the mock provider: %w: %s", err, out), os.RemoveAll(dir))
	}
	return dir, nil
}

// mockPlugin is a plugin without a broker.
type mockPlugin struct {
	process  *plugin.Client
	provider *wire.Client
	dir      string
	instance string
}

// startPlugin starts a plugin and makes an instance. The caller owes a stop.
func startPlugin(ctx context.Context, path string) (_ *mockPlugin, err error) {
	p := &mockPlugin{}
	defer func() {
		if err != nil {
			_ = p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "sb"); err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// go-plugin gives it our standard input, whose end is not the plugin's.
	cmd.Env = []string{"MOCK_START=deaf"}
	p.process = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: handshake.Config(), VersionedPlugins: handshake.Plugins(),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Cmd:              cmd, GRPCDialOptions: wire.DialOptions(),
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
	})
	protocol, err := p.process.Client()
	if err != nil {
		return nil, fmt.Errorf("start a plugin: %w", err)
	}
	conn, err := protocol.Dispense(handshake.Key)
	if err != nil {
		return nil, err
	}
	if p.provider, err = wire.NewClient(ctx, conn.(*grpc.ClientConn)); err != nil {
		return nil, err
	}
	settings, invalid := p.provider.Describe().Schema.Resolve(map[string]any{})
	if len(invalid) > 0 {
		return nil, fmt.Errorf("settings of the plugin: %v", invalid)
	}
	if err := p.provider.Configure(ctx, sdk.ConfigureRequest{Label: "mock", BrokerID: "bench", StateDir: p.dir, Settings: settings}); err != nil {
		return nil, err
	}
	made, err := p.provider.Create(ctx, sdk.CreateRequest{Template: mockHello.template, TTL: time.Hour})
	p.instance = made.ID
	return p, err
}

// execute runs what requests through the broker run.
func (p *mockPlugin) execute() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out stdout
	if err := p.run(ctx, mockHello.code, &out); err != nil {
		return err
	}
	return mockHello.check(string(out))
}

// run runs code.
func (p *mockPlugin) run(ctx context.Context, code string, out sdk.Output) error {
	result, err := p.provider.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: p.instance, ExecutionID: "x", Language: sdk.Python, Code: code,
		Timeout: runBound, OutputLimit: mostOutput,
	}, out)
	if err == nil && result.Status != sdk.StatusSucceeded {
		err = fmt.Errorf("the execution is %s", result.Status)
	}
	return err
}

const (
	// runBound is how long an execution may take, a stream too.
	runBound = 10 * time.Minute
	// mostOutput is the most that a broker can be told to keep.
	mostOutput = 8 << 20
)

// stop ends the plugin.
func (p *mockPlugin) stop() error {
	if p.process != nil {
		p.process.Kill()
	}
	return os.RemoveAll(p.dir)
}

// stdout keeps what comes on standard output.
type stdout []byte

var _ sdk.Output = (*stdout)(nil)

func (o *stdout) Stdout(p []byte) error {
	*o = append(*o, p...)
	return nil
}

func (o *stdout) Stderr(p []byte) error { return fmt.Errorf("unexpected: %s", p) }

func (o *stdout) Artifact(a sdk.Artifact) error { return fmt.Errorf("unexpected artifact %s", a.Name) }
