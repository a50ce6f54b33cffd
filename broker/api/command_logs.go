package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxLogs bounds a page of logs, in bytes of each stream.
const maxLogs = 256 << 10

func (s *Server) commandLogs(ctx context.Context, c call[none]) (int, CommandLogs, error) {
	if c.query.boolean("follow") {
		return 0, CommandLogs{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "follow", "needs the header Accept: text/event-stream")
	}
	req := logsRequest(c)
	output := commandOutput{limit: maxLogs, stdout: outputPart{begin: req.StdoutOffset}, stderr: outputPart{begin: req.StderrOffset}}
	var command sdk.Command
	err := s.withCommands(ctx, c.tenant, c.id, func(ctx context.Context, commands leasedCommands) (err error) {
		req.InstanceID = commands.lease.InstanceID
		if command, err = commands.ReadCommand(ctx, req, output.take); errors.Is(err, errFull) {
			command, err = commands.look(ctx, req.CommandID, false)
		}
		return err
	})
	if err != nil {
		return 0, CommandLogs{}, err
	}
	logs := CommandLogs{StdoutOffset: output.stdout.begin, StderrOffset: output.stderr.begin, Command: commandOf(command)}
	logs.Stdout, logs.StdoutBase64, logs.NextStdout = output.stdout.page()
	logs.Stderr, logs.StderrBase64, logs.NextStderr = output.stderr.page()
	return http.StatusOK, logs, nil
}

func logsRequest(c call[none]) sdk.ReadCommandRequest {
	return sdk.ReadCommandRequest{
		CommandID:    c.path["command"],
		StdoutOffset: c.query.integer("stdout_offset", 0), StderrOffset: c.query.integer("stderr_offset", 0),
		Follow: c.query.boolean("follow"),
	}
}

// page shows a part and where the next begins. Half a character at its end is left
// to that, unless it is all that there is.
func (p *outputPart) page() (shown string, exact []byte, next int64) {
	if whole := wholeRunes(p.bytes); len(whole) > 0 {
		p.bytes = whole
	}
	shown, exact = text(p.bytes, false)
	return shown, exact, p.next()
}
