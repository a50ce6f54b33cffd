package serve

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// outputEvent is one message of a stream of output: one of its fields is set.
type outputEvent struct {
	stdout, stderr []byte
	artifact       *providerv1.Artifact
	result         *providerv1.ExecuteResult
}

func (e outputEvent) forExecute() *providerv1.ExecuteResponse {
	switch {
	case e.result != nil:
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Result{Result: e.result}}
	case e.artifact != nil:
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Artifact{Artifact: e.artifact}}
	case e.stderr != nil:
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stderr{Stderr: e.stderr}}
	default:
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: e.stdout}}
	}
}

func (e outputEvent) forInstall() *providerv1.InstallPackagesResponse {
	switch {
	case e.result != nil:
		return &providerv1.InstallPackagesResponse{Event: &providerv1.InstallPackagesResponse_Result{Result: e.result}}
	case e.stderr != nil:
		return &providerv1.InstallPackagesResponse{Event: &providerv1.InstallPackagesResponse_Stderr{Stderr: e.stderr}}
	default:
		return &providerv1.InstallPackagesResponse{Event: &providerv1.InstallPackagesResponse_Stdout{Stdout: e.stdout}}
	}
}

// limitedOutput sends output to the broker, up to the limit of each stream, so
// that no provider has to count.
type limitedOutput struct {
	ctx       context.Context
	limit     int64
	room      [2]atomic.Int64
	truncated atomic.Bool

	mu        sync.Mutex // a gRPC stream takes one sender at a time
	emit      func(outputEvent) error
	artifacts *sdk.ArtifactLimits // nil if none are wanted
	sent      int
	sentBytes int64
}

var _ sdk.Output = (*limitedOutput)(nil)

func newLimitedOutput(ctx context.Context, limit int64, emit func(outputEvent) error) *limitedOutput {
	o := &limitedOutput{ctx: ctx, limit: limit, emit: emit}
	o.room[0].Store(limit)
	o.room[1].Store(limit)
	return o
}

func (o *limitedOutput) Stdout(p []byte) error {
	return o.write(p, &o.room[0], func(chunk []byte) outputEvent { return outputEvent{stdout: chunk} })
}

func (o *limitedOutput) Stderr(p []byte) error {
	return o.write(p, &o.room[1], func(chunk []byte) outputEvent { return outputEvent{stderr: chunk} })
}

func (o *limitedOutput) write(p []byte, room *atomic.Int64, event func([]byte) outputEvent) error {
	if left := room.Add(-int64(len(p))) + int64(len(p)); left < int64(len(p)) {
		o.truncated.Store(true)
		p = p[:max(left, 0)]
	}
	for len(p) > 0 {
		n := min(len(p), sdk.MaxOutputChunk)
		if err := o.send(event(p[:n])); err != nil {
			return err
		}
		p = p[n:]
	}
	return o.ctx.Err()
}

func (o *limitedOutput) Artifact(a sdk.Artifact) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.artifacts == nil, o.sent > o.artifacts.MaxCount:
		return o.ctx.Err()
	case o.sent == o.artifacts.MaxCount:
		a = sdk.Artifact{Kind: a.Kind, Group: a.Group, Refused: fmt.Sprintf("more than %d artifacts: the rest is left out", o.artifacts.MaxCount)}
	case int64(len(a.Data)) > o.artifacts.MaxBytes:
		a.Size = max(a.Size, int64(len(a.Data)))
		a.Data, a.Refused = nil, fmt.Sprintf("larger than %d bytes", o.artifacts.MaxBytes)
	case o.sentBytes+int64(len(a.Data)) > o.artifacts.MaxTotalBytes:
		a.Size = max(a.Size, int64(len(a.Data)))
		a.Data, a.Refused = nil, fmt.Sprintf("more than %d bytes with the artifacts before it", o.artifacts.MaxTotalBytes)
	}
	o.sent++
	o.sentBytes += int64(len(a.Data))
	return o.emit(outputEvent{artifact: wire.EncodeArtifact(a)})
}

func (o *limitedOutput) send(event outputEvent) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.emit(event)
}

// finish sends the result, the last message.
func (o *limitedOutput) finish(result sdk.ExecuteResult) error {
	result.Truncated = result.Truncated || o.truncated.Load()
	if size := len(result.Result); int64(size) > o.limit {
		result.Status, result.ExitCode, result.Result = sdk.StatusFailed, max(result.ExitCode, 1), nil
		result.Detail = fmt.Sprintf("main returned %d bytes of JSON; at most %d are allowed", size, o.limit)
	}
	return o.send(outputEvent{result: wire.EncodeResult(result)})
}
