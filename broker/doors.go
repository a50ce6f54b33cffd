package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
)

// server answers on listeners until Shutdown, which closes them.
type server interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
}

// door is an address where a server listens: the API's or the metrics'. It can
// move to another address while it serves. Connections through the old one live on.
type door struct {
	server server
	gate   *admission.Gate
	logger hclog.Logger

	mu       sync.Mutex
	listener net.Listener // nil while there is none
	serving  sync.WaitGroup
	failed   chan error // one that nobody asked for
	closing  atomic.Bool
}

func newDoor(server server, gate *admission.Gate, logger hclog.Logger) *door {
	return &door{server: server, gate: gate, logger: logger, failed: make(chan error, 1)}
}

const (
	// takeoverWait is how long a broker that starts waits for an address that is
	// taken. One that was killed while it started a plugin leaves its listener to
	// the child until that has become the plugin.
	takeoverWait  = 2 * time.Second
	takeoverPause = 50 * time.Millisecond
)

// listenAtStart is listen for a broker that may come after one that was killed.
func listenAtStart(ctx context.Context, address string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverWait)
	defer cancel()
	for {
		listener, err := listen(address)
		if !errors.Is(err, unix.EADDRINUSE) {
			return listener, err
		}
		pause := time.NewTimer(takeoverPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

// listen opens an address. What it is told is fit for people.
func listen(address string) (net.Listener, error) {
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

// moveTo serves on a listener, which it takes over, and no longer on the one
// before. nil stands for nowhere.
func (d *door) moveTo(listener net.Listener) {
	if listener != nil {
		listener = d.gate.Listener(listener)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.listener
	d.listener = listener
	if listener != nil {
		d.serving.Go(func() {
			err := d.server.Serve(listener)
			if d.at(listener) && !d.closing.Load() {
				if err == nil {
					err = errors.New("the listener was closed")
				}
				select {
				case d.failed <- err:
				default:
				}
			}
		})
	}
	if old != nil {
		_ = old.Close()
	}
}

func (d *door) at(listener net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listener == listener
}

// close stops serving: the last answers may leave while ctx lasts.
func (d *door) close(ctx context.Context) {
	d.closing.Store(true)
	err := d.server.Shutdown(ctx)
	d.mu.Lock()
	if d.listener != nil {
		_ = d.listener.Close() // for a server that had not begun to serve
	}
	d.mu.Unlock()
	d.serving.Wait()
	if err != nil {
		d.logger.Warn("stop serving", "error", err)
	}
}
