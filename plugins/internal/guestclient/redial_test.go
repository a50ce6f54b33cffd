package guestclient_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// keeper is a guest that runs code for ever, and keeps what it is given.
type keeper struct {
	slowGuest
	running chan struct{}
	mu      sync.Mutex
	note    []byte
}

func (g *keeper) Execute(_ *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	close(g.running)
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (g *keeper) Remember(_ context.Context, req *guestv1.RememberRequest) (*guestv1.RememberResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note = req.GetNote()
	return &guestv1.RememberResponse{}, nil
}

func (g *keeper) Recall(context.Context, *guestv1.RecallRequest) (*guestv1.RecallResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &guestv1.RecallResponse{Note: g.note}, nil
}

// A connection that breaks ends the call over it, and the next call has another one.
func TestWhereAnotherConnectionCanBeHadThatIsUsed(t *testing.T) {
	g := &keeper{running: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	server := grpc.NewServer(wire.EncodeErrors()...)
	guestv1.RegisterGuestServiceServer(server, g)
	providerv1.RegisterProviderServiceServer(server, g)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })

	connections := make(chan net.Conn, 10)
	client, err := guestclient.Redialing(func(ctx context.Context) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err == nil {
			connections <- conn
		}
		return conn, err
	})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, client.Close()) })

	env := map[string]string{"A": "b", "BYTES": "\xff\xfe=\n"}
	assert.NilError(t, client.Remember(t.Context(), env, time.Time{}))
	ended := make(chan error, 1)
	go func() {
		_, err := client.Execute(t.Context(), sdk.ExecuteRequest{Language: sdk.Bash, Timeout: time.Hour, OutputLimit: 1 << 10}, nil, &counted{})
		ended <- err
	}()
	<-g.running
	assert.NilError(t, (<-connections).Close())
	assert.ErrorIs(t, <-ended, guestclient.ErrGone)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		got, err := client.Recall(t.Context())
		if err != nil {
			return poll.Continue("%v", err)
		}
		assert.DeepEqual(t, got.Env, env)
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
}
