package local

import (
	"context"
	"net"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.Ports = (*Provider)(nil)

// DialPort implements sdk.Ports. All instances share the loopback of this machine.
func (p *Provider) DialPort(ctx context.Context, instanceID string, port uint16) (net.Conn, error) {
	i, err := p.find(instanceID)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nobody listens at port %d", port)
	}
	context.AfterFunc(i.life, func() { conn.Close() })
	return conn, nil
}
