package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/relay"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Ports = (*Provider)(nil)

// DialPort implements sdk.Ports.
func (p *Provider) DialPort(ctx context.Context, instanceID string, port uint16) (net.Conn, error) {
	sb, err := p.lookup(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	// The connection outlives the dialling, but not the sandbox.
	life, end := context.WithCancel(sb.gone)
	stop := context.AfterFunc(ctx, end)
	process, err := ask(ctx, sb, func(c *envd.Client) (*envd.Process, error) {
		return c.Start(life, relay.Program(port), envd.StartOptions{Stdin: true})
	})
	if err != nil {
		end()
		return nil, sb.explain(ctx, err)
	}
	first, err := ready(process)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		process.Close()
		end()
		if errors.Is(err, errNothingListens) {
			return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens at port %d of the instance", port)
		}
		return nil, sb.explain(ctx, err)
	}
	near, far := net.Pipe()
	c := &portConn{Conn: near, port: port}
	p.background.Go(func() { sb.pass(life, end, process, first, far) })
	return c, nil
}

var errNothingListens = errors.New("nothing listens")

// ready waits for the connection, and returns what has come through it already.
func ready(process *envd.Process) ([]byte, error) {
	for {
		ev, err := process.Next()
		switch {
		case err != nil:
			return nil, err
		case ev.End != nil && ev.End.ExitCode == relay.Closed:
			return nil, errNothingListens
		case ev.End != nil:
			return nil, fmt.Errorf("the relay ended: %s", ev.End.Status)
		case len(ev.Stdout) > 0 && ev.Stdout[0] == relay.Ready:
			return ev.Stdout[1:], nil
		}
	}
}

// pass carries bytes both ways until either end is done, then ends the relay.
func (sb *sandbox) pass(ctx context.Context, end context.CancelFunc, process *envd.Process, first []byte, far net.Conn) {
	stop := context.AfterFunc(ctx, func() { far.Close() })
	inbound := make(chan struct{})
	go func() {
		defer close(inbound)
		sb.passIn(ctx, process.PID, far)
	}()
	if _, err := far.Write(first); err == nil {
		passOut(process, far)
	}
	far.Close()
	<-inbound
	stop()
	end()
	process.Close()
	if sb.awaitRunning(sb.gone) != nil {
		return
	}
	killing, cancel := context.WithTimeout(sb.gone, stopTimeout)
	defer cancel()
	// It may have ended by itself.
	_ = sb.tell(killing, func(c *envd.Client) error { return c.SendSignal(killing, process.PID, envd.SignalKill) })
}

func passOut(process *envd.Process, far io.Writer) {
	for {
		ev, err := process.Next()
		if err != nil || ev.End != nil {
			return
		}
		if len(ev.Stdout) > 0 {
			if _, err := far.Write(ev.Stdout); err != nil {
				return
			}
		}
	}
}

// passIn sends what is written to the relay. One message is under way at a time, which
// keeps their order.
func (sb *sandbox) passIn(ctx context.Context, pid int, far io.Reader) {
	buffer := make([]byte, inputChunk)
	for {
		n, err := far.Read(buffer)
		if n > 0 {
			sent := sb.tell(ctx, func(c *envd.Client) error { return c.SendInput(ctx, pid, false, buffer[:n]) })
			if sent != nil {
				return
			}
		}
		if err != nil { // it is over either way
			_ = sb.tell(ctx, func(c *envd.Client) error {
				if !sb.has(closesInput) {
					return c.SendSignal(ctx, pid, envd.SignalTerm)
				}
				return c.CloseStdin(ctx, pid)
			})
			return
		}
	}
}

// portConn is the near end of a connection, with addresses that say what it is.
type portConn struct {
	net.Conn
	port uint16
}

// RemoteAddr is the port within the sandbox.
func (c *portConn) RemoteAddr() net.Addr { return portAddr(c.port) }

type portAddr uint16

// Network is that of the sandbox.
func (portAddr) Network() string { return "tcp" }

// String is the address on the loopback of the sandbox.
func (a portAddr) String() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(a))) }
