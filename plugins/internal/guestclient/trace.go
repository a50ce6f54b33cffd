package guestclient

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// withTrace tells the guest which trace a call is a part of, as the plugin was told.
func withTrace(ctx context.Context) context.Context {
	parent := sdk.TraceParent(ctx)
	if parent == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, wire.MetadataTraceParent, parent)
}

func tellTrace(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(withTrace(ctx), method, req, reply, conn, opts...)
}

func tellTraceOfStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(withTrace(ctx), desc, conn, method, opts...)
}
