package wire

// ProtocolVersion of the plugin contract that this SDK speaks; the highest that
// broker and plugin share is used.
const ProtocolVersion = 1

// MaxMessageBytes bounds a gRPC message between broker and plugin. gRPC's own
// defaults are 4 MiB on one side and 2 GiB on the other. It is what a plugin must
// be ready to receive. Of a plugin the broker takes no more than 1 MiB at once,
// beside 4 MiB for a part of a list and 8 MiB for a whole one, and for an execution
// what its result and artifacts may have.
const MaxMessageBytes = 32 << 20

// Environment variables that the broker sets for a plugin.
const (
	// EnvLogLevel is the level of the logger that Serve makes: trace, debug,
	// info, warn, error or off.
	EnvLogLevel = "SANDBOX_BROKER_LOG_LEVEL"
)

// MetadataLogLevel is the name under which the broker sends its log level with the
// calls that are no streams, health probes among them: trace, debug, info, warn,
// error or off. Serve's logger follows it, so that a plugin that runs need not be
// restarted to say more.
const MetadataLogLevel = "sandbox-broker-log-level"

// MetadataRequestID is the name under which the broker sends the ID of the request
// that a call is made for. Calls that no request asked for have none.
const MetadataRequestID = "sandbox-broker-request-id"
