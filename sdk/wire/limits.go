package wire

import (
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What a plugin may say at once, in bytes. A message is in memory up to three
// times while it is decoded, and each call in progress may have one.
const (
	// maxAnswer is for a chunk of a file and everything smaller.
	maxAnswer = 1<<20 + maxAround
	// maxPart is for one of many messages of a list.
	maxPart = 4 << 20
	// maxDescription holds a schema of 200 fields with long texts.
	maxDescription = 2 << 20
	// maxList is for lists that come in one piece.
	maxList = 8 << 20
	// maxAround is what stands around the output and artifacts in a message.
	maxAround = 64 << 10
	// maxHeaders bounds the headers and the trailers of an answer, which hold its
	// error: see sdk.Error for how long its texts are.
	maxHeaders = 64 << 10
)

// executionLimit is for the events of an execution.
func executionLimit(output int64, artifacts *sdk.ArtifactLimits) grpc.CallOption {
	size := max(output, 1<<20)
	if artifacts != nil {
		size = max(size, artifacts.MaxBytes)
	}
	return grpc.MaxCallRecvMsgSize(int(min(size, MaxMessageBytes-maxAround)) + maxAround)
}

// maxSilence is how many messages in a row may say nothing: empty output, and
// events of a later version.
const maxSilence = 10_000

// silence counts messages that say nothing.
type silence int

// broken reports whether there were too many.
func (s *silence) broken(said int) error {
	if said > 0 {
		*s = 0
		return nil
	}
	if *s++; *s > maxSilence {
		return misbehaved("sent nothing but empty messages")
	}
	return nil
}

// DialOptions limit what messages from a plugin can cost.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxAnswer), // some calls have limits of their own
			grpc.MaxCallSendMsgSize(MaxMessageBytes),
			grpc.ForceCodecV2(newBoundedCodec()),
		),
		// gRPC's own limit is 16 MiB, and decodes the details in them to as much
		// as fits into 40 times that.
		grpc.WithMaxHeaderListSize(maxHeaders),
		// The same as the other side's; see package serve.
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(8 << 20),
		grpc.WithReadBufferSize(128 << 10), grpc.WithWriteBufferSize(128 << 10),
	}
}
