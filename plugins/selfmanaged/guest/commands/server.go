package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/pipe"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Bounds. Each running command costs an init process and two buffers, and all of
// it is memory of the sandbox.
const (
	maxRunning   = 32
	maxFollowers = 64
	// maxArgv bounds a program's arguments together, in bytes: lists show them.
	maxArgv       = 128 << 10
	minKeepOutput = 4 << 10
	maxKeepOutput = 8 << 20
	// maxEnded is how many commands stay known that have ended, and
	// maxEndedOutput what is kept of their output together, in bytes.
	maxEnded       = 32
	maxEndedOutput = 16 << 20
)

// Resources are what programs may use. ok is false until the guest knows.
type Resources func() (limits isolation.Limits, guard *memory.Guard, ok bool)

// Server implements the service. Nothing is allocated before its first command.
type Server struct {
	providerv1.UnimplementedCommandServiceServer
	resources Resources

	mu        sync.Mutex
	running   int
	started   int
	followers int
	commands  []*command // in the order of their start
}

// NewServer returns a server. What it starts ends with the guest.
func NewServer(resources Resources) *Server { return &Server{resources: resources} }

// StartCommand implements the service.
func (s *Server) StartCommand(ctx context.Context, req *providerv1.StartCommandRequest) (*providerv1.StartCommandResponse, error) {
	limits, guard, ok := s.resources()
	if !ok {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the sandbox is not prepared")
	}
	if err := check(req); err != nil {
		return nil, err
	}
	if err := s.reserve(); err != nil {
		return nil, err
	}
	c, err := start(ctx, req, limits)
	if err != nil {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
		return nil, err
	}
	s.add(c)
	go func() {
		c.run(guard, req.GetTimeout().AsDuration())
		s.ended()
	}()
	return &providerv1.StartCommandResponse{Command: c.toWire()}, nil
}

// check finds what is wrong with a request, as far as it can be seen from it.
func check(req *providerv1.StartCommandRequest) error {
	size := 0
	for _, argument := range req.GetArgv() {
		size += len(argument) + 1
		if strings.ContainsRune(argument, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "holds a NUL character, which no argument can")
		}
	}
	if size > maxArgv {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "is longer than %d bytes; put it into a file", maxArgv)
	}
	for name, value := range req.GetEnv() {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "env", "holds a name or value that no environment can")
		}
	}
	if strings.ContainsRune(req.GetCwd(), 0) {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "holds a NUL character, which no path can")
	}
	return nil
}

// reserve takes one of the places for running commands.
func (s *Server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == maxRunning {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "%d commands run in this instance, which is the most; wait for one or end one", maxRunning)
	}
	s.running++
	return nil
}

func (s *Server) add(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
	c.id = "c-" + strconv.Itoa(s.started)
	s.commands = append(s.commands, c)
}

// ended frees a place and forgets what is too much: commands first, then the
// output of old ones, but never that of the last.
func (s *Server) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	known, output := 0, 0
	for i, c := range slices.Backward(s.commands) {
		if !c.hasEnded() {
			continue
		}
		if known++; known > maxEnded {
			s.commands = slices.Delete(s.commands, i, i+1)
			continue
		}
		if output += c.kept(); output > maxEndedOutput && known > 1 {
			c.forgetOutput()
		}
	}
}

// ListCommands implements the service.
func (s *Server) ListCommands(context.Context, *providerv1.ListCommandsRequest) (*providerv1.ListCommandsResponse, error) {
	s.mu.Lock()
	commands := slices.Clone(s.commands)
	s.mu.Unlock()
	resp := &providerv1.ListCommandsResponse{}
	for _, c := range commands {
		resp.Commands = append(resp.Commands, c.toWire())
	}
	return resp, nil
}

func (s *Server) find(id string) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if c.id == id {
			return c, nil
		}
	}
	return nil, sdk.Errorf(sdk.CodeNotFound, "no such command")
}

// ReadCommand implements the service.
func (s *Server) ReadCommand(req *providerv1.ReadCommandRequest, stream grpc.ServerStreamingServer[providerv1.ReadCommandResponse]) error {
	c, err := s.find(req.GetCommandId())
	if err != nil {
		return err
	}
	if req.GetFollow() {
		if err := s.follow(); err != nil {
			return err
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.followers--
		}()
	}
	r := c.reader(req.GetStdoutOffset(), req.GetStderrOffset(), req.GetFollow())
	for {
		output, changed, told := r.next()
		for _, o := range output {
			if err := stream.Send(&providerv1.ReadCommandResponse{Event: &providerv1.ReadCommandResponse_Output{Output: o}}); err != nil {
				return err
			}
		}
		switch {
		case told != nil:
			return stream.Send(&providerv1.ReadCommandResponse{Event: &providerv1.ReadCommandResponse_Command{Command: told}})
		case changed != nil:
			select {
			case <-changed:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	}
}

func (s *Server) follow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers == maxFollowers {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "%d readers follow commands of this instance, which is the most", maxFollowers)
	}
	s.followers++
	return nil
}

// WriteCommand implements the service.
func (s *Server) WriteCommand(ctx context.Context, req *providerv1.WriteCommandRequest) (*providerv1.WriteCommandResponse, error) {
	c, err := s.find(req.GetCommandId())
	if err != nil {
		return nil, err
	}
	if c.input == nil {
		return nil, sdk.Errorf(sdk.CodeConflict, "the command was started without standard input")
	}
	switch err := c.input.Write(ctx, req.GetData(), req.GetEnd()); {
	case errors.Is(err, pipe.ErrClosed):
		return nil, sdk.Errorf(sdk.CodeConflict, "the command's standard input is closed")
	case err != nil:
		return nil, err
	}
	return &providerv1.WriteCommandResponse{}, nil
}

// ResizeCommand implements the service.
func (s *Server) ResizeCommand(_ context.Context, req *providerv1.ResizeCommandRequest) (*providerv1.ResizeCommandResponse, error) {
	c, err := s.find(req.GetCommandId())
	switch {
	case err != nil:
		return nil, err
	case c.terminal == nil:
		return nil, sdk.Errorf(sdk.CodeConflict, "the command has no terminal")
	}
	if err := isolation.Resize(c.terminal, windowSize(req.GetTerminal())); err != nil {
		return nil, errEnded()
	}
	return &providerv1.ResizeCommandResponse{}, nil
}

// SignalCommand implements the service.
func (s *Server) SignalCommand(_ context.Context, req *providerv1.SignalCommandRequest) (*providerv1.SignalCommandResponse, error) {
	c, err := s.find(req.GetCommandId())
	if err != nil {
		return nil, err
	}
	signal := unix.SignalNum(req.GetSignal())
	if signal == 0 {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "signal", "must be the name of a signal, such as SIGTERM")
	}
	if err := c.signal(signal); err != nil {
		return nil, err
	}
	return &providerv1.SignalCommandResponse{}, nil
}

// start starts a program with its pipes or terminal.
func start(ctx context.Context, req *providerv1.StartCommandRequest, limits isolation.Limits) (*command, error) {
	c := &command{argv: req.GetArgv(), cwd: directory(req.GetCwd()), state: stateRunning}
	keep := int(min(max(req.GetKeepOutput(), minKeepOutput), maxKeepOutput))
	c.output[stdout], c.output[stderr] = ring.New(keep), ring.New(keep)
	streams, err := c.open(req)
	defer streams.close()
	if err != nil {
		c.close()
		return nil, sdk.Errorf(sdk.CodeInternal, "start a command: %v", err)
	}
	env := req.GetEnv()
	if req.GetTerminal() != nil && env["TERM"] == "" {
		env = maps.Clone(env)
		if env == nil {
			env = map[string]string{}
		}
		env["TERM"] = "xterm-256color"
	}
	spec := isolation.Spec{Argv: c.argv, Env: isolation.CodeEnvironment(env), Dir: c.cwd, Limits: limits}
	if req.GetTerminal() != nil {
		spec.Terminal = new(windowSize(req.GetTerminal()))
	}
	c.process, err = isolation.Start(spec, streams.Streams)
	if err != nil {
		c.close()
		return nil, sdk.Errorf(sdk.CodeUnavailable, "start a command: %v", err)
	}
	err = c.process.Started(ctx)
	if err == nil && req.GetTerminal() != nil {
		err = c.takeTerminal()
	}
	if err != nil {
		c.process.Kill()
		c.process.Wait()
		c.close()
		return nil, notStarted(ctx, err)
	}
	c.startedAt = time.Now()
	return c, nil
}

// notStarted puts into words why a program was not started.
func notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if refused, ok := errors.AsType[*isolation.Refused](err); ok {
		code := sdk.CodeInvalidRequest
		if refused.Field == "" {
			code = sdk.CodeQuotaExceeded
		}
		return sdk.FieldErrorf(code, refused.Field, "%s", refused.Message)
	}
	return sdk.Errorf(sdk.CodeUnavailable, "%v", fmt.Errorf("start a command: %w", err))
}

// directory is where a command runs. A relative one is below the workspace.
func directory(cwd string) string {
	if path.IsAbs(cwd) {
		return cwd
	}
	return path.Join(isolation.WorkspaceDir, cwd)
}
