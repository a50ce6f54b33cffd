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
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

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

// ErrGone means that the connection to the guest has ended. Where there is one in all, the
// sandbox has ended with it; where another one can be had, what runs in the sandbox goes on
// but for what was asked over this one.
var ErrGone = errors.New("the connection to the sandbox has ended")

// Client is a connection to a guest.
type Client struct {
	conn    *grpc.ClientConn
	rpc     guestv1.GuestServiceClient
	install guestv1.InstallServiceClient
	network guestv1.NetworkServiceClient
}

// New makes a client of the only connection that there is. Close it before the connection.
func New(conn *stdio.Conn) (*Client, error) {
	return newClient(stdio.Dialer(conn),
		grpc.WithReadBufferSize(0), // the connection has one
		grpc.WithIdleTimeout(0),    // a second connection cannot be had
	)
}

// Pauses between the tries to connect, and how often a silent connection is asked whether it
// is there.
const (
	firstRedial = 100 * time.Millisecond
	mostRedial  = 2 * time.Second
	silence     = 10 * time.Second
)

// recordSize is the most that one read of a connection returns that TLS is spoken on. A larger
// buffer would hold no more, and a plugin has one for each of its sandboxes.
const recordSize = 16 << 10

// Redialing makes a client that connects, with dial, whenever it has no connection: what the
// guest serves outlives its connections. A connection that is silent is tried, and given up
// where nothing comes.
func Redialing(dial func(context.Context) (net.Conn, error)) (*Client, error) {
	return newClient(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) },
		grpc.WithReadBufferSize(recordSize),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: mostRedial},
			MinConnectTimeout: startBound,
		}),
		// Also where nothing is asked: a connection whose machine was lost for a moment is dead
		// on the guest's side alone, and the next call would find that out too late.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silence, Timeout: silence, PermitWithoutStream: true}),
	)
}

func newClient(dial func(context.Context, string) (net.Conn, error), options ...grpc.DialOption) (*Client, error) {
	// What a guest says is bounded as what a plugin says.
	cc, err := grpc.NewClient("passthrough:guest", append(append(wire.DialOptions(),
		grpc.WithContextDialer(dial),
		grpc.WithChainUnaryInterceptor(tellTrace), grpc.WithChainStreamInterceptor(tellTraceOfStream),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the connection has its own
	), options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the guest: %w", err)
	}
	return &Client{
		conn: cc, rpc: guestv1.NewGuestServiceClient(cc),
		install: guestv1.NewInstallServiceClient(cc), network: guestv1.NewNetworkServiceClient(cc),
	}, nil
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
		return nil, fmt.Errorf("prepare the guest: %w", wire.DecodeError(err))
	}
	if got, want := resp.GetVersion(), guest.Version(); got != want {
		return nil, fmt.Errorf("the guest speaks another protocol (%s) than the plugin (%s): install both from one build", got, want)
	}
	return resp, nil
}

// Check asks the guest whether it is well.
func (c *Client) Check(ctx context.Context) error {
	if _, err := c.rpc.Check(ctx, &guestv1.CheckRequest{}); err != nil {
		return fmt.Errorf("check the guest: %w", wire.DecodeError(err))
	}
	return nil
}

// Reset has the guest make the sandbox as it was after Prepare. With an error it is of no
// further use.
func (c *Client) Reset(ctx context.Context) error {
	if _, err := c.rpc.Reset(ctx, &guestv1.ResetRequest{}); err != nil {
		return fmt.Errorf("reset the sandbox: %w", wire.DecodeError(err))
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

	watch := newWatchdog(startTries*toStart+toEnd, cancel)
	defer watch.stop()
	watched := watchedConn{c.conn, func(stream grpc.ClientStream) {
		waiting.Go(func() {
			if header, err := stream.Header(); err == nil && header != nil && start.seen() {
				watch.restart(toEnd)
			}
		})
	}}
	req.InstanceID, req.Env = "", env
	delivered := &watchedOutput{out: out, watch: watch}
	result, err := wire.InstanceClient(watched).Execute(callCtx, req, delivered)
	if delivered.err != nil {
		return result, delivered.err
	}
	return result, c.explain(ctx, callCtx, err)
}

// explain puts the end of a call into one of the errors of this package.
func (c *Client) explain(ctx, callCtx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case context.Cause(callCtx) != nil:
		return context.Cause(callCtx)
	case errors.Is(err, wire.ErrPluginGone), errors.Is(err, context.Canceled):
		// The guest itself never says the latter: it means that we closed.
		return ErrGone
	default:
		return err
	}
}

// watchdog ends a call that takes too long.
type watchdog struct {
	mu     sync.Mutex
	timer  *time.Timer
	bound  time.Time
	paused bool
}

func newWatchdog(d time.Duration, cancel context.CancelCauseFunc) *watchdog {
	return &watchdog{timer: time.AfterFunc(d, func() { cancel(ErrStuck) }), bound: time.Now().Add(d)}
}

// restart has the whole of d before it.
func (w *watchdog) restart(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound = time.Now().Add(d); !w.paused {
		w.timer.Reset(d)
	}
}

func (w *watchdog) stop() { w.timer.Stop() }

// during makes a call whose time is not the guest's: that of a slow reader. There is one
// such call at a time.
func (w *watchdog) during(call func() error) error {
	w.mu.Lock()
	w.paused = true
	w.timer.Stop()
	w.mu.Unlock()
	began := time.Now()
	err := call()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
	w.bound = w.bound.Add(time.Since(began))
	w.timer.Reset(time.Until(w.bound))
	return err
}

// watchedOutput delivers output on its reader's time.
type watchedOutput struct {
	out   sdk.Output
	watch *watchdog
	err   error // of the reader, which is not the guest's
}

func (o *watchedOutput) deliver(call func() error) error {
	err := o.watch.during(call)
	if o.err == nil {
		o.err = err
	}
	return err
}

func (o *watchedOutput) Stdout(p []byte) error {
	return o.deliver(func() error { return o.out.Stdout(p) })
}

func (o *watchedOutput) Stderr(p []byte) error {
	return o.deliver(func() error { return o.out.Stderr(p) })
}

func (o *watchedOutput) Artifact(a sdk.Artifact) error {
	return o.deliver(func() error { return o.out.Artifact(a) })
}

// watchedConn tells of the streams that begin on a connection.
type watchedConn struct {
	grpc.ClientConnInterface
	begun func(grpc.ClientStream)
}

// NewStream implements grpc.ClientConnInterface.
func (c watchedConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err == nil {
		c.begun(stream)
	}
	return stream, err
}
