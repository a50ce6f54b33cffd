package sdk

import (
	"context"
	"time"
)

// Commands is implemented by providers whose instances run programs that outlive
// a call: servers, builds, shells. A command runs until it ends, is signalled,
// its time limit comes or its instance ends. All processes that it started end
// with it. A provider without terminals refuses CommandRequest.Terminal with
// CodeNotSupported.
//
// All methods return CodeNotFound for an unknown instance or command. Commands
// that have ended stay known for a while, at least the last ten of an instance.
type Commands interface {
	// StartCommand returns when the program runs, or with CodeInvalidRequest and
	// the field "argv" when there is no such program.
	StartCommand(ctx context.Context, req CommandRequest) (Command, error)
	// ListCommands returns those that run, and those that are still known.
	ListCommands(ctx context.Context, instanceID string) ([]Command, error)
	// ReadCommand passes on what the command has printed from the given offsets
	// on, in the order of each stream, and with Follow what it will print. It
	// returns the command as it is then: ended, if Follow is set. To stop
	// reading does not stop the command.
	ReadCommand(ctx context.Context, req ReadCommandRequest, out func(CommandOutput) error) (Command, error)
	// WriteCommand writes to standard input and returns when the pipe or
	// terminal has taken everything. With end, standard input is closed then; a
	// terminal stays open and gets its character for the end of input.
	// CodeConflict means that it is closed or was never open.
	WriteCommand(ctx context.Context, instanceID, commandID string, data []byte, end bool) error
	// ResizeCommand tells a command that its terminal has another size.
	// CodeConflict means that it has none, or has ended.
	ResizeCommand(ctx context.Context, instanceID, commandID string, size TerminalSize) error
	// SignalCommand sends a signal, by its POSIX name such as SIGTERM, to every
	// process of the command. SIGKILL always ends it. A command that has ended
	// gives CodeConflict.
	SignalCommand(ctx context.Context, instanceID, commandID, signal string) error
}

// CommandRequest asks for a command.
type CommandRequest struct {
	InstanceID string
	// Argv is the program, found along PATH, and its arguments.
	Argv []string
	// Env is added to the instance's environment.
	Env map[string]string
	// Cwd is a directory inside the instance; empty for /workspace.
	Cwd string
	// Timeout after which the command is killed; 0 for none.
	Timeout time.Duration
	// Stdin keeps standard input open for WriteCommand; else it is empty.
	Stdin bool
	// Terminal gives the command a terminal instead of pipes: its output is all
	// Stdout, and standard input is open.
	Terminal *TerminalSize
	// KeepOutput is how many bytes of each stream are kept for readers, the
	// latest ones. It is always positive.
	KeepOutput int64
}

// TerminalSize in characters.
type TerminalSize struct{ Rows, Columns uint16 }

// ReadCommandRequest asks for a command's output. Offsets count all bytes of the
// stream since the command began. An offset at or behind the end gives nothing, and
// with Follow what comes there later if it is reached: whoever only waits for the end
// asks from the largest offset there is.
type ReadCommandRequest struct {
	InstanceID, CommandID      string
	StdoutOffset, StderrOffset int64
	Follow                     bool
}

// CommandOutput is a piece of output.
type CommandOutput struct {
	// Stream is Stdout or Stderr.
	Stream Stream
	// Offset of Data. It is above the end of the last piece where bytes were
	// not kept.
	Offset int64
	// Data of at most MaxOutputChunk bytes. It is valid during the call only.
	Data []byte
}

// Stream names an output stream.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Command is a program in an instance.
type Command struct {
	// ID is the provider's own name for it, unique in its instance.
	ID   string
	Argv []string
	Cwd  string
	// State is CommandRunning or what became of it.
	State CommandState
	// ExitCode once it has ended; 128 plus the signal when one ended it.
	ExitCode  int
	StartedAt time.Time
	// EndedAt is zero while it runs.
	EndedAt time.Time
	// StdoutBytes and StderrBytes count what it printed, also what is not kept.
	StdoutBytes, StderrBytes int64
	Stdin, Terminal          bool
}

// CommandState says what a command does or has come to.
type CommandState string

// The states. All but CommandRunning are final.
const (
	CommandRunning     CommandState = "running"
	CommandSucceeded   CommandState = "succeeded"     // exit code 0
	CommandFailed      CommandState = "failed"        // any other
	CommandTimeout     CommandState = "timeout"       // killed at its time limit
	CommandOutOfMemory CommandState = "out_of_memory" // killed at the memory limit
	CommandCancelled   CommandState = "cancelled"     // ended by SignalCommand
)

// CommandStates lists all states.
func CommandStates() []CommandState {
	return []CommandState{CommandRunning, CommandSucceeded, CommandFailed, CommandTimeout, CommandOutOfMemory, CommandCancelled}
}
