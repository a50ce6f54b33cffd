package v1

import (
	"context"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// commandRequest is what a request asks for.
func commandRequest(body client.StartCommandRequest) (sdk.CommandRequest, error) {
	req := sdk.CommandRequest{
		Argv: body.Argv, Env: body.Env, Cwd: body.Cwd, Timeout: duration(body.Timeout), Stdin: body.Stdin,
	}
	switch {
	case body.Command != "" && body.Argv != nil:
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "command", "cannot be given beside argv")
	case body.Command != "":
		req.Argv = []string{"bash", "-c", body.Command}
	case body.Argv == nil:
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "is required, or command")
	}
	if len(body.Input) > lending.MaxInput {
		return req, sdk.FieldErrorf(sdk.CodeInvalidRequest, "input", "must have at most %d bytes; write more to the command's stdin", lending.MaxInput)
	}
	if body.Terminal != nil {
		size := terminalSize(*body.Terminal)
		req.Terminal = &size
	}
	return req, nil
}

// resultOf is what becomes of a command that the request has waited for.
func resultOf(command sdk.Command, output lending.Output) client.CommandResult {
	result := client.CommandResult{Command: commandOf(command), Truncated: output.Truncated}
	stdout, exactStdout := text(output.Stdout.Bytes, output.Truncated)
	stderr, exactStderr := text(output.Stderr.Bytes, output.Truncated)
	result.Stdout, result.Stderr = &stdout, &stderr
	result.StdoutBase64, result.StderrBase64 = exactStdout, exactStderr
	return result
}

func (h commandRoutes) startCommand(ctx context.Context, c rest.Call[client.StartCommandRequest]) (status int, answer client.CommandResult, err error) {
	req, err := commandRequest(c.Body)
	if err != nil {
		return 0, answer, err
	}
	input := []byte(c.Body.Input)
	err = lending.WithCommands(ctx, h.instances, c.Tenant, c.Path["id"], func(ctx context.Context, commands lending.Commands) error {
		if c.Body.Background {
			status = http.StatusCreated
			command, err := commands.Start(ctx, req, lending.StartOptions{Input: input})
			answer.Command = commandOf(command)
			return err
		}
		status = http.StatusOK
		command, output, err := commands.Run(ctx, req, input)
		if err == nil {
			answer = resultOf(command, output)
		}
		return err
	})
	return status, answer, err
}
