package pluginhost

import (
	"cmp"
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// logLevel of plugins at this moment: that of the broker's log may change.
func (l *Launcher) logLevel() string {
	return cmp.Or(l.options.LogLevel, l.options.Logger.GetLevel().String())
}

// tellLogLevel sends it with every call that is no stream. There is a health probe
// every few seconds, so that a plugin that does nothing learns of it too.
func (l *Launcher) tellLogLevel(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(metadata.AppendToOutgoingContext(ctx, wire.MetadataLogLevel, l.logLevel()), method, req, reply, conn, opts...)
}
