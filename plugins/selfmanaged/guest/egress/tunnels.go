package egress

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// chunk is how much of a connection is read at once.
const chunk = 32 << 10

// RefusedError says why the plugin made no connection.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// Tunnels joins those who want a connection with the calls of the plugin that
// bring one. The zero value is ready.
type Tunnels struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan<- tunnel
}

// tunnel is what the plugin brings.
type tunnel struct {
	conn net.Conn
	err  error
}

// Dial asks the plugin for a connection and waits for its answer. The error is
// ctx's own, ask's own or a *RefusedError.
func (t *Tunnels) Dial(ctx context.Context, host string, port uint16, ask func(*guestv1.Connect) error) (net.Conn, error) {
	answer := make(chan tunnel)
	t.mu.Lock()
	if t.waiting == nil {
		t.waiting = map[uint64]chan<- tunnel{}
	}
	t.last++
	id := t.last
	t.waiting[id] = answer
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.waiting, id)
	}()
	if err := ask(&guestv1.Connect{Id: id, Host: host, Port: uint32(port)}); err != nil {
		return nil, err
	}
	select {
	case got := <-answer:
		return got.conn, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Serve is the plugin's call: one connection from its acceptance to its end.
func (t *Tunnels) Serve(stream grpc.BidiStreamingServer[guestv1.TunnelRequest, guestv1.TunnelResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	accept := first.GetAccept()
	if accept == nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "a tunnel begins with what it answers")
	}
	t.mu.Lock()
	answer := t.waiting[accept.GetId()]
	delete(t.waiting, accept.GetId())
	t.mu.Unlock()
	if answer == nil {
		return sdk.Errorf(sdk.CodeNotFound, "nobody wants this connection")
	}
	if accept.GetRefused() != "" {
		return give(stream.Context(), answer, tunnel{err: &RefusedError{accept.GetRefused()}})
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	if err := give(stream.Context(), answer, tunnel{conn: theirs}); err != nil {
		return err
	}
	return carry(stream, ours)
}

// give waits no longer than the call lasts: who asked may have gone.
func give(ctx context.Context, answer chan<- tunnel, t tunnel) error {
	select {
	case answer <- t:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// carry moves bytes both ways until either side ends the connection.
func carry(stream grpc.BidiStreamingServer[guestv1.TunnelRequest, guestv1.TunnelResponse], conn net.Conn) error {
	var out sync.WaitGroup
	defer out.Wait()
	defer conn.Close()
	ended := make(chan error, 2)
	out.Go(func() {
		buf := make([]byte, chunk)
		for {
			n, err := conn.Read(buf)
			if err == nil {
				err = stream.Send(&guestv1.TunnelResponse{Data: buf[:n]})
			}
			if err != nil {
				ended <- nil
				return
			}
		}
	})
	// Recv ends at the latest when this call has returned.
	go func() {
		for {
			message, err := stream.Recv()
			if err == nil {
				_, err = conn.Write(message.GetData())
			}
			if err != nil {
				ended <- nil
				return
			}
		}
	}()
	return <-ended
}

// target splits what a proxy is asked for.
func target(hostPort string) (host string, port uint16, err error) {
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return "", 0, err
	}
	if _, err := fmt.Sscanf(service, "%d", &port); err != nil {
		return "", 0, fmt.Errorf("port %q is no number", service)
	}
	return host, port, nil
}
