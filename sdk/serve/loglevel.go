package serve

import (
	"context"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// levelFollower sets the level of a logger whenever the broker has another one. A
// level that the provider chose by itself meanwhile stays until then.
type levelFollower struct {
	logger hclog.Logger

	mu   sync.Mutex
	last string
}

func (f *levelFollower) follow(ctx context.Context) {
	texts := metadata.ValueFromIncomingContext(ctx, wire.MetadataLogLevel)
	if len(texts) != 1 {
		return
	}
	level := hclog.LevelFromString(texts[0])
	f.mu.Lock()
	defer f.mu.Unlock()
	if level == hclog.NoLevel || texts[0] == f.last {
		return
	}
	f.last = texts[0]
	f.logger.SetLevel(level)
}

// withCall makes sdk.RequestID, sdk.Logger and sdk.LeaseOf work in a call.
func withCall(ctx context.Context, logger hclog.Logger, lease *sdk.Lease) context.Context {
	if texts := metadata.ValueFromIncomingContext(ctx, wire.MetadataLease); len(texts) == 1 {
		if _, epoch, left, ok := wire.ParseLease(texts[0]); ok {
			lease.Extend(epoch, left)
		}
	}
	ctx = sdk.WithLease(ctx, lease)
	id := ""
	if ids := metadata.ValueFromIncomingContext(ctx, wire.MetadataRequestID); len(ids) == 1 {
		id = ids[0]
	}
	if parents := metadata.ValueFromIncomingContext(ctx, wire.MetadataTraceParent); len(parents) == 1 {
		ctx = sdk.WithTraceParent(ctx, parents[0])
	}
	return sdk.WithCall(ctx, id, logger)
}

// loggedStream is a stream whose context has the logger of its call.
type loggedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it stands in for that of the stream
}

func (s loggedStream) Context() context.Context { return s.ctx }
