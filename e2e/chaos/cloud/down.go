package cloud

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"syscall"
	"time"
)

// Up has the cloud answer at its address. It does nothing to one that is up.
func (c *Cloud) Up() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		return nil
	}
	listener, err := listen(c.address)
	if err != nil {
		return fmt.Errorf("start the cloud %s: %w", c.name, err)
	}
	c.server = httptest.NewUnstartedServer(c.mux)
	_ = c.server.Listener.Close() // this one is of its own choice
	c.server.Listener = listener
	c.server.Start()
	c.closing = make(chan struct{})
	return nil
}

// listen waits for an address that is taken: a process that was being forked when its
// listener was closed has that until it runs its program.
func listen(address string) (net.Listener, error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for left := 500; ; left-- {
		listener, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || left == 0 {
			return listener, err
		}
		<-again.C
	}
}

// Down breaks all connections and refuses others, until Up. What it has stays. It does
// nothing to a cloud that is down.
func (c *Cloud) Down() {
	c.mu.Lock()
	server, closing := c.server, c.closing
	c.server = nil
	c.mu.Unlock()
	if server == nil {
		return
	}
	close(closing)
	_ = server.Listener.Close() // before the connections, so that none comes after them
	server.CloseClientConnections()
	server.Close()
}

// Close ends it, calls that hang included.
func (c *Cloud) Close() { c.Down() }
