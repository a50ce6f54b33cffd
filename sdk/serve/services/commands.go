package services

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// commands puts the commands of a provider behind gRPC.
type commands struct {
	providerv1.UnimplementedCommandServiceServer
	provider any
}

// RegisterCommands serves sdk.Commands; a provider that lacks them answers so. The
// interceptors of the server encode errors.
func RegisterCommands(registrar grpc.ServiceRegistrar, provider any) {
	providerv1.RegisterCommandServiceServer(registrar, &commands{provider: provider})
}

func (s *commands) StartCommand(ctx context.Context, req *providerv1.StartCommandRequest) (*providerv1.StartCommandResponse, error) {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return nil, err
	}
	if len(req.GetArgv()) == 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "must name a program")
	}
	command := sdk.CommandRequest{
		InstanceID: req.GetInstanceId(), Argv: req.GetArgv(), Env: req.GetEnv(), Cwd: req.GetCwd(),
		Timeout: max(req.GetTimeout().AsDuration(), 0), Stdin: req.GetStdin(), KeepOutput: max(req.GetKeepOutput(), 1),
	}
	if t := req.GetTerminal(); t != nil {
		size := wire.DecodeTerminalSize(t)
		command.Terminal = &size
	}
	c, err := p.StartCommand(ctx, command)
	if err != nil {
		return nil, err
	}
	return &providerv1.StartCommandResponse{Command: wire.EncodeCommand(c)}, nil
}

func (s *commands) ListCommands(ctx context.Context, req *providerv1.ListCommandsRequest) (*providerv1.ListCommandsResponse, error) {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return nil, err
	}
	list, err := p.ListCommands(ctx, req.GetInstanceId())
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListCommandsResponse{}
	for _, c := range list {
		resp.Commands = append(resp.Commands, wire.EncodeCommand(c))
	}
	return resp, nil
}

func (s *commands) ReadCommand(req *providerv1.ReadCommandRequest, stream grpc.ServerStreamingServer[providerv1.ReadCommandResponse]) error {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return err
	}
	c, err := p.ReadCommand(stream.Context(), sdk.ReadCommandRequest{
		InstanceID: req.GetInstanceId(), CommandID: req.GetCommandId(),
		StdoutOffset: max(req.GetStdoutOffset(), 0), StderrOffset: max(req.GetStderrOffset(), 0), Follow: req.GetFollow(),
	}, func(o sdk.CommandOutput) error {
		return stream.Send(&providerv1.ReadCommandResponse{Event: &providerv1.ReadCommandResponse_Output{
			Output: &providerv1.CommandOutput{Stream: string(o.Stream), Offset: o.Offset, Data: o.Data},
		}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&providerv1.ReadCommandResponse{Event: &providerv1.ReadCommandResponse_Command{Command: wire.EncodeCommand(c)}})
}

func (s *commands) WriteCommand(ctx context.Context, req *providerv1.WriteCommandRequest) (*providerv1.WriteCommandResponse, error) {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return nil, err
	}
	return &providerv1.WriteCommandResponse{}, p.WriteCommand(ctx, req.GetInstanceId(), req.GetCommandId(), req.GetData(), req.GetEnd())
}

func (s *commands) ResizeCommand(ctx context.Context, req *providerv1.ResizeCommandRequest) (*providerv1.ResizeCommandResponse, error) {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return nil, err
	}
	return &providerv1.ResizeCommandResponse{}, p.ResizeCommand(ctx, req.GetInstanceId(), req.GetCommandId(), wire.DecodeTerminalSize(req.GetTerminal()))
}

func (s *commands) SignalCommand(ctx context.Context, req *providerv1.SignalCommandRequest) (*providerv1.SignalCommandResponse, error) {
	p, err := Capable[sdk.Commands](s.provider, sdk.CapabilityCommands)
	if err != nil {
		return nil, err
	}
	return &providerv1.SignalCommandResponse{}, p.SignalCommand(ctx, req.GetInstanceId(), req.GetCommandId(), req.GetSignal())
}
