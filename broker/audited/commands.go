package audited

import (
	"context"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// StartCommand begins a record that ends when the broker sees the end of the
// command, or that of its instance.
func (p *provider) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	rec := p.recorder
	e := rec.effect(ctx, OpCommand, req.InstanceID)
	whole := strings.Join(req.Argv, "\x00")
	e.Code, e.CodeHash, e.CodeBytes = strings.Join(req.Argv, " "), hashOf(whole), int64(len(whole))
	e.Path, e.EnvNames = req.Cwd, names(req.Env)
	if len(req.Argv) > 0 {
		e.Program = req.Argv[0]
	}
	r, err := rec.log.Begin(ctx, e)
	if err != nil {
		return sdk.Command{}, err
	}
	command, err := p.client.StartCommand(ctx, req)
	if err != nil {
		outcome := audit.Outcome{}
		failed(ctx, &outcome, err)
		if unrecorded := r.End(outcome); unrecorded != nil {
			err = unrecorded
		}
		return sdk.Command{}, err
	}
	r.Fill(func(e *audit.Effect) { e.CommandID = command.ID })
	if !rec.started(req.InstanceID, command.ID, r) {
		err = r.End(audit.Outcome{Status: string(sdk.CommandRunning), Detail: "its end is not followed"})
	}
	return command, err
}

// ReadCommand changes nothing; it is where the end of a command shows.
func (p *provider) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	command, err := p.client.ReadCommand(ctx, req, out)
	if err != nil {
		return command, err
	}
	return command, p.recorder.see(req.InstanceID, command)
}

// ListCommands is another such place.
func (p *provider) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	commands, err := p.client.ListCommands(ctx, instanceID)
	for _, command := range commands {
		if err == nil {
			err = p.recorder.see(instanceID, command)
		}
	}
	return commands, err
}

// see ends the record of a command that has ended, if nobody did before.
func (rec *Recorder) see(instanceID string, command sdk.Command) error {
	if command.State == sdk.CommandRunning || command.State == "" {
		return nil
	}
	r := rec.ended(instanceID, command.ID)
	if r == nil {
		return nil
	}
	return r.End(audit.Outcome{
		Status: string(command.State), Error: sdk.Status(command.State).Code(), ExitCode: &command.ExitCode, Region: rec.region(instanceID),
	})
}

func (p *provider) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	e := p.recorder.effect(ctx, OpInput, instanceID)
	e.CommandID = commandID
	return p.recorder.record(ctx, e, func(o *audit.Outcome) error {
		size := int64(len(data))
		o.Bytes = &size
		return p.client.WriteCommand(ctx, instanceID, commandID, data, end)
	})
}

func (p *provider) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	e := p.recorder.effect(ctx, OpSignal, instanceID)
	e.CommandID, e.Signal = commandID, signal
	return p.recorder.record(ctx, e, func(*audit.Outcome) error {
		return p.client.SignalCommand(ctx, instanceID, commandID, signal)
	})
}
