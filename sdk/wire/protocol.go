package wire

import (
	"fmt"
	"math"
	"time"
)

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

// MetadataTraceParent is the name under which the broker sends the trace that a call is a
// part of, in the form of the W3C's Trace Context, as OpenTelemetry does over gRPC. There is
// none where the broker makes no traces.
const MetadataTraceParent = "traceparent"

// MetadataLease is the name under which a broker that shares its state with others sends, with
// each call, that it may have effects, in the form of LeaseText. A broker that is alone sends
// none.
const MetadataLease = "sandbox-broker-lease"

// LeaseText is what MetadataLease has: whose lease it is, the epoch and how much of it is left.
func LeaseText(brokerID string, epoch int64, left time.Duration) string {
	return fmt.Sprintf("%s %d %d", brokerID, epoch, max(left, 0).Milliseconds())
}

// ParseLease reads what LeaseText has made.
func ParseLease(text string) (brokerID string, epoch int64, left time.Duration, ok bool) {
	var milliseconds int64
	if n, err := fmt.Sscanf(text, "%s %d %d", &brokerID, &epoch, &milliseconds); n != 3 || err != nil || milliseconds < 0 || milliseconds > math.MaxInt32 {
		return "", 0, 0, false
	}
	return brokerID, epoch, time.Duration(milliseconds) * time.Millisecond, true
}
