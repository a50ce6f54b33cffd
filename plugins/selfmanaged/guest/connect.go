package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// lastInput is how long input is still taken when the guest has said its last word. Whoever
// is at the other end may be gone, without the input having ended.
const lastInput = 10 * time.Second

// connectTimeout bounds the wait for a guest that is there.
const connectTimeout = 5 * time.Second

// Connect copies between a caller and the guest that listens on the address in the same
// sandbox, and returns when both directions have ended. It knows no key: the caller
// speaks to the guest through it.
func Connect(address string, in io.Reader, out io.WriteCloser) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address of the guest in %s: %w", ListenVariable, err)
	}
	conn, err := dialLoopback(port)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, in)
		sent <- errors.Join(err, conn.CloseWrite())
	}()
	_, err = io.Copy(out, conn)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy what the guest says: %w", err) // to nobody
	}
	timer := time.NewTimer(lastInput)
	defer timer.Stop()
	select {
	case err = <-sent:
	case <-timer.C:
	}
	if err != nil {
		return fmt.Errorf("copy to the guest: %w", err)
	}
	return nil
}

// dialLoopback tries both loopback addresses: the guest may listen on one of them alone.
func dialLoopback(port string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to the guest: %w", errors.Join(errs...))
}
