package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// endPatience is how long a stream may stay open behind its last message.
const endPatience = 5 * time.Second

// lastly reads the answer that is a stream's last message, and sees the stream end well
// behind it. stop ends the stream. A caller whose context ends meanwhile gets the answer as
// it is: the plugin had sent all of it.
func lastly[M, A any](ctx context.Context, stop context.CancelFunc, stream grpc.ServerStreamingClient[M], read func() (A, error)) (A, error) {
	answer, err := read()
	if err != nil {
		return answer, err
	}
	patience := time.AfterFunc(endPatience, stop)
	_, err = stream.Recv()
	inTime := patience.Stop()
	if gaveUp := inTime && ctx.Err() != nil; gaveUp || errors.Is(err, io.EOF) {
		return answer, nil
	}
	switch {
	case err == nil:
		err = misbehaved("went on after its last message")
	case !inTime:
		err = misbehaved(fmt.Sprintf("did not end its answer within %v of the last message", endPatience))
	case errors.Is(DecodeError(err), ErrPluginGone):
		err = DecodeError(err)
	default:
		err = sdk.Errorf(sdk.CodeInternal, "the plugin took back what it had answered: %w", DecodeError(err))
	}
	var none A
	return none, err
}

// maxExitCode is the highest that a process can have.
const maxExitCode = 255

// checkExitCode compares an exit code with what the plugin says became of the code.
func checkExitCode(code int, succeeded, failed bool) error {
	switch {
	case code < 0 || code > maxExitCode:
		return misbehaved(fmt.Sprintf("answered the exit code %d; there are 0 to %d, and 128 plus the signal stands for one", code, maxExitCode))
	case succeeded && code != 0:
		return misbehaved(fmt.Sprintf("contradicted itself: succeeded with the exit code %d", code))
	case failed && code == 0:
		return misbehaved("contradicted itself: failed with the exit code 0")
	}
	return nil
}

// DecodeResult checks a result and decodes it: limit is that of its JSON, in bytes.
func DecodeResult(wr *providerv1.ExecuteResult, limit int64) (sdk.ExecuteResult, error) {
	r := sdk.ExecuteResult{
		Status:          sdk.Status(wr.GetStatus()),
		ExitCode:        int(wr.GetExitCode()),
		Result:          json.RawMessage(wr.Result),
		Duration:        max(wr.GetDuration().AsDuration(), 0),
		Truncated:       wr.GetTruncated(),
		PeakMemoryBytes: max(wr.GetPeakMemoryBytes(), 0),
		Detail:          wr.GetDetail(),
	}
	if !slices.Contains(sdk.Statuses(), r.Status) {
		return r, misbehaved(fmt.Sprintf("answered the unknown status %.70q", wr.GetStatus()))
	}
	if err := checkExitCode(r.ExitCode, r.Status == sdk.StatusSucceeded, r.Status == sdk.StatusFailed); err != nil {
		return r, err
	}
	if r.Result != nil && !json.Valid(r.Result) {
		return r, misbehaved("answered a result that is not JSON")
	}
	if int64(len(r.Result)) > limit {
		return r, misbehaved("answered a result above the limit")
	}
	if len(r.Detail) > maxText {
		return r, misbehaved("answered a detail that is too long")
	}
	if r.Duration > 365*24*time.Hour {
		return r, misbehaved("answered an impossible duration")
	}
	var err error
	r.Findings, err = decodeFindings(wr.GetFindings())
	return r, err
}

func decodeFindings(wfs []*providerv1.Finding) ([]sdk.Finding, error) {
	if len(wfs) > sdk.MaxFindings {
		return nil, misbehaved(fmt.Sprintf("answered more than %d findings", sdk.MaxFindings))
	}
	var findings []sdk.Finding
	for _, wf := range wfs {
		if len(wf.GetRule()) > sdk.MaxFindingText || len(wf.GetMessage()) > sdk.MaxFindingText {
			return nil, misbehaved("answered a finding that is too long")
		}
		findings = append(findings, sdk.Finding{
			Line: int(max(wf.GetLine(), 0)), Column: int(max(wf.GetColumn(), 0)),
			Rule: wf.GetRule(), Message: wf.GetMessage(),
		})
	}
	return findings, nil
}

// EncodeResult encodes a result.
func EncodeResult(r sdk.ExecuteResult) *providerv1.ExecuteResult {
	return &providerv1.ExecuteResult{
		Status:          string(r.Status),
		ExitCode:        int32(r.ExitCode),
		Result:          r.Result,
		Duration:        durationpb.New(r.Duration),
		Truncated:       r.Truncated,
		PeakMemoryBytes: r.PeakMemoryBytes,
		Detail:          r.Detail,
		Findings:        encodeFindings(r.Findings),
	}
}

func encodeFindings(findings []sdk.Finding) []*providerv1.Finding {
	var wf []*providerv1.Finding
	for _, f := range findings[:min(len(findings), sdk.MaxFindings)] {
		wf = append(wf, &providerv1.Finding{
			Line: int32(f.Line), Column: int32(f.Column),
			Rule: cutText(f.Rule, sdk.MaxFindingText), Message: cutText(f.Message, sdk.MaxFindingText),
		})
	}
	return wf
}

// EncodeArtifact encodes an artifact, with texts no longer than may cross the wire.
func EncodeArtifact(a sdk.Artifact) *providerv1.Artifact {
	return &providerv1.Artifact{
		Kind: string(a.Kind), Name: cutText(a.Name, maxWireMessage), MimeType: cutText(a.MIMEType, sdk.MaxFindingText), Data: a.Data,
		Size: max(a.Size, int64(len(a.Data))), Group: int32(a.Group), Refused: cutText(a.Refused, maxWireMessage),
	}
}

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
