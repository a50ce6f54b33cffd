package client

// The events of a streamed execution. It ends with exactly one of EventDone and
// EventError. A command's stream has the same, and no EventArtifact and EventResult.
const (
	EventStarted  = "started"
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventArtifact = "artifact"
	EventResult   = "result"
	EventDone     = "done"
	// EventLost says that events are missing which the broker does not keep any more.
	EventLost = "lost"
	// EventError has a Problem. It is the last event of every stream that cannot go on.
	EventError = "error"
)

// EventMetrics is the event of a stream of metrics, which has no end of its own.
const EventMetrics = "metrics"

// The events of a watch, which has no end of its own.
const (
	EventReady  = "ready"
	EventChange = "change"
)

// TerminalProtocol is the subprotocol of a terminal's WebSocket.
const TerminalProtocol = "sandbox-broker.terminal.v1"
