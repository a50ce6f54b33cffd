package guestclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// maxTunnels is how many connections of one installation may be open or on their
// way. The guest asks for fewer, and who grants them for fewer still.
const maxTunnels = 128

// tunnelChunk is how much of a connection travels at once.
const tunnelChunk = 32 << 10

// tunnelStream carries one connection.
type tunnelStream = grpc.BidiStreamingClient[guestv1.TunnelRequest, guestv1.TunnelResponse]

// Installer is a program that installs packages.
type Installer struct {
	Argv []string
	Env  map[string]string
}

// Connector makes the connections that an installer asks for. The text of its
// error is told inside the sandbox.
type Connector interface {
	Connect(ctx context.Context, host string, port uint16) (net.Conn, error)
}

// Install runs an installer, and gives it connections as long as it runs. Its
// errors are those of Execute. out must take what it gets at once.
func (c *Client) Install(ctx context.Context, installer Installer, timeout time.Duration, outputLimit int64, connector Connector, out sdk.Output) (sdk.ExecuteResult, error) {
	callCtx, cancel := context.WithCancelCause(ctx)
	var tunnels sync.WaitGroup
	defer tunnels.Wait()
	defer cancel(nil)
	watchdog := time.AfterFunc(startBound+timeout+endBound, func() { cancel(ErrStuck) })
	defer watchdog.Stop()

	stream, err := c.install.Install(callCtx, &guestv1.InstallRequest{
		Argv: installer.Argv, Env: installer.Env, Timeout: durationpb.New(timeout), OutputLimit: outputLimit,
	})
	room := make(chan struct{}, maxTunnels)
	for err == nil {
		var event *guestv1.InstallResponse
		if event, err = stream.Recv(); err != nil {
			break
		}
		var unread error
		switch e := event.GetEvent().(type) {
		case *guestv1.InstallResponse_Stdout:
			unread = out.Stdout(e.Stdout)
		case *guestv1.InstallResponse_Stderr:
			unread = out.Stderr(e.Stderr)
		case *guestv1.InstallResponse_Connect:
			select {
			case room <- struct{}{}:
				tunnels.Go(func() {
					defer func() { <-room }()
					tunnel(callCtx, e.Connect, connector, c.install.Tunnel)
				})
			default:
				unread = sdk.Errorf(sdk.CodeUnavailable, "the installation asked for too many connections")
			}
		case *guestv1.InstallResponse_Result:
			return wire.DecodeResult(e.Result, outputLimit)
		}
		if unread != nil {
			return sdk.ExecuteResult{}, unread
		}
	}
	return sdk.ExecuteResult{}, c.explain(ctx, callCtx, wire.DecodeError(err))
}

// tunnel answers one request for a connection, and returns when that has ended.
func tunnel(ctx context.Context, asked *guestv1.Connect, connector Connector, open func(context.Context, ...grpc.CallOption) (tunnelStream, error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dial(ctx, asked, connector)
	stream, broken := open(ctx)
	if broken != nil {
		if err == nil {
			_ = conn.Close()
		}
		return
	}
	accept := &guestv1.Accept{Id: asked.GetId()}
	if err != nil {
		accept.Refused = err.Error()
	}
	answered := stream.Send(&guestv1.TunnelRequest{Event: &guestv1.TunnelRequest_Accept{Accept: accept}})
	if err != nil {
		_ = stream.CloseSend()
		_, _ = stream.Recv() // until the guest has read it
		return
	}
	defer conn.Close()
	if answered != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var down sync.WaitGroup
	defer down.Wait()
	down.Go(func() {
		defer cancel()
		buf := make([]byte, tunnelChunk)
		for {
			n, err := conn.Read(buf)
			if n > 0 {
				data := append([]byte(nil), buf[:n]...)
				if stream.Send(&guestv1.TunnelRequest{Event: &guestv1.TunnelRequest_Data{Data: data}}) != nil {
					return
				}
			}
			if err != nil {
				finish(stream, err)
				return
			}
		}
	})
	for {
		message, err := stream.Recv()
		if err == nil {
			_, err = conn.Write(message.GetData())
		}
		if err != nil {
			_ = conn.Close()
			cancel()
			return
		}
	}
}

// finish ends a tunnel whose far side has ended. What was sent before arrives:
// the guest ends the call when it has come to the end of it.
func finish(stream tunnelStream, err error) {
	if !errors.Is(err, io.EOF) || stream.CloseSend() != nil {
		return
	}
	<-stream.Context().Done()
}

func dial(ctx context.Context, asked *guestv1.Connect, connector Connector) (net.Conn, error) {
	if asked.GetPort() > math.MaxUint16 {
		return nil, fmt.Errorf("there is no port %d", asked.GetPort())
	}
	return connector.Connect(ctx, asked.GetHost(), uint16(asked.GetPort()))
}
