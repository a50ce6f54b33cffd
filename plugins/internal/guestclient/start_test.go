package guestclient_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// slowGuest takes code after a while, and answers checks after another.
type slowGuest struct {
	guestv1.UnimplementedGuestServiceServer
	providerv1.UnimplementedProviderServiceServer
	start, check time.Duration
}

func (g *slowGuest) Execute(_ *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	if !wait(stream.Context(), g.start) {
		return stream.Context().Err()
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	return stream.Send(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Result{Result: &providerv1.ExecuteResult{Status: "succeeded"}}})
}

func (g *slowGuest) Check(ctx context.Context, _ *guestv1.CheckRequest) (*guestv1.CheckResponse, error) {
	if !wait(ctx, g.check) {
		return nil, ctx.Err()
	}
	return &guestv1.CheckResponse{}, nil
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// guestServer is what a guest serves.
type guestServer interface {
	guestv1.GuestServiceServer
	providerv1.ProviderServiceServer
}

type discard struct{ sdk.Output }

// flood is a guest that somebody has taken over: it prints without end.
type flood struct {
	slowGuest
	ended chan error
}

func (g *flood) Execute(_ *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	err := stream.SendHeader(nil)
	for err == nil {
		err = stream.Send(&providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: make([]byte, 1<<10)}})
	}
	g.ended <- err
	return err
}

type counted struct {
	sdk.Output
	bytes int
}

func (c *counted) Stdout(p []byte) error {
	c.bytes += len(p)
	return nil
}

// A guest that prints without end is ended at the limit, and not read until the code's time
// is over: what reads it is a process that all tenants share.
func TestAFloodOfTheGuestEndsAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &flood{ended: make(chan error, 1)}
		client, out, began := connect(t, g), &counted{}, time.Now()
		_, err := client.Execute(t.Context(), sdk.ExecuteRequest{Language: sdk.Bash, Timeout: time.Hour, OutputLimit: 10 << 10}, nil, out)
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeInternal)
		assert.ErrorContains(t, err, "more output than the limit")
		assert.Equal(t, out.bytes, 10<<10)
		assert.Assert(t, <-g.ended != nil)
		assert.Equal(t, time.Since(began), time.Duration(0))
	})
}

// TestABusyGuestIsNotTakenForALostOne is of the bubble's clock.
func TestABusyGuestIsNotTakenForALostOne(t *testing.T) {
	const never = 24 * time.Hour
	for name, c := range map[string]struct {
		guest  slowGuest
		within time.Duration
		err    error
		after  time.Duration
	}{
		"starts at once":                        {slowGuest{}, time.Hour, nil, 0},
		"starts late, and answers":              {slowGuest{start: 45 * time.Second}, time.Hour, nil, 45 * time.Second},
		"starts late, and answers late":         {slowGuest{start: 45 * time.Second, check: 9 * time.Second}, time.Hour, nil, 45 * time.Second},
		"does not start, and does not answer":   {slowGuest{start: never, check: never}, time.Hour, guestclient.ErrNotStarted, 20 * time.Second},
		"does not start, and answers":           {slowGuest{start: never}, time.Hour, guestclient.ErrNotStarted, time.Minute},
		"does not start before its caller goes": {slowGuest{start: never}, 12 * time.Second, context.DeadlineExceeded, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := connect(t, &c.guest)
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				began := time.Now()
				result, err := client.Execute(ctx, sdk.ExecuteRequest{Language: sdk.Python, Timeout: time.Second}, nil, discard{})
				assert.Check(t, is.ErrorIs(err, c.err))
				assert.Check(t, is.Equal(time.Since(began), c.after))
				if c.err == nil {
					assert.Check(t, is.Equal(result.Status, sdk.StatusSucceeded))
				}
			})
		})
	}
}

// connect serves a guest in the bubble until the test ends.
func connect(t *testing.T, g guestServer) *guestclient.Client {
	t.Helper()
	fromGuest, toPlugin := io.Pipe()
	fromPlugin, toGuest := io.Pipe()
	server := grpc.NewServer(wire.EncodeErrors()...)
	guestv1.RegisterGuestServiceServer(server, g)
	providerv1.RegisterProviderServiceServer(server, g)
	listener := stdio.NewLine(fromPlugin, toPlugin)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn := stdio.NewConn(fromGuest, toGuest)
	client, err := guestclient.New(conn)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, client.Close())
		assert.Check(t, conn.Close())
		server.Stop()
		if err := <-served; err != nil {
			assert.Check(t, is.ErrorIs(err, io.EOF)) // its only connection has ended
		}
	})
	return client
}
