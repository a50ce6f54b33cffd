package providertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func portCases() []Case {
	const group = "ports"
	return needing([]Case{
		{Group: group, Name: "a server of the instance answers", run: portAnswers},
		{Group: group, Name: "much data passes both ways", run: portPassesMuch},
		{Group: group, Name: "a port where nobody listens is refused", run: portIsClosed},
		{Group: group, Name: "a port is one of its instance", run: portsAreApart},
		{Group: group, Name: "a connection outlives the context of its dialling", run: portOutlivesDial},
		{Group: group, Name: "a connection ends with its instance", run: portEndsWithInstance},
	}, sdk.CapabilityPorts)
}

// closedPort is one where nobody listens.
const closedPort = 18473

// server is an instance with a server in it, which sends back what it gets.
type server struct {
	instance
	port uint16
}

// serving makes one.
func (c *scene) serving() server {
	in := c.instance()
	e := c.begin(c.ctx, in.lasting(c.samples.Serve))
	e.saying("\n")
	var port uint16
	_, err := fmt.Sscan(e.out(), &port)
	c.must(err, "read the port from %q", e.out())
	return server{in, port}
}

// connection is one to a server.
type connection struct {
	net.Conn
	trial *trial
}

func (s server) dial() connection {
	ctx, cancel := s.within(callTimeout)
	defer cancel()
	conn, err := s.DialPort(ctx, s.ID, s.port)
	s.must(err, "dial")
	s.later(func() { _ = conn.Close() })
	s.must(conn.SetDeadline(time.Now().Add(s.suite.within(callTimeout))), "set a deadline")
	return connection{conn, s.trial}
}

// echo sends and expects the same back.
func (conn connection) echo(content []byte) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(content)
		sent <- err
	}()
	got := make([]byte, len(content))
	_, err := io.ReadFull(conn, got)
	conn.trial.must(err, "read from the connection")
	conn.trial.must(<-sent, "write to the connection")
	conn.trial.check(bytes.Equal(got, content), "what came back is not what was sent: %s", shown(got))
}

// "DialPort connects to a TCP port on the instance's loopback." (Ports)
func portAnswers(c *scene) { c.serving().dial().echo([]byte("hello\x00\xff\n")) }

// The same.
func portPassesMuch(c *scene) {
	c.serving().dial().echo(bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16))
}

// "CodeConnectionFailed that nothing listens" (Ports)
func portIsClosed(c *scene) {
	in := c.instance()
	err := c.call("DialPort", func(ctx context.Context) error {
		conn, err := c.DialPort(ctx, in.ID, closedPort)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	c.refused(err, "DialPort where nobody listens", sdk.CodeConnectionFailed)
}

// "on the instance's loopback" (Ports)
func portsAreApart(c *scene) {
	one, other := c.serving(), c.instance()
	_, err := c.DialPort(c.ctx, other.ID, one.port)
	c.refused(err, "DialPort of a port on which another instance listens", sdk.CodeConnectionFailed)
}

// "ctx bounds the dialling only" (Ports)
func portOutlivesDial(c *scene) {
	one := c.serving()
	conn := one.dial() // its context is over by now
	one.prints(c.samples.Hello, "hello\n")
	conn.echo([]byte("still there"))
}

// "The connection ends with the instance." (Ports)
func portEndsWithInstance(c *scene) {
	one := c.serving()
	conn := one.dial()
	conn.echo([]byte("hello"))
	c.destroy(one.ID)
	_, err := conn.Read(make([]byte, 1))
	c.check(err != nil, "a connection to a destroyed instance gave data")
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // the connection's own error
		c.fail("a connection to a destroyed instance does not end")
	}
}
