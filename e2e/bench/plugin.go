package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

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
		HandshakeConfig: sdk.Handshake(), VersionedPlugins: wire.Plugins(),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Cmd:              cmd, GRPCDialOptions: wire.DialOptions(),
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off}),
	})
	protocol, err := p.process.Client()
	if err != nil {
		return nil, fmt.Errorf("start a plugin: %w", err)
	}
	conn, err := protocol.Dispense(sdk.PluginKey)
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
	result, err := p.provider.Execute(ctx, sdk.ExecuteRequest{
		InstanceID: p.instance, ExecutionID: "x", Language: sdk.Python, Code: mockHello.code,
		Timeout: 30 * time.Second, OutputLimit: 1 << 20,
	}, &out)
	if err != nil {
		return err
	}
	if result.Status != sdk.StatusSucceeded {
		return fmt.Errorf("the execution is %s", result.Status)
	}
	return mockHello.check(string(out))
}

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
