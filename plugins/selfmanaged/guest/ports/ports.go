// Package ports connects callers to the TCP ports that programs in the sandbox
// listen on. The connections run over the guest's own stream, so that the sandbox
// needs no network for them.
//
// Only loopback is dialled. What is spoken there is not looked at.
package ports

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

const (
	// MaxConnections is how many connections there may be at once: each has
	// buffers, and they come out of the sandbox's own memory.
	MaxConnections = 128
	// chunk is how many bytes one message carries.
	chunk = 32 << 10
	// dialTimeout bounds the wait for a program that listens and accepts nothing.
	dialTimeout = 5 * time.Second
)

// Register makes srv serve the ports of this sandbox. Nothing is allocated before
// the first connection.
func Register(srv grpc.ServiceRegistrar) {
	providerv1.RegisterPortServiceServer(srv, &server{})
}

type server struct {
	providerv1.UnimplementedPortServiceServer

	open atomic.Int32
}

// DialPort implements providerv1.PortServiceServer.
func (s *server) DialPort(stream grpc.BidiStreamingServer[providerv1.DialPortRequest, providerv1.DialPortResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	port := first.GetHeader().GetPort()
	if port == 0 || port > 1<<16-1 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "port", "must be from 1 to 65535")
	}
	defer s.open.Add(-1)
	if s.open.Add(1) > MaxConnections {
		return sdk.Errorf(sdk.CodeQuotaExceeded, "the instance has %d connections to its ports already", MaxConnections)
	}
	ctx := stream.Context()
	conn, err := dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := stream.Send(&providerv1.DialPortResponse{}); err != nil {
		return err
	}
	go receive(conn, stream) // it ends when the call does, which is when this function returns
	return send(conn, stream)
}

// dial tries both loopback addresses: what listens on localhost has one of them.
func dial(ctx context.Context, port uint32) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10)))
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return tcp, nil
		}
		if ctx.Err() != nil {
			return nil, sdk.Errorf(sdk.CodeConnectionFailed, "what listens on port %d of the instance does not accept connections", port)
		}
	}
	return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens on port %d of the instance", port)
}

// receive writes to the program what the caller sends, and passes on that the
// caller has ended.
func receive(conn *net.TCPConn, stream grpc.BidiStreamingServer[providerv1.DialPortRequest, providerv1.DialPortResponse]) {
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			_ = conn.CloseWrite()
			return
		case err != nil:
			return // DialPort hears of it by its context
		}
		if _, err := conn.Write(m.GetData()); err != nil {
			return // and of this by reading
		}
	}
}

// send sends what the program writes until it ends.
func send(conn *net.TCPConn, stream grpc.BidiStreamingServer[providerv1.DialPortRequest, providerv1.DialPortResponse]) error {
	buf := make([]byte, chunk)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := stream.Send(&providerv1.DialPortResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return sdk.Errorf(sdk.CodeConnectionFailed, "the connection broke")
		}
	}
}
