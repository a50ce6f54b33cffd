package sdk

import (
	"context"
	"net"
)

// Ports is implemented by providers whose instances can be connected to.
type Ports interface {
	// DialPort connects to a TCP port on the instance's loopback. What speaks
	// there is mostly HTTP; a provider that can only pass on HTTP may answer the
	// other end itself. CodeNotFound means an unknown instance,
	// CodeConnectionFailed that nothing listens. The connection ends with the
	// instance; ctx bounds the dialling only. The broker dials once for each connection of a
	// client, many at a time, and closes what it was given; a side that is done writing may
	// be closed by CloseWrite, if the connection has that.
	DialPort(ctx context.Context, instanceID string, port uint16) (net.Conn, error)
}
