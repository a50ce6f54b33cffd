package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

type runCommandArguments struct {
	Command    string  `json:"command" jsonschema:"a line of bash"`
	Session    string  `json:"session,omitempty" jsonschema:"a name of your choice; a fresh sandbox without it"`
	Cwd        string  `json:"cwd,omitempty" jsonschema:"default /workspace"`
	Timeout    float64 `json:"timeout,omitempty" jsonschema:"seconds"`
	Background bool    `json:"background,omitempty" jsonschema:"leave it running in the session; see command_output"`
}

type commandOutputArguments struct {
	Session      string  `json:"session"`
	Command      string  `json:"command" jsonschema:"its id"`
	Wait         float64 `json:"wait,omitempty" jsonschema:"seconds to wait for its end, at most 300"`
	StdoutOffset int64   `json:"stdout_offset,omitempty" jsonschema:"byte to begin at"`
	StderrOffset int64   `json:"stderr_offset,omitempty" jsonschema:"byte to begin at"`
}

type stopCommandArguments struct {
	Session string `json:"session"`
	Command string `json:"command" jsonschema:"its id"`
}

func (t *tools) addCommands() {
	add(t, "run_command", "Run a command", "Run a shell command and return its exit code and output. With background it returns at once.", runs, call.runCommand)
	add(t, "command_output", "Output of a command", "Read what a command of a session has printed and whether it still runs.", readOnly, call.commandOutput)
	add(t, "stop_command", "Stop a command", "Kill a command of a session with all that it has started.", overwrites, call.stopCommand)
}

func (c call) runCommand(ctx context.Context, in runCommandArguments) (*mcp.CallToolResult, error) {
	switch {
	case in.Session != "":
	case in.Background:
		return nil, refused(sdk.CodeInvalidRequest, "background: needs a session, to which the command belongs.")
	default:
		code := in.Command
		if in.Cwd != "" {
			code = "cd -- '" + strings.ReplaceAll(in.Cwd, "'", `'\''`) + "' || exit\n" + code
		}
		return c.execute(ctx, client.ExecuteRequest{Language: "bash", Code: code, Timeout: in.Timeout, Provider: c.Provider, WaitMS: c.Wait.Milliseconds()})
	}
	instance, err := c.begun(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	req := client.StartCommandRequest{Command: in.Command, Cwd: in.Cwd, Timeout: in.Timeout, Background: in.Background}
	if in.Background {
		started, err := c.Client.StartCommand(ctx, instance.ID, req)
		if err != nil {
			return nil, err
		}
		return answered(fmt.Sprintf("%s runs in the background. command_output shows its output, stop_command stops it.\n", started.ID), started.Command), nil
	}
	return c.followCommand(ctx, instance.ID, req)
}

// followCommand runs a command to its end, or to that of the caller.
func (c call) followCommand(ctx context.Context, instance string, req client.StartCommandRequest) (*mcp.CallToolResult, error) {
	events, err := c.Client.CommandEvents(ctx, instance, req)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	progress := c.follow(ctx)
	defer progress.stop()
	var output commandOutput
	for event, err := range events.All() {
		if err == nil {
			err = output.take(event)
		}
		if err != nil {
			return nil, err
		}
		progress.saw(output.lastLine)
	}
	if output.command.ID == "" || output.command.State == string(sdk.CommandRunning) {
		return nil, errBrokenOff
	}
	return output.answer(0, 0), nil
}

// commandOutput is what is known of a command.
type commandOutput struct {
	command        client.Command
	stdout, stderr kept
	lastLine       string
}

func (o *commandOutput) take(event client.Event) error {
	switch event.Name {
	case client.EventStarted, client.EventDone:
		return client.Decode(event, &o.command)
	case client.EventStdout, client.EventStderr:
		var part client.CommandOutputPart
		if err := client.Decode(event, &part); err != nil {
			return err
		}
		to := &o.stdout
		if event.Name == client.EventStderr {
			to = &o.stderr
		}
		to.write(append([]byte(part.Text), part.Base64...))
		o.lastLine = to.lastLine()
	}
	return nil
}

// answer puts a command into words. The output begins at these bytes.
func (o *commandOutput) answer(stdoutAt, stderrAt int64) *mcp.CallToolResult {
	var text strings.Builder
	o.writeState(&text)
	writeStream(&text, "", &o.stdout)
	writeStream(&text, "stderr:\n", &o.stderr)
	writeMissing(&text, false, o.stdout.cut() || o.stderr.cut(), fmt.Sprintf(
		"command_output for %s with stdout_offset or stderr_offset shows it in parts, as far as it is kept.", o.command.ID))
	return answered(text.String(), o.structured(stdoutAt, stderrAt))
}

func (o *commandOutput) writeState(text *strings.Builder) {
	command := o.command
	switch {
	case command.ExitCode == nil:
		fmt.Fprintf(text, "%s is running\n", command.ID)
	case command.State == "succeeded" || command.State == "failed":
		text.WriteString(outcome("failed", *command.ExitCode, command.Error))
	default:
		text.WriteString(outcome(command.State, *command.ExitCode, command.Error))
	}
}

// structured is the answer of the REST API, cut to fit.
func (o *commandOutput) structured(stdoutAt, stderrAt int64) any {
	for room := keptTail; ; room /= 2 {
		command := o.command
		if room == 0 {
			command.Argv = []string{}
		}
		answer := struct {
			client.Command
			Stdout       string `json:"stdout"`
			Stderr       string `json:"stderr"`
			Truncated    bool   `json:"truncated,omitempty"`
			StdoutOffset int64  `json:"stdout_offset"`
			StderrOffset int64  `json:"stderr_offset"`
			NextStdout   int64  `json:"next_stdout_offset"`
			NextStderr   int64  `json:"next_stderr_offset"`
		}{
			Command: command, Stdout: o.stdout.shown(room), Stderr: o.stderr.shown(room),
			Truncated:    o.stdout.total > int64(keptHead+room) || o.stderr.total > int64(keptHead+room),
			StdoutOffset: stdoutAt, StderrOffset: stderrAt, NextStdout: stdoutAt + o.stdout.total, NextStderr: stderrAt + o.stderr.total,
		}
		if encoded, err := json.Marshal(answer); err == nil && len(encoded) <= maxStructured || room == 0 {
			return json.RawMessage(encoded)
		}
	}
}

// logPart is how much of each stream one answer has when it is read in parts: all of it is
// shown.
const logPart = keptHead + keptTail

func (c call) commandOutput(ctx context.Context, in commandOutputArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	if in.Command == "" {
		return nil, refused(sdk.CodeInvalidRequest, "command: must not be empty.")
	}
	if in.Wait != 0 {
		progress := c.follow(ctx)
		_, err := c.Client.WaitForCommand(ctx, instance.ID, in.Command, url.Values{"timeout": {strconv.FormatFloat(in.Wait, 'f', -1, 64)}})
		progress.stop()
		if err != nil {
			return nil, err
		}
	}
	logs, err := c.Client.CommandLogs(ctx, instance.ID, in.Command, url.Values{
		"stdout_offset": {strconv.FormatInt(in.StdoutOffset, 10)}, "stderr_offset": {strconv.FormatInt(in.StderrOffset, 10)},
	})
	if err != nil {
		return nil, err
	}
	output := commandOutput{command: logs.Command}
	stdout, stderr := exact(logs.Stdout, logs.StdoutBase64), exact(logs.Stderr, logs.StderrBase64)
	output.stdout.write(stdout[:min(len(stdout), logPart)])
	output.stderr.write(stderr[:min(len(stderr), logPart)])
	result := output.answer(logs.StdoutOffset, logs.StderrOffset)
	if note := moreOutput(logs, output); note != "" {
		result.Content = append(result.Content, &mcp.TextContent{Text: note})
	}
	return result, nil
}

// moreOutput says what is missing before and behind what is shown.
func moreOutput(logs client.CommandLogs, output commandOutput) string {
	var notes []string
	for _, stream := range []struct {
		name               string
		asked, at, shown   int64
		next, nextOfBroker int64
	}{
		{name: "stdout", at: logs.StdoutOffset, next: logs.StdoutOffset + output.stdout.total, nextOfBroker: logs.NextStdout},
		{name: "stderr", at: logs.StderrOffset, next: logs.StderrOffset + output.stderr.total, nextOfBroker: logs.NextStderr},
	} {
		if stream.next < stream.nextOfBroker {
			notes = append(notes, fmt.Sprintf("There is more: go on with %s_offset %d.", stream.name, stream.next))
		}
	}
	return strings.Join(notes, " ")
}

// exact is output as it was, of which the text is what can be shown.
func exact(text string, bytes []byte) []byte {
	if bytes != nil {
		return bytes
	}
	return []byte(text)
}

func (c call) stopCommand(ctx context.Context, in stopCommandArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	if in.Command == "" {
		return nil, refused(sdk.CodeInvalidRequest, "command: must not be empty.")
	}
	if err := c.Client.KillCommand(ctx, instance.ID, in.Command); err != nil {
		return nil, err
	}
	command, err := c.Client.WaitForCommand(ctx, instance.ID, in.Command, url.Values{"timeout": {strconv.FormatFloat(killWait.Seconds(), 'f', -1, 64)}})
	if err != nil {
		return nil, err
	}
	output := commandOutput{command: command}
	return output.answer(0, 0), nil
}

// killWait is how long the end of a command that was killed is waited for.
const killWait = 10 * time.Second
