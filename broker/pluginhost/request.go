package pluginhost

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
)

// withRequest says in the metadata of a call which request it is made for, so that a
// plugin's log can be read beside the broker's.
func withRequest(ctx context.Context) context.Context {
	id := origin.Of(ctx).RequestID
	if id == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, wire.MetadataRequestID, id)
}

func tellRequest(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(withRequest(ctx), method, req, reply, conn, opts...)
}

func tellRequestOfStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(withRequest(ctx), desc, conn, method, opts...)
}
