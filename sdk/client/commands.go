package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// StartCommandRequest asks for a command.
type StartCommandRequest struct {
	Argv       []string          `json:"argv,omitempty" minItems:"1" maxItems:"1024" nullable:"false" doc:"The program, which is looked for along PATH, and its arguments. Either this or command." example:"[\"ls\",\"-l\"]"`
	Command    string            `json:"command,omitempty" minLength:"1" doc:"A line of shell: short for argv [\"bash\", \"-c\", command]." example:"make test 2>&1 | tail"`
	Env        map[string]string `json:"env,omitempty" maxProperties:"100" doc:"Environment variables, over those of the instance."`
	Cwd        string            `json:"cwd,omitempty" minLength:"1" maxLength:"4096" doc:"The directory that it starts in, in the instance. Default: /workspace, which a relative one is below."`
	Timeout    float64           `json:"timeout,omitempty" exclusiveMinimum:"0" doc:"Seconds of wall-clock time after which it is killed. Default: that of executions; none in the background."`
	Input      string            `json:"input,omitempty" minLength:"1" doc:"Text for its standard input, at most 65536 bytes. Without stdin it is all that there is."`
	Stdin      bool              `json:"stdin,omitempty" doc:"Keep standard input open for more. Default: false, and standard input is empty or input."`
	Terminal   *TerminalSize     `json:"terminal,omitempty" doc:"Give it a terminal of this size instead of pipes. All output is stdout then, and standard input is open."`
	Background bool              `json:"background,omitempty" doc:"Answer as soon as it runs, and leave it running. Default: false, wait for its end."`
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows    int `json:"rows" minimum:"1" maximum:"65535" example:"24"`
	Columns int `json:"columns" minimum:"1" maximum:"65535" example:"80"`
}

// Command is a program in an instance.
type Command struct {
	_           struct{}        `additionalProperties:"true"`
	ID          string          `json:"id" example:"c-1"`
	Argv        []string        `json:"argv" nullable:"false"`
	Cwd         string          `json:"cwd"`
	State       string          `json:"state" enum:"running,succeeded,failed,timeout,out_of_memory,cancelled" doc:"cancelled: ended by a signal that a request sent. Values may be added."`
	ExitCode    *int            `json:"exit_code,omitempty" doc:"128 plus the signal when one ended it; absent while it runs."`
	Error       *ExecutionError `json:"error,omitempty" doc:"For timeout and out_of_memory."`
	StartedAt   time.Time       `json:"started_at"`
	EndedAt     *time.Time      `json:"ended_at,omitempty"`
	StdoutBytes int64           `json:"stdout_bytes" doc:"What it has printed so far, what is not kept any more included."`
	StderrBytes int64           `json:"stderr_bytes"`
	Stdin       bool            `json:"stdin" doc:"Whether standard input was left open."`
	Terminal    bool            `json:"terminal"`
}

// CommandResult is a command with its output, unless it runs in the background.
type CommandResult struct {
	Command
	Stdout       *string `json:"stdout,omitempty" doc:"What is not UTF-8 is shown as U+FFFD; stdout_base64 has the exact bytes then. Absent in the background."`
	Stderr       *string `json:"stderr,omitempty"`
	StdoutBase64 []byte  `json:"stdout_base64,omitempty"`
	StderrBase64 []byte  `json:"stderr_base64,omitempty"`
	Truncated    bool    `json:"truncated,omitempty" doc:"Output above the limit was dropped; the logs may have its last part."`
}

// CommandList holds the commands of an instance, oldest first.
type CommandList struct {
	_        struct{}  `additionalProperties:"true"`
	Commands []Command `json:"commands" nullable:"false"`
}

// CommandLogs is a part of a command's output.
type CommandLogs struct {
	_            struct{} `additionalProperties:"true"`
	Stdout       string   `json:"stdout" doc:"What is not UTF-8 is shown as U+FFFD; stdout_base64 has the exact bytes then."`
	Stderr       string   `json:"stderr"`
	StdoutBase64 []byte   `json:"stdout_base64,omitempty"`
	StderrBase64 []byte   `json:"stderr_base64,omitempty"`
	StdoutOffset int64    `json:"stdout_offset" doc:"Where stdout begins: later than asked for if older bytes are not kept any more."`
	StderrOffset int64    `json:"stderr_offset"`
	NextStdout   int64    `json:"next_stdout_offset" doc:"Ask for this next. When the command has ended and this is its stdout_bytes, that was all."`
	NextStderr   int64    `json:"next_stderr_offset"`
	Command      Command  `json:"command" doc:"As it was then."`
}

// SignalRequest names a signal.
type SignalRequest struct {
	Signal string `json:"signal" minLength:"4" maxLength:"16" pattern:"^SIG[A-Z0-9+]+$" patternDescription:"SIG and capital letters" doc:"Its POSIX name." example:"SIGTERM"`
}

// CommandOutputPart is a piece of a command's output: text or base64 is there.
type CommandOutputPart struct {
	_      struct{} `additionalProperties:"true"`
	Offset int64    `json:"offset" doc:"Where the piece begins in its stream. If that is later than the end of the piece before, what lies between is not kept any more: the reader was too slow."`
	Text   string   `json:"text,omitempty" doc:"The piece, if it is UTF-8. A character is never cut."`
	Base64 []byte   `json:"base64,omitempty" doc:"Else its exact bytes."`
}

// TerminalMessage is a text frame of a terminal's WebSocket, in either direction.
// Binary frames are what was typed and what is shown.
type TerminalMessage struct {
	// Resize, from the client, is the terminal's new size.
	Resize *TerminalSize `json:"resize,omitempty"`
	// Lost, from the broker, counts the bytes before the next frame that are not
	// kept any more.
	Lost int64 `json:"lost,omitempty"`
	// Done, from the broker, is the command when it has ended. The broker closes
	// then, with status 1000.
	Done *Command `json:"done,omitempty"`
	// Error, from the broker, is why it closes before that.
	Error *Problem `json:"error,omitempty"`
}

// StartCommand runs a command, to its end unless it is for the background.
func (c *Client) StartCommand(ctx context.Context, id string, req StartCommandRequest) (CommandResult, error) {
	return ask[CommandResult](ctx, c, Request{Method: post, Path: below(id, "commands"), Body: req})
}

// CommandEvents runs a command and tells what it prints.
func (c *Client) CommandEvents(ctx context.Context, id string, req StartCommandRequest) (*Events, error) {
	return c.stream(ctx, Request{Method: post, Path: below(id, "commands"), Body: req})
}

// Commands lists the commands of an instance.
func (c *Client) Commands(ctx context.Context, id string) (CommandList, error) {
	return ask[CommandList](ctx, c, Request{Method: get, Path: below(id, "commands")})
}

// Command looks at a command.
func (c *Client) Command(ctx context.Context, id, command string) (Command, error) {
	return ask[Command](ctx, c, Request{Method: get, Path: below(id, "commands", command)})
}

// WaitForCommand waits for the end of a command. The query may have timeout.
func (c *Client) WaitForCommand(ctx context.Context, id, command string, query url.Values) (Command, error) {
	return ask[Command](ctx, c, Request{Method: post, Path: below(id, "commands", command, "wait"), Query: query})
}

// CommandLogs reads what a command has printed. The query may have stdout_offset and
// stderr_offset.
func (c *Client) CommandLogs(ctx context.Context, id, command string, query url.Values) (CommandLogs, error) {
	return ask[CommandLogs](ctx, c, Request{Method: get, Path: below(id, "commands", command, "logs"), Query: query})
}

// FollowCommand does so as events. The query may have follow besides. Where the connection
// breaks off, it is made again, behind the last output, a few times.
func (c *Client) FollowCommand(ctx context.Context, id, command string, query url.Values) (*Events, error) {
	again := func(ctx context.Context, after string) (*http.Response, error) {
		from := c
		if after != "" {
			from = c.With("Last-Event-ID", after)
		}
		return from.Do(ctx, Request{Method: get, Path: below(id, "commands", command, "logs"), Query: query, Accept: acceptEvents})
	}
	resp, err := again(ctx, "") //nolint:bodyclose // Events.Close does
	if err != nil {
		return nil, err
	}
	return resuming(ctx, resp, "", again), nil
}

// WriteCommand writes to a command's standard input. The query may have end and timeout.
func (c *Client) WriteCommand(ctx context.Context, id, command string, query url.Values, input io.Reader) error {
	_, err := ask[struct{}](ctx, c, Request{
		Method: post, Path: below(id, "commands", command, "stdin"), Query: query, Body: input, ContentType: mediaBytes,
	})
	return err
}

// SignalCommand sends a signal to every process of a command.
func (c *Client) SignalCommand(ctx context.Context, id, command, signal string) error {
	return c.tell(ctx, post, below(id, "commands", command, "signal"), SignalRequest{Signal: signal})
}

// ResizeCommand tells a command's terminal its size.
func (c *Client) ResizeCommand(ctx context.Context, id, command string, size TerminalSize) error {
	return c.tell(ctx, post, below(id, "commands", command, "resize"), size)
}

// KillCommand kills a command and all that it has started.
func (c *Client) KillCommand(ctx context.Context, id, command string) error {
	return c.tell(ctx, http.MethodDelete, below(id, "commands", command), nil)
}
