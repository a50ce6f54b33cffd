package v1

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	// maxInput is the most that a command gets to read with its request, in
	// bytes: what a pipe takes at once.
	maxInput = 64 << 10
	// inputTime is how long a terminal may take for it.
	inputTime = 5 * time.Second
	// cleanUpTime bounds the killing of a command that nobody waits for any more.
	cleanUpTime = 10 * time.Second
)

// commandRequest is what a request asks for.
func commandRequest(body client.StartCommandRequest) (sdk.CommandRequest, error) {
	req := sdk.CommandRequest{
		Argv: body.Argv, Env: body.Env, Cwd: body.Cwd, Timeout: duration(body.Timeout), Stdin: body.Stdin || body.Input != "",
	}
	switch {
	case body.Command != "" && body.Argv != nil:
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "command", "cannot be given beside argv")
	case body.Command != "":
		req.Argv = []string{"bash", "-c", body.Command}
	case body.Argv == nil:
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "is required, or command")
	}
	if len(body.Input) > maxInput {
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "input", "must have at most %d bytes; write more to the command's stdin", maxInput)
	}
	if body.Terminal != nil {
		size := terminalSize(*body.Terminal)
		req.Terminal = &size
	}
	return req, nil
}

// start starts a command and gives it its input. When ctx ends meanwhile, the
// command does not run.
func (c leasedCommands) start(ctx context.Context, body client.StartCommandRequest, req sdk.CommandRequest) (sdk.Command, error) {
	// Of a call that is broken off, nobody would know whether it had started.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	command, err := c.StartCommand(detached, req)
	if err != nil {
		return sdk.Command{}, err
	}
	if err = ctx.Err(); err == nil && body.Input != "" {
		err = c.input(ctx, command.ID, body)
	}
	if err != nil {
		return sdk.Command{}, errors.Join(err, c.kill(ctx, command.ID))
	}
	return command, nil
}

// input writes what came with the request. A program that does not want it is no
// error.
func (c leasedCommands) input(ctx context.Context, id string, body client.StartCommandRequest) error {
	patience, cancel := context.WithTimeout(ctx, inputTime)
	defer cancel()
	err := c.WriteCommand(patience, c.lease.InstanceID, id, []byte(body.Input), !body.Stdin && body.Terminal == nil)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}):
		return nil
	case ranOut(ctx, patience, err):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "input", "is more than the terminal takes before the program reads it")
	}
	return err
}

// kill ends a command, also after the end of ctx.
func (c leasedCommands) kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	err := c.SignalCommand(ctx, c.lease.InstanceID, id, "SIGKILL")
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) || errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) {
		return nil
	}
	return err
}

// follow passes on what a command prints and returns when it has ended. If ctx
// ends before, so does the command.
func (c leasedCommands) follow(ctx context.Context, id string, out func(sdk.CommandOutput) error) (sdk.Command, error) {
	command, err := c.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: c.lease.InstanceID, CommandID: id, Follow: true}, out)
	if err != nil {
		return sdk.Command{}, errors.Join(err, c.kill(ctx, id))
	}
	return command, nil
}

// commandOutput collects the output of a command, from some offset on and up to a
// limit for each stream.
type commandOutput struct {
	limit     int64
	stdout    outputPart
	stderr    outputPart
	truncated bool
}

type outputPart struct {
	begin int64 // offset of the first byte
	bytes []byte
}

func (p *outputPart) next() int64 { return p.begin + int64(len(p.bytes)) }

// errFull ends the collection when there is no room.
var errFull = errors.New("there is no room for more output")

// take adds a piece. What does not follow on the one before is not taken: both
// it and its predecessor would be wrong about their place.
func (o *commandOutput) take(piece sdk.CommandOutput) error {
	part := &o.stdout
	if piece.Stream == sdk.Stderr {
		part = &o.stderr
	}
	if len(part.bytes) == 0 && piece.Offset > part.begin {
		part.begin, o.truncated = piece.Offset, true
	}
	data := piece.Data
	if room := o.limit - int64(len(part.bytes)); piece.Offset != part.next() {
		data = nil
	} else if int64(len(data)) > room {
		data = data[:room]
	}
	part.bytes = append(part.bytes, data...)
	if len(data) < len(piece.Data) {
		o.truncated = true
		return errFull
	}
	return nil
}

// drop is take for somebody who waits for the end: the rest is of no use.
func (o *commandOutput) drop(piece sdk.CommandOutput) error {
	_ = o.take(piece) // says that it was cut, which truncated does too
	return nil
}

// run starts a command in the foreground and waits for its end.
func (c leasedCommands) run(ctx context.Context, body client.StartCommandRequest, req sdk.CommandRequest) (client.CommandResult, error) {
	started, err := c.start(ctx, body, req)
	if err != nil {
		return client.CommandResult{}, err
	}
	// The provider ends it in time, unless it hangs.
	ctx, cancel := context.WithTimeout(ctx, req.Timeout+c.lease.AnswerGrace())
	defer cancel()
	output := commandOutput{limit: c.lease.OutputLimit()}
	command, err := c.follow(ctx, started.ID, output.drop)
	if err != nil {
		return client.CommandResult{}, err
	}
	result := client.CommandResult{Command: commandOf(command), Truncated: output.truncated}
	stdout, exactStdout := text(output.stdout.bytes, output.truncated)
	stderr, exactStderr := text(output.stderr.bytes, output.truncated)
	result.Stdout, result.Stderr = &stdout, &stderr
	result.StdoutBase64, result.StderrBase64 = exactStdout, exactStderr
	return result, nil
}

func (h commandRoutes) startCommand(ctx context.Context, c rest.Call[client.StartCommandRequest]) (status int, answer client.CommandResult, err error) {
	req, err := commandRequest(c.Body)
	if err != nil {
		return 0, answer, err
	}
	err = h.withCommands(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, commands leasedCommands) error {
		if err := commands.lease.BoundCommand(&req, !c.Body.Background); err != nil {
			return err
		}
		if !c.Body.Background {
			status = http.StatusOK
			answer, err = commands.run(ctx, c.Body, req)
			return err
		}
		status = http.StatusCreated
		command, err := commands.start(ctx, c.Body, req)
		answer.Command = commandOf(command)
		return err
	})
	return status, answer, err
}
