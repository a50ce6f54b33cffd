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

// serving makes an instance with a server in it.
func (c *scene) serving() (id string, port uint16) {
	id = c.instance()
	e := c.begin(c.ctx, c.lasting(id, c.samples.Serve))
	c.saying(e, "\n")
	_, err := fmt.Sscan(e.out(), &port)
	c.must(err, "read the port from %q", e.out())
	return id, port
}

func (c *scene) dial(id string, port uint16) net.Conn {
	ctx, cancel := c.within(callTimeout)
	defer cancel()
	conn, err := c.DialPort(ctx, id, port)
	c.must(err, "dial")
	c.later(func() { _ = conn.Close() })
	c.must(conn.SetDeadline(time.Now().Add(c.suite.within(callTimeout))), "set a deadline")
	return conn
}

// echo sends and expects the same back.
func (c *scene) echo(conn net.Conn, content []byte) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(content)
		sent <- err
	}()
	got := make([]byte, len(content))
	_, err := io.ReadFull(conn, got)
	c.must(err, "read from the connection")
	c.must(<-sent, "write to the connection")
	c.check(bytes.Equal(got, content), "what came back is not what was sent: %s", shown(got))
}

// "DialPort connects to a TCP port on the instance's loopback." (Ports)
func portAnswers(c *scene) { c.echo(c.dial(c.serving()), []byte("hello\x00\xff\n")) }

// The same.
func portPassesMuch(c *scene) {
	c.echo(c.dial(c.serving()), bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16))
}

// "CodeConnectionFailed that nothing listens" (Ports)
func portIsClosed(c *scene) {
	id := c.instance()
	err := c.call("DialPort", func(ctx context.Context) error {
		conn, err := c.DialPort(ctx, id, closedPort)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	c.refused(err, "DialPort where nobody listens", sdk.CodeConnectionFailed)
}

// "on the instance's loopback" (Ports)
func portsAreApart(c *scene) {
	_, port := c.serving()
	other := c.instance()
	_, err := c.DialPort(c.ctx, other, port)
	c.refused(err, "DialPort of a port on which another instance listens", sdk.CodeConnectionFailed)
}

// "ctx bounds the dialling only" (Ports)
func portOutlivesDial(c *scene) {
	id, port := c.serving()
	conn := c.dial(id, port) // its context is over by now
	c.prints(id, c.samples.Hello, "hello\n")
	c.echo(conn, []byte("still there"))
}

// "The connection ends with the instance." (Ports)
func portEndsWithInstance(c *scene) {
	id, port := c.serving()
	conn := c.dial(id, port)
	c.echo(conn, []byte("hello"))
	c.destroy(id)
	_, err := conn.Read(make([]byte, 1))
	c.check(err != nil, "a connection to a destroyed instance gave data")
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // the connection's own error
		c.fail("a connection to a destroyed instance does not end")
	}
}
