package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"google.golang.org/grpc"
)

// portChunk is how many bytes of a connection one message carries: connections are
// many, and this fits gRPC's buffers of 32 KiB. The next size is 1 MiB.
const portChunk = 32<<10 - 128

// maxPortMessage bounds what the other end may send at once: connections are many,
// and each message is in memory whole.
const maxPortMessage = 1 << 20

// DialPort implements sdk.Ports.
func (c *Client) DialPort(ctx context.Context, instanceID string, port uint16) (net.Conn, error) {
	// The call lasts as long as the connection; ctx bounds its beginning.
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	stream, err := c.ports.DialPort(callCtx, grpc.MaxCallRecvMsgSize(maxPortMessage))
	if err == nil {
		header := &providerv1.DialPortHeader{InstanceId: instanceID, Port: uint32(port)}
		err = stream.Send(&providerv1.DialPortRequest{Part: &providerv1.DialPortRequest_Header{Header: header}})
		if err == nil || errors.Is(err, io.EOF) { // what there is to say, Recv says
			_, err = stream.Recv()
		}
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, io.EOF):
		cancel()
		return nil, misbehaved("ended a connection before it began")
	case err != nil:
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, DecodeError(err)
	}
	return newTunnel(stream, cancel), nil
}

// tunnel is a connection over a stream. The pipe gives it deadlines, the pumps
// move bytes between pipe and stream until one of them ends.
type tunnel struct {
	net.Conn // our end of the pipe
	cancel   context.CancelFunc
	pumps    sync.WaitGroup
}

func newTunnel(stream grpc.BidiStreamingClient[providerv1.DialPortRequest, providerv1.DialPortResponse], cancel context.CancelFunc) *tunnel {
	ours, theirs := net.Pipe()
	t := &tunnel{Conn: ours, cancel: cancel}
	t.pumps.Go(func() {
		defer cancel() // our end was closed, or the stream has ended
		defer theirs.Close()
		buf := make([]byte, portChunk)
		for {
			n, err := theirs.Read(buf)
			if err != nil {
				return
			}
			if err := stream.Send(&providerv1.DialPortRequest{Part: &providerv1.DialPortRequest_Data{Data: buf[:n]}}); err != nil {
				return
			}
		}
	})
	t.pumps.Go(func() {
		defer theirs.Close()
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			if _, err := theirs.Write(m.GetData()); err != nil {
				return
			}
		}
	})
	return t
}

// Close ends the connection and waits for its pumps.
func (t *tunnel) Close() error {
	err := t.Conn.Close()
	t.cancel()
	t.pumps.Wait()
	return err
}
