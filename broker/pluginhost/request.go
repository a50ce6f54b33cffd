package pluginhost

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
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

// tellLease says in the metadata of a call how long the broker may have effects still.
func (l *Launcher) tellLease(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(l.withLease(ctx), method, req, reply, conn, opts...)
}

func (l *Launcher) tellLeaseOfStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(l.withLease(ctx), desc, conn, method, opts...)
}

func (l *Launcher) withLease(ctx context.Context) context.Context {
	if l.options.Lease == nil {
		return ctx
	}
	if text := l.options.Lease(); text != "" {
		return metadata.AppendToOutgoingContext(ctx, wire.MetadataLease, text)
	}
	return ctx
}

// leaseInterval is how often a plugin is told of the lease beside its calls, of which one may
// take longer than a lease lasts.
const leaseInterval = time.Second

// keepTellingLease has the plugin hear of the lease until ctx or the process ends, by a call that
// every plugin answers and that is none of its provider. What it answers nobody asks for: the
// health probes tell.
func (s *Supervised) keepTellingLease(ctx context.Context, p *Process) {
	lease := s.launcher.options.Lease
	if lease == nil {
		return
	}
	server := grpc_health_v1.NewHealthClient(p.conn)
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.runner.dead:
			return
		case <-ticker.C:
		}
		if lease() == "" {
			continue // the broker needs none
		}
		telling, cancel := context.WithTimeout(ctx, leaseInterval)
		_, _ = server.Check(telling, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
		cancel()
	}
}
