// Package guestclient speaks to the guest of one sandbox, whatever runtime
// started it.
//
// The guest's side of the connection is inside the sandbox, so what comes from
// there is checked before it is believed.
package guestclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// Bounds on what the guest may take beside the code's own time limit. When one
// passes, the sandbox is beyond help and must be destroyed. That a machine is busy
// shall not cost sandboxes that are well: a guest that has no interpreter ready in
// time, and says that it is well, is given startTries times the bound. The broker
// gives up 5 seconds after the time limit.
const (
	startBound = 10 * time.Second // until the interpreter has the code
	startTries = 6
	endBound   = 3 * time.Second // from the time limit to the result
)

// ErrNotStarted means that the guest did not take the code in time.
var ErrNotStarted = errors.New("the guest does not take the code")

// ErrStuck means that the guest did not end the code in time.
var ErrStuck = errors.New("the guest does not answer")

// ErrGone means that the sandbox has ended.
var ErrGone = errors.New("the sandbox has ended")

// Client is a connection to a guest.
type Client struct {
	conn    *grpc.ClientConn
	rpc     guestv1.GuestServiceClient
	install guestv1.InstallServiceClient
}

// New makes a client of a connection. Close it before the connection.
func New(conn *stdio.Conn) (*Client, error) {
	cc, err := grpc.NewClient("passthrough:guest",
		grpc.WithContextDialer(stdio.Dialer(conn)),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(guest.MaxMessageBytes), grpc.MaxCallSendMsgSize(guest.MaxMessageBytes)),
		// As between broker and plugin; see serve.ServerOptions.
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(8<<20),
		grpc.WithReadBufferSize(128<<10), grpc.WithWriteBufferSize(128<<10),
		grpc.WithIdleTimeout(0), // a second connection cannot be had
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the guest: %w", err)
	}
	return &Client{conn: cc, rpc: guestv1.NewGuestServiceClient(cc), install: guestv1.NewInstallServiceClient(cc)}, nil
}

// Instance is the guest as the agent of an instance: the capabilities that it
// serves by the provider's own contract. It disregards instance IDs.
func (c *Client) Instance() *wire.Client { return wire.InstanceClient(c.conn) }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Prepare readies the guest and returns what it says of itself.
func (c *Client) Prepare(ctx context.Context, req *guestv1.PrepareRequest) (*guestv1.PrepareResponse, error) {
	resp, err := c.rpc.Prepare(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("prepare the guest: %w", err)
	}
	if got, want := resp.GetVersion(), guest.Version(); got != want {
		return nil, fmt.Errorf("the guest speaks another protocol (%s) than the plugin (%s): install both from one build", got, want)
	}
	return resp, nil
}

// Check asks the guest whether it is well.
func (c *Client) Check(ctx context.Context) error {
	if _, err := c.rpc.Check(ctx, &guestv1.CheckRequest{}); err != nil {
		return fmt.Errorf("check the guest: %w", err)
	}
	return nil
}

// Execute runs code. Its error is ctx's own, out's own, ErrGone, ErrNotStarted,
// ErrStuck, or an *sdk.Error.
func (c *Client) Execute(ctx context.Context, req sdk.ExecuteRequest, env map[string]string, out sdk.Output) (sdk.ExecuteResult, error) {
	if req.Arguments != nil && !json.Valid(req.Arguments) {
		return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "is no JSON, or nested too deeply")
	}
	toStart, toEnd := startBound, req.Timeout+endBound
	if req.ContextID != "" {
		toStart, toEnd = toStart+guest.TurnBound, toEnd+guest.InterruptGrace
	}
	callCtx, cancel := context.WithCancelCause(ctx)
	start := newStart()
	var waiting sync.WaitGroup
	waiting.Go(func() { c.awaitStart(callCtx, start, toStart, cancel) })
	defer waiting.Wait()
	defer cancel(nil)

	bound := time.Now().Add(startTries*toStart + toEnd)
	watchdog := time.AfterFunc(time.Until(bound), func() { cancel(ErrStuck) })
	defer watchdog.Stop()
	// The time that a slow reader takes is not the guest's.
	deliver := func(write func([]byte) error, p []byte) error {
		watchdog.Stop()
		began := time.Now()
		defer func() {
			bound = bound.Add(time.Since(began))
			watchdog.Reset(time.Until(bound))
		}()
		return write(p)
	}

	var arguments []byte
	if req.Arguments != nil {
		arguments = req.Arguments
	}
	stream, err := c.rpc.Execute(callCtx, &guestv1.ExecuteRequest{
		Language: string(req.Language), Code: req.Code, Arguments: arguments, Env: env,
		Timeout: durationpb.New(req.Timeout), OutputLimit: req.OutputLimit,
		ExecutionId: req.ExecutionID, ContextId: req.ContextID, Artifacts: limits(req.Artifacts),
	})
	artifacts := newArtifacts(req.Artifacts, out)
	for err == nil {
		var event *guestv1.ExecuteResponse
		if event, err = stream.Recv(); err != nil {
			break
		}
		var unread error
		switch e := event.GetEvent().(type) {
		case *guestv1.ExecuteResponse_Started:
			if start.seen() {
				bound = time.Now().Add(toEnd)
				watchdog.Reset(toEnd)
			}
		case *guestv1.ExecuteResponse_Stdout:
			unread = deliver(out.Stdout, e.Stdout)
		case *guestv1.ExecuteResponse_Stderr:
			unread = deliver(out.Stderr, e.Stderr)
		case *guestv1.ExecuteResponse_Artifact:
			unread = deliver(func([]byte) error { return artifacts.take(e.Artifact) }, nil)
		case *guestv1.ExecuteResponse_Result:
			return result(e.Result, req.Timeout), nil
		}
		if unread != nil {
			return sdk.ExecuteResult{}, unread
		}
	}
	return sdk.ExecuteResult{}, c.explain(ctx, callCtx, err)
}

// explain turns a stream's error into what Execute promises.
func (c *Client) explain(ctx, callCtx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case context.Cause(callCtx) != nil:
		return context.Cause(callCtx)
	case status.Code(err) == codes.DeadlineExceeded: // gRPC's clock was a moment ahead of ctx's
		return context.DeadlineExceeded
	case errors.Is(err, io.EOF), status.Code(err) == codes.Unavailable, status.Code(err) == codes.Canceled:
		// The guest itself never says these; the last means that we closed.
		return ErrGone
	case refused(err) != nil:
		return refused(err)
	case status.Code(err) == codes.Unimplemented:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "language", "%s", status.Convert(err).Message())
	case status.Code(err) == codes.FailedPrecondition:
		return sdk.Errorf(sdk.CodeUnavailable, "the interpreter could not be started: %s", status.Convert(err).Message())
	default:
		return sdk.Errorf(sdk.CodeInternal, "execute in the sandbox: %w", err)
	}
}

func result(r *guestv1.ExecuteResult, timeout time.Duration) sdk.ExecuteResult {
	result := sdk.ExecuteResult{
		ExitCode:        int(r.GetExitCode() & 0xff), // as of a process, whatever the sandbox says
		Duration:        max(r.GetDuration().AsDuration(), 0),
		Truncated:       r.GetTruncated(),
		PeakMemoryBytes: max(r.GetPeakMemoryBytes(), 0),
		Detail:          printable(r.GetDetail()),
	}
	if r.Result != nil && json.Valid(r.Result) {
		result.Result = r.Result
	}
	for _, f := range r.GetFindings() {
		result.Findings = append(result.Findings, sdk.Finding{
			Line: int(f.GetLine()), Column: int(f.GetColumn()), Rule: f.GetRule(), Message: f.GetMessage(),
		})
	}
	switch {
	case r.GetOutcome() == guestv1.ExecuteResult_OUTCOME_TIMEOUT:
		result.Status, result.Detail = sdk.StatusTimeout, joined(TimeoutDetail(timeout), result.Detail)
	case r.GetOutcome() == guestv1.ExecuteResult_OUTCOME_OUT_OF_MEMORY:
		result.Status, result.Detail = sdk.StatusOutOfMemory, joined("the code used more memory than its sandbox has", result.Detail)
	case r.GetOutcome() == guestv1.ExecuteResult_OUTCOME_BLOCKED:
		result.Status, result.Detail = sdk.StatusBlocked, blockedDetail(result.Findings)
	case r.GetOutcome() == guestv1.ExecuteResult_OUTCOME_CANCELLED:
		result.Status, result.Detail = sdk.StatusCancelled, joined("the execution was interrupted", result.Detail)
	case result.ExitCode == 0:
		result.Status = sdk.StatusSucceeded
	default:
		result.Status = sdk.StatusFailed
	}
	return result
}

// blockedDetail names what stands first in the code.
func blockedDetail(findings []sdk.Finding) string {
	if len(findings) == 0 {
		return "the code policy refuses the code"
	}
	f := findings[0]
	detail := fmt.Sprintf("line %d: %s (rule %s)", f.Line, f.Message, f.Rule)
	switch more := len(findings) - 1; {
	case more == 1:
		detail += ", and one more finding"
	case more > 1:
		detail += fmt.Sprintf(", and %d more findings", more)
	}
	return detail
}

// TimeoutDetail says that code ran into its time limit.
func TimeoutDetail(timeout time.Duration) string {
	return fmt.Sprintf("the code was stopped at its time limit of %s", timeout)
}
