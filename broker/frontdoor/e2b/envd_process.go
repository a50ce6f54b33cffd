package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b/envdv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerProcesses registers the routes of processes. One lives until it ends, is killed
// or its time is over: not until its client leaves.
func (d envd) registerProcesses() {
	streams(d, "/process.Process/Start", d.start)
	streams(d, "/process.Process/Connect", d.attach)
	unary(d, "/process.Process/List", d.processes)
	unary(d, "/process.Process/SendSignal", d.signal)
	unary(d, "/process.Process/SendInput", func(ctx context.Context, call *asked, req *envdv1.SendInputRequest) (*envdv1.SendInputResponse, error) {
		return &envdv1.SendInputResponse{}, d.withProcess(ctx, call, req.GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
			return write(ctx, commands, command, req.GetInput())
		})
	})
	unary(d, "/process.Process/CloseStdin", d.closeStdin)
	unary(d, "/process.Process/Update", d.resize)
	handler := connect.NewClientStreamHandler("/process.Process/StreamInput", d.streamInput, options(maxStreamed)...)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: "/process.Process/StreamInput", AnyQuery: true}, d.serve(handler))
}

// pidOf is the number by which clients know a command. It follows from the command's ID,
// so that nobody has to keep it, and is not that of the process in the sandbox.
func pidOf(command string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(command))
	return max(sum.Sum32()&math.MaxInt32, 2) // clients take it for a signed number, and 1 is no program
}

// start starts a process and tells what it prints, until it ends or the client leaves.
func (d envd) start(ctx context.Context, call *asked, req *envdv1.StartRequest, send func(*envdv1.StartResponse) error) error {
	config := req.GetProcess()
	cwd, err := pathOf(config.GetCwd())
	if err != nil {
		return err
	}
	switch {
	case config.GetCmd() == "":
		return refused("process.cmd", "is required")
	case req.Tag != nil:
		return refused("tag", "is not served here: a process is known by its pid")
	}
	command := sdk.CommandRequest{
		Argv: append([]string{config.GetCmd()}, config.GetArgs()...), Cwd: cwd, Timeout: call.timeout,
		Env: map[string]string{"HOME": home, "USER": user, "LOGNAME": user},
	}
	for name, value := range config.GetEnvs() {
		command.Env[name] = value
	}
	if size := req.GetPty().GetSize(); req.Pty != nil {
		if command.Terminal, err = terminalSize(size); err != nil {
			return err
		}
	} else {
		command.Stdin = req.Stdin == nil || *req.Stdin
	}
	return lending.WithCommands(ctx, d.instances, call.tenant, call.info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		started, err := commands.Start(ctx, command, lending.StartOptions{})
		if err != nil {
			return err
		}
		return tell(ctx, commands, started, sdk.ReadCommandRequest{}, call.keepAlive, func(e *envdv1.ProcessEvent) error {
			return send(&envdv1.StartResponse{Event: e})
		})
	})
}

// remembered is how long the end of a process is told to who connects to it, as with envd.
const remembered = 30 * time.Second

// attach tells what a process prints from now on.
func (d envd) attach(ctx context.Context, call *asked, req *envdv1.ConnectRequest, send func(*envdv1.ConnectResponse) error) error {
	return d.withProcess(ctx, call, req.GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		if command.State != sdk.CommandRunning && time.Since(command.EndedAt) > remembered {
			return noProcess()
		}
		from := sdk.ReadCommandRequest{StdoutOffset: command.StdoutBytes, StderrOffset: command.StderrBytes}
		return tell(ctx, commands, command, from, call.keepAlive, func(e *envdv1.ProcessEvent) error {
			return send(&envdv1.ConnectResponse{Event: e})
		})
	})
}

func noProcess() error {
	return sdk.Errorf(sdk.CodeNotFound, "There is no such process. It may have ended.")
}

// tell tells what a command prints and how it ends, and gives a sign of life where it is
// silent.
func tell(ctx context.Context, commands lending.Commands, command sdk.Command, from sdk.ReadCommandRequest, keepAlive time.Duration, send func(*envdv1.ProcessEvent) error) error {
	to := newPulse(send, keepAlive, &envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Keepalive{Keepalive: &envdv1.ProcessEvent_KeepAlive{}}})
	defer to.close()
	if err := to.tell(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Start_{Start: &envdv1.ProcessEvent_Start{Pid: pidOf(command.ID)}}}); err != nil {
		return err
	}
	from.CommandID, from.Follow = command.ID, true
	next := map[sdk.Stream]int64{sdk.Stdout: from.StdoutOffset, sdk.Stderr: from.StderrOffset}
	ended, err := commands.Read(ctx, from, func(piece sdk.CommandOutput) error {
		if piece.Offset > next[piece.Stream] {
			return own(connect.CodeDataLoss, sdk.Errorf(sdk.CodeConflict, "The process printed faster than this was read, and %d bytes of its output are lost. The process goes on.", piece.Offset-next[piece.Stream]))
		}
		next[piece.Stream] = piece.Offset + int64(len(piece.Data))
		return to.tell(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_Data_{Data: dataOf(command, piece)}})
	})
	if err != nil {
		return err
	}
	if ended.State == sdk.CommandTimeout {
		return unheard(connect.NewError(connect.CodeDeadlineExceeded, errors.New("the process was ended at its time limit (SB005)")))
	}
	return to.tell(&envdv1.ProcessEvent{Event: &envdv1.ProcessEvent_End_{End: endOf(ended)}})
}

func dataOf(command sdk.Command, piece sdk.CommandOutput) *envdv1.ProcessEvent_Data {
	switch {
	case command.Terminal:
		return &envdv1.ProcessEvent_Data{Output: &envdv1.ProcessEvent_Data_Pty{Pty: piece.Data}}
	case piece.Stream == sdk.Stderr:
		return &envdv1.ProcessEvent_Data{Output: &envdv1.ProcessEvent_Data_Stderr{Stderr: piece.Data}}
	default:
		return &envdv1.ProcessEvent_Data{Output: &envdv1.ProcessEvent_Data_Stdout{Stdout: piece.Data}}
	}
}

// endOf is how a command has ended, in envd's words. Of one that was ended by a signal,
// the exit code says which.
func endOf(command sdk.Command) *envdv1.ProcessEvent_End {
	killed := command.State == sdk.CommandCancelled || command.State == sdk.CommandOutOfMemory
	if killed && command.ExitCode > 128 {
		status := "signal: " + syscall.Signal(command.ExitCode-128).String()
		return &envdv1.ProcessEvent_End{ExitCode: -1, Status: status, Error: &status}
	}
	end := &envdv1.ProcessEvent_End{ExitCode: int32(command.ExitCode), Exited: true, Status: fmt.Sprintf("exit status %d", command.ExitCode)} //nolint:gosec // it is 0 to 255
	if command.ExitCode != 0 {
		end.Error = &end.Status
	}
	return end
}

// processes lists those that run.
func (d envd) processes(ctx context.Context, call *asked, _ *envdv1.ListRequest) (*envdv1.ListResponse, error) {
	list := &envdv1.ListResponse{}
	err := lending.WithCommands(ctx, d.instances, call.tenant, call.info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		all, err := commands.List(ctx)
		for _, command := range all {
			if command.State == sdk.CommandRunning {
				list.Processes = append(list.Processes, &envdv1.ProcessInfo{
					Pid:    pidOf(command.ID),
					Config: &envdv1.ProcessConfig{Cmd: command.Argv[0], Args: command.Argv[1:], Cwd: &command.Cwd},
				})
			}
		}
		return err
	})
	return list, err
}

// withProcess finds a process.
func (d envd) withProcess(ctx context.Context, call *asked, which *envdv1.ProcessSelector, use func(context.Context, lending.Commands, sdk.Command) error) error {
	if _, ok := which.GetSelector().(*envdv1.ProcessSelector_Pid); !ok {
		return refused("process", "must name a process by its pid")
	}
	return lending.WithCommands(ctx, d.instances, call.tenant, call.info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		all, err := commands.List(ctx)
		if err != nil {
			return err
		}
		for _, command := range all {
			if pidOf(command.ID) == which.GetPid() {
				return use(ctx, commands, command)
			}
		}
		return noProcess()
	})
}

// signal kills a process, or asks it to end. One that has ended is not found.
func (d envd) signal(ctx context.Context, call *asked, req *envdv1.SendSignalRequest) (*envdv1.SendSignalResponse, error) {
	var name string
	switch req.GetSignal() {
	case envdv1.Signal_SIGNAL_SIGKILL:
		name = "SIGKILL"
	case envdv1.Signal_SIGNAL_SIGTERM:
		name = "SIGTERM"
	default:
		return nil, refused("signal", "must be SIGNAL_SIGKILL or SIGNAL_SIGTERM")
	}
	return &envdv1.SendSignalResponse{}, d.withProcess(ctx, call, req.GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		if command.State != sdk.CommandRunning {
			return noProcess()
		}
		err := commands.Signal(ctx, command.ID, name)
		if sdk.CodeOf(err) == sdk.CodeConflict {
			return noProcess()
		}
		return err
	})
}

// inputPatience is how long a process may leave its input unread, as in the broker's own API. Half
// of it is what the SDKs wait for an answer.
const inputPatience = 30 * time.Second

// write gives a process its input.
func write(ctx context.Context, commands lending.Commands, command sdk.Command, input *envdv1.ProcessInput) error {
	switch given := input.GetInput().(type) {
	case *envdv1.ProcessInput_Pty:
		if !command.Terminal {
			return refused("input.pty", "is for a process with a terminal")
		}
		return commands.WriteFrom(ctx, command.ID, bytes.NewReader(given.Pty), false, inputPatience)
	case *envdv1.ProcessInput_Stdin:
		if command.Terminal {
			return refused("input.stdin", "is for a process without a terminal")
		}
		return commands.WriteFrom(ctx, command.ID, bytes.NewReader(given.Stdin), false, inputPatience)
	default:
		return refused("input", "is required")
	}
}

func (d envd) closeStdin(ctx context.Context, call *asked, req *envdv1.CloseStdinRequest) (*envdv1.CloseStdinResponse, error) {
	return &envdv1.CloseStdinResponse{}, d.withProcess(ctx, call, req.GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		if command.Terminal {
			return refused("process", "has a terminal; send it the character 0x04")
		}
		return commands.Write(ctx, command.ID, nil, true)
	})
}

func (d envd) resize(ctx context.Context, call *asked, req *envdv1.UpdateRequest) (*envdv1.UpdateResponse, error) {
	size, err := terminalSize(req.GetPty().GetSize())
	if err != nil {
		return nil, err
	}
	return &envdv1.UpdateResponse{}, d.withProcess(ctx, call, req.GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		return commands.Resize(ctx, command.ID, *size)
	})
}

// terminalSize checks a size.
func terminalSize(size *envdv1.TerminalSize) (*sdk.TerminalSize, error) {
	if size.GetCols() < 1 || size.GetCols() > math.MaxUint16 || size.GetRows() < 1 || size.GetRows() > math.MaxUint16 {
		return nil, refused("pty.size", "must have cols and rows, from 1 to %d", math.MaxUint16)
	}
	return &sdk.TerminalSize{Rows: uint16(size.GetRows()), Columns: uint16(size.GetCols())}, nil //nolint:gosec // checked
}

// streamInput gives a process input as it comes.
func (d envd) streamInput(ctx context.Context, stream *connect.ClientStream[envdv1.StreamInputRequest]) (*connect.Response[envdv1.StreamInputResponse], error) {
	call := askedOf(ctx)
	if call.failed != nil {
		return nil, connectError(call.failed)
	}
	err := d.takeInput(ctx, call, stream)
	if err != nil {
		call.failed = err
		return nil, connectError(err)
	}
	return connect.NewResponse(&envdv1.StreamInputResponse{}), nil
}

func (d envd) takeInput(ctx context.Context, call *asked, stream *connect.ClientStream[envdv1.StreamInputRequest]) error {
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		return refused("event", "must be start first")
	}
	return d.withProcess(ctx, call, stream.Msg().GetStart().GetProcess(), func(ctx context.Context, commands lending.Commands, command sdk.Command) error {
		for stream.Receive() {
			switch {
			case stream.Msg().GetData() != nil:
				if err := write(ctx, commands, command, stream.Msg().GetData().GetInput()); err != nil {
					return err
				}
			case stream.Msg().GetKeepalive() == nil:
				return refused("event", "must be data or keepalive")
			}
		}
		return unheard(stream.Err())
	})
}
