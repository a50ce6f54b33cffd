package services

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/sandbox-broker/sandbox-broker/sdk"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// portChunk is how many bytes of a connection one message carries: connections are
// many, and this fits gRPC's buffers of 32 KiB.
const portChunk = 32<<10 - 128

// ports puts the ports of a provider behind gRPC.
type ports struct {
	providerv1.UnimplementedPortServiceServer
	provider any
}

// RegisterPorts serves sdk.Ports; a provider that lacks them answers so. The interceptors
// of the server encode errors.
func RegisterPorts(registrar grpc.ServiceRegistrar, provider any) {
	providerv1.RegisterPortServiceServer(registrar, &ports{provider: provider})
}

// DialPort carries one connection.
func (s *ports) DialPort(stream grpc.BidiStreamingServer[providerv1.DialPortRequest, providerv1.DialPortResponse]) error {
	p, err := Capable[sdk.Ports](s.provider, sdk.CapabilityPorts)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil || header.GetPort() == 0 || header.GetPort() > 1<<16-1 {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "port", "must be from 1 to 65535")
	}
	ctx := stream.Context()
	conn, err := p.DialPort(ctx, header.GetInstanceId(), uint16(header.GetPort()))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := stream.Send(&providerv1.DialPortResponse{}); err != nil {
		return err
	}
	// It ends when the call does, which is when this function returns.
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				closeWrite(conn)
				return
			}
			if _, err := conn.Write(m.GetData()); err != nil {
				return
			}
		}
	}()
	// gRPC has encoded a message when Send returns, so one buffer does.
	buf := make([]byte, portChunk)
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
			return err
		}
	}
}

// closeWrite ends our half of a connection, or all of it where it has no halves.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = conn.Close()
}
