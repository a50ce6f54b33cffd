// Package listen has the addresses where the broker listens: an Endpoint can move to
// another address while it serves. Sockets are those that listened before the broker was
// started. The package also says how many connections each may have; they
// are counted by package admission.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

// Server answers on listeners until Shutdown, which closes them.
type Server interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
}

// Endpoint is an address where a server listens: the API's, a front door's or the metrics'. When it moves
// to another one, connections through the old one live on.
type Endpoint struct {
	server Server
	gate   *admission.Gate
	logger hclog.Logger

	mu       sync.Mutex
	listener net.Listener // nil while there is none
	serving  sync.WaitGroup
	failed   chan error
	closing  atomic.Bool
}

// New is an Endpoint that listens nowhere yet.
func New(server Server, gate *admission.Gate, logger hclog.Logger) *Endpoint {
	return &Endpoint{server: server, gate: gate, logger: logger, failed: make(chan error, 1)}
}

// Beside is an Endpoint for another server, that listens nowhere yet. The connections of
// both are counted together, and Failed tells of either.
func (e *Endpoint) Beside(server Server) *Endpoint {
	return &Endpoint{server: server, gate: e.gate, logger: e.logger, failed: e.failed}
}

// open listens on an address through a new socket.
func open(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, &takenError{address}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return listener, nil
}

// takenError is an address that another program has.
type takenError struct{ address string }

func (e *takenError) Error() string {
	return fmt.Sprintf("another program listens on %s already; stop it, or choose another address (listen = ...)", e.address)
}

func (e *takenError) Unwrap() error { return unix.EADDRINUSE }

// MoveTo serves on a listener, which it takes over, and no longer on the one
// before. nil stands for nowhere.
func (e *Endpoint) MoveTo(listener net.Listener) {
	if listener != nil {
		listener = e.gate.Listener(listener)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.listener
	e.listener = listener
	if listener != nil {
		e.serving.Go(func() {
			err := e.server.Serve(listener)
			if e.at(listener) && !e.closing.Load() {
				if err == nil {
					err = errors.New("the listener was closed")
				}
				select {
				case e.failed <- err:
				default:
				}
			}
		})
	}
	if old != nil {
		_ = old.Close()
	}
}

// Failed has an end of serving that nobody asked for.
func (e *Endpoint) Failed() <-chan error { return e.failed }

func (e *Endpoint) at(listener net.Listener) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listener == listener
}

// Close stops serving: the last answers may leave while ctx lasts.
func (e *Endpoint) Close(ctx context.Context) {
	e.closing.Store(true)
	err := e.server.Shutdown(ctx)
	e.mu.Lock()
	if e.listener != nil {
		_ = e.listener.Close() // for a server that had not begun to serve
	}
	e.mu.Unlock()
	e.serving.Wait()
	if err != nil {
		e.logger.Warn("stop serving", "error", err)
	}
}
