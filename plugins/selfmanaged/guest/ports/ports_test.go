package ports_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve/services"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/ports"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of the service.
func serve(t *testing.T) providerv1.PortServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(wire.EncodeErrors()...)
	services.RegisterPorts(srv, &ports.Ports{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:guest", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	assert.NilError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		srv.Stop()
		assert.Check(t, <-served)
	})
	return providerv1.NewPortServiceClient(conn)
}

// listen runs a program that handles each of its connections.
func listen(t *testing.T, address string, handle func(*net.TCPConn)) (port uint32) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil && address != "127.0.0.1:0" {
		t.Skip(err) // there is no IPv6 here
	}
	assert.NilError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			}()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return uint32(listener.Addr().(*net.TCPAddr).Port)
}

func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

type call = grpc.BidiStreamingClient[providerv1.DialPortRequest, providerv1.DialPortResponse]

// dial begins a call and returns the error with which it was refused.
func dial(t *testing.T, client providerv1.PortServiceClient, port uint32) (call, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := client.DialPort(ctx)
	assert.NilError(t, err)
	header := &providerv1.DialPortHeader{InstanceId: "any", Port: port}
	assert.NilError(t, stream.Send(&providerv1.DialPortRequest{Part: &providerv1.DialPortRequest_Header{Header: header}}))
	_, err = stream.Recv()
	return stream, wire.DecodeError(err)
}

func send(t *testing.T, stream call, data []byte) {
	t.Helper()
	assert.NilError(t, stream.Send(&providerv1.DialPortRequest{Part: &providerv1.DialPortRequest_Data{Data: data}}))
}

func TestBytesGoBothWaysAndHalvesCloseAlone(t *testing.T) {
	for name, address := range map[string]string{"IPv4": "127.0.0.1:0", "IPv6 alone": "[::1]:0"} {
		t.Run(name, func(t *testing.T) {
			client := serve(t)
			// It answers only when it has heard everything.
			port := listen(t, address, func(conn *net.TCPConn) {
				heard, err := io.ReadAll(conn)
				assert.Check(t, err)
				_, _ = conn.Write(bytes.ToUpper(heard))
			})
			stream, err := dial(t, client, port)
			assert.NilError(t, err)
			for range 100 {
				send(t, stream, bytes.Repeat([]byte("x"), 10_000))
			}
			assert.NilError(t, stream.CloseSend())
			var got []byte
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				assert.NilError(t, err)
				got = append(got, m.GetData()...)
			}
			assert.Equal(t, string(got), string(bytes.Repeat([]byte("X"), 1_000_000)))
		})
	}
}

func TestWhatCannotBeDialled(t *testing.T) {
	client := serve(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	closed := uint32(listener.Addr().(*net.TCPAddr).Port)
	assert.NilError(t, listener.Close())
	for name, test := range map[string]struct {
		port uint32
		code sdk.Code
	}{
		"a port that nobody listens on": {closed, sdk.CodeConnectionFailed},
		"port 0":                        {0, sdk.CodeInvalidRequest},
		"port 65536":                    {65536, sdk.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dial(t, client, test.port)
			assert.ErrorIs(t, err, &sdk.Error{Code: test.code})
		})
	}
	t.Run("what begins without saying where to", func(t *testing.T) {
		stream, err := client.DialPort(t.Context())
		assert.NilError(t, err)
		send(t, stream, []byte("x"))
		_, err = stream.Recv()
		assert.ErrorIs(t, wire.DecodeError(err), &sdk.Error{Code: sdk.CodeInvalidRequest})
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	client := serve(t)
	port := listen(t, "127.0.0.1:0", echo)
	var streams []call
	for range ports.MaxConnections {
		stream, err := dial(t, client, port)
		assert.NilError(t, err)
		streams = append(streams, stream)
	}
	_, err := dial(t, client, port)
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeQuotaExceeded})
	send(t, streams[0], []byte("still there"))
	m, err := streams[0].Recv()
	assert.NilError(t, err)
	assert.Equal(t, string(m.GetData()), "still there")

	assert.NilError(t, streams[1].CloseSend())
	_, err = streams[1].Recv()
	assert.ErrorIs(t, err, io.EOF)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := dial(t, client, port)
		return poll.Compare(is.Nil(err))
	}, poll.WithTimeout(2*time.Minute))
}

func TestTheProgramHearsThatItsCallerLeft(t *testing.T) {
	client := serve(t)
	heard := make(chan struct{})
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = io.Copy(io.Discard, conn)
		close(heard)
	})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.DialPort(ctx)
	assert.NilError(t, err)
	header := &providerv1.DialPortHeader{Port: port}
	assert.NilError(t, stream.Send(&providerv1.DialPortRequest{Part: &providerv1.DialPortRequest_Header{Header: header}}))
	_, err = stream.Recv()
	assert.NilError(t, err)
	cancel()
	select {
	case <-heard:
	case <-time.After(2 * time.Minute):
		t.Fatal("the connection was left open")
	}
}
