package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// StartCommand implements sdk.Commands.
func (c *Client) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	wr := &providerv1.StartCommandRequest{
		InstanceId: req.InstanceID, Argv: req.Argv, Env: req.Env, Cwd: req.Cwd, Stdin: req.Stdin, KeepOutput: req.KeepOutput,
	}
	if req.Timeout > 0 {
		wr.Timeout = durationpb.New(req.Timeout)
	}
	if req.Terminal != nil {
		wr.Terminal = terminalSizeToWire(*req.Terminal)
	}
	resp, err := c.commands.StartCommand(ctx, wr)
	if err != nil {
		return sdk.Command{}, DecodeError(err)
	}
	return decodeCommand(resp.GetCommand())
}

// ListCommands implements sdk.Commands.
func (c *Client) ListCommands(ctx context.Context, instanceID string) ([]sdk.Command, error) {
	resp, err := c.commands.ListCommands(ctx, &providerv1.ListCommandsRequest{InstanceId: instanceID}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, DecodeError(err)
	}
	return decodeList(resp.GetCommands(), decodeCommand)
}

// ReadCommand implements sdk.Commands.
func (c *Client) ReadCommand(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.commands.ReadCommand(ctx, &providerv1.ReadCommandRequest{
		InstanceId: req.InstanceID, CommandId: req.CommandID,
		StdoutOffset: req.StdoutOffset, StderrOffset: req.StderrOffset, Follow: req.Follow,
	})
	if err != nil {
		return sdk.Command{}, DecodeError(err)
	}
	next := map[sdk.Stream]int64{sdk.Stdout: req.StdoutOffset, sdk.Stderr: req.StderrOffset}
	var quiet silence
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return sdk.Command{}, misbehaved("ended a command's output without the command")
		case err != nil:
			return sdk.Command{}, DecodeError(err)
		}
		switch e := event.GetEvent().(type) {
		case *providerv1.ReadCommandResponse_Command:
			return lastly(ctx, cancel, stream, func() (sdk.Command, error) { return decodeCommand(e.Command) })
		case *providerv1.ReadCommandResponse_Output:
			o := sdk.CommandOutput{Stream: sdk.Stream(e.Output.GetStream()), Offset: e.Output.GetOffset(), Data: e.Output.GetData()}
			expected, known := next[o.Stream]
			switch {
			case !known || o.Offset < expected || o.Offset > math.MaxInt64-int64(len(o.Data)):
				return sdk.Command{}, misbehaved("sent a command's output out of order")
			case len(o.Data) > sdk.MaxOutputChunk:
				return sdk.Command{}, misbehaved("sent too much of a command's output at once")
			}
			next[o.Stream] = o.Offset + int64(len(o.Data))
			if err := out(o); err != nil {
				return sdk.Command{}, err
			}
			if err := quiet.broken(len(o.Data)); err != nil {
				return sdk.Command{}, err
			}
		default: // an event of a later minor version
			if err := quiet.broken(0); err != nil {
				return sdk.Command{}, err
			}
		}
	}
}

// WriteCommand implements sdk.Commands.
func (c *Client) WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error {
	_, err := c.commands.WriteCommand(ctx, &providerv1.WriteCommandRequest{InstanceId: instanceID, CommandId: commandID, Data: data, End: end})
	return DecodeError(err)
}

// ResizeCommand implements sdk.Commands.
func (c *Client) ResizeCommand(ctx context.Context, instanceID, commandID string, size sdk.TerminalSize) error {
	_, err := c.commands.ResizeCommand(ctx, &providerv1.ResizeCommandRequest{InstanceId: instanceID, CommandId: commandID, Terminal: terminalSizeToWire(size)})
	return DecodeError(err)
}

// SignalCommand implements sdk.Commands.
func (c *Client) SignalCommand(ctx context.Context, instanceID, commandID, signal string) error {
	_, err := c.commands.SignalCommand(ctx, &providerv1.SignalCommandRequest{InstanceId: instanceID, CommandId: commandID, Signal: signal})
	return DecodeError(err)
}

// maxArgv bounds what a plugin says of a command's arguments, in bytes together:
// more than Linux starts.
const maxArgv = 1 << 20

func boundedArgv(argv []string) bool {
	size := 0
	for _, argument := range argv {
		size += len(argument) + 1
	}
	return size <= maxArgv
}

func terminalSizeToWire(s sdk.TerminalSize) *providerv1.TerminalSize {
	return &providerv1.TerminalSize{Rows: uint32(s.Rows), Columns: uint32(s.Columns)}
}

func decodeCommand(wc *providerv1.Command) (sdk.Command, error) {
	cmd := sdk.Command{
		ID: wc.GetId(), Argv: wc.GetArgv(), Cwd: wc.GetCwd(), State: sdk.CommandState(wc.GetState()), ExitCode: int(wc.GetExitCode()),
		StartedAt: decodeTime(wc.GetStartedAt()), EndedAt: decodeTime(wc.GetEndedAt()),
		StdoutBytes: max(wc.GetStdoutBytes(), 0), StderrBytes: max(wc.GetStderrBytes(), 0), Stdin: wc.GetStdin(), Terminal: wc.GetTerminal(),
	}
	switch {
	case !instanceID().MatchString(cmd.ID):
		return cmd, misbehaved("gave a command an ID that is not acceptable")
	case !boundedArgv(cmd.Argv), len(cmd.Cwd) > maxText:
		return cmd, misbehaved("described a command unacceptably")
	case !slices.Contains(sdk.CommandStates(), cmd.State):
		return cmd, misbehaved(fmt.Sprintf("answered the unknown state %.70q of a command", wc.GetState()))
	}
	return cmd, checkExitCode(cmd.ExitCode, cmd.State == sdk.CommandSucceeded, cmd.State == sdk.CommandFailed)
}

// DecodeTerminalSize returns the size of a terminal.
func DecodeTerminalSize(t *providerv1.TerminalSize) sdk.TerminalSize {
	const most = 1<<16 - 1
	return sdk.TerminalSize{Rows: uint16(min(t.GetRows(), most)), Columns: uint16(min(t.GetColumns(), most))}
}

// EncodeCommand encodes a command.
func EncodeCommand(c sdk.Command) *providerv1.Command {
	wc := &providerv1.Command{
		Id: c.ID, Argv: c.Argv, Cwd: c.Cwd, State: string(c.State), ExitCode: int32(c.ExitCode), StartedAt: timestamppb.New(c.StartedAt),
		StdoutBytes: c.StdoutBytes, StderrBytes: c.StderrBytes, Stdin: c.Stdin, Terminal: c.Terminal,
	}
	if !c.EndedAt.IsZero() {
		wc.EndedAt = timestamppb.New(c.EndedAt)
	}
	return wc
}
