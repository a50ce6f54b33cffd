package provider

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
)

var _ sdk.Commands = (*Provider)(nil)

// keptCommands is how many that have ended stay known in a sandbox.
const keptCommands = 32

// StartCommand implements sdk.Commands.
func (p *Provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	sb, err := p.lookup(ctx, req.InstanceID)
	if err != nil {
		return sdk.Command{}, err
	}
	cwd := req.Cwd
	if cwd == "" {
		cwd = remote.Workspace
	}
	c := &command{
		sb: sb, changed: make(chan struct{}), open: req.Stdin || req.Terminal != nil,
		stdout: ring.New(int(req.KeepOutput)), stderr: ring.New(int(req.KeepOutput)),
		state: sdk.Command{
			ID: remote.NewName(), Argv: req.Argv, Cwd: cwd, State: sdk.CommandRunning, StartedAt: time.Now(),
			Stdin: req.Stdin, Terminal: req.Terminal != nil,
		},
	}
	job := stream.Job{Argv: req.Argv, Env: req.Env, Cwd: cwd, Timeout: req.Timeout, Stdin: req.Stdin, Terminal: req.Terminal != nil}
	options := envd.StartOptions{Stdin: req.Stdin}
	if req.Terminal != nil {
		options.Terminal = &envd.Terminal{Cols: req.Terminal.Columns, Rows: req.Terminal.Rows}
		if _, given := req.Env["TERM"]; !given {
			job.Env = map[string]string{"TERM": "xterm-256color"}
			for name, value := range req.Env {
				job.Env[name] = value
			}
		}
	}
	// The command outlives the call; who leaves before it runs does not want it.
	running, stop := context.WithCancel(sb.gone)
	started := make(chan error, 2)
	p.background.Go(func() {
		defer stop()
		c.run(running, job, options, started)
	})
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return sdk.Command{}, err
	}
	sb.addCommand(c)
	return c.snapshot(), nil
}

// addCommand makes a command known, and forgets the oldest that have ended.
func (sb *sandbox) addCommand(c *command) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.commands = append(sb.commands, c)
	ended := 0
	for i := len(sb.commands) - 1; i >= 0; i-- {
		if sb.commands[i].snapshot().State == sdk.CommandRunning {
			continue
		}
		if ended++; ended > keptCommands {
			sb.commands = slices.Delete(sb.commands, i, i+1)
		}
	}
}

// ListCommands implements sdk.Commands.
func (p *Provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	var all []sdk.Command
	for _, c := range sb.commands {
		all = append(all, c.snapshot())
	}
	return all, nil
}

func (p *Provider) command(ctx context.Context, instanceID, commandID string) (*command, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for _, c := range sb.commands {
		if c.state.ID == commandID { // which never changes
			return c, nil
		}
	}
	return nil, sdk.FieldErrorf(sdk.CodeNotFound, "command_id", "no such command")
}

// ReadCommand implements sdk.Commands.
func (p *Provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	c, err := p.command(ctx, req.InstanceID, req.CommandID)
	if err != nil {
		return sdk.Command{}, err
	}
	return c.read(ctx, req, out)
}

// WriteCommand implements sdk.Commands.
func (p *Provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	return c.write(ctx, data, end)
}

// ResizeCommand implements sdk.Commands.
func (p *Provider) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	if state := c.snapshot(); !state.Terminal {
		return sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
	} else if state.State != sdk.CommandRunning {
		return errEnded
	}
	err = c.sb.tell(ctx, func(client *envd.Client) error {
		return client.Resize(ctx, c.supervisor(), envd.Terminal{Cols: size.Columns, Rows: size.Rows})
	})
	if connectCode(err) == "not_found" {
		return errEnded
	}
	return c.sb.explain(ctx, err)
}

// SignalCommand implements sdk.Commands.
func (p *Provider) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	c, err := p.command(ctx, instanceID, commandID)
	if err != nil {
		return err
	}
	return c.signal(ctx, signal)
}
