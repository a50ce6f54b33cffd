package serve

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
	"github.com/sandbox-broker/sandbox-broker/sdk/serve/services"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/validtext"
)

// server puts a Provider behind gRPC.
type server struct {
	providerv1.UnimplementedProviderServiceServer
	providerv1.UnimplementedInterruptServiceServer
	providerv1.UnimplementedContextServiceServer
	providerv1.UnimplementedPauseServiceServer
	providerv1.UnimplementedLifetimeServiceServer
	providerv1.UnimplementedMetricsServiceServer
	providerv1.UnimplementedPackageServiceServer
	providerv1.UnimplementedSnapshotServiceServer
	providerv1.UnimplementedVolumeServiceServer
	providerv1.UnimplementedTemplateServiceServer
	providerv1.UnimplementedNetworkServiceServer
	providerv1.UnimplementedAdoptionServiceServer
	provider   sdk.Provider
	logger     hclog.Logger
	configured atomic.Bool // orders the write of provider before close's read
	closeOnce  sync.Once
}

// register serves all services; those that the provider lacks answer so.
func (s *server) register(registrar grpc.ServiceRegistrar) {
	providerv1.RegisterProviderServiceServer(registrar, s)
	providerv1.RegisterInterruptServiceServer(registrar, s)
	providerv1.RegisterContextServiceServer(registrar, s)
	services.RegisterCommands(registrar, s.provider)
	services.RegisterFiles(registrar, s.provider)
	services.RegisterPorts(registrar, s.provider)
	providerv1.RegisterPauseServiceServer(registrar, s)
	providerv1.RegisterLifetimeServiceServer(registrar, s)
	providerv1.RegisterMetricsServiceServer(registrar, s)
	providerv1.RegisterPackageServiceServer(registrar, s)
	providerv1.RegisterSnapshotServiceServer(registrar, s)
	providerv1.RegisterVolumeServiceServer(registrar, s)
	providerv1.RegisterTemplateServiceServer(registrar, s)
	providerv1.RegisterNetworkServiceServer(registrar, s)
	providerv1.RegisterAdoptionServiceServer(registrar, s)
}

// capable returns the provider as the interface of a capability.
func capable[T any](s *server, c sdk.Capability) (T, error) {
	return services.Capable[T](s.provider, c)
}

// ServerOptions are the limits and interceptors of a gRPC server that serves a
// provider: a panic in one call becomes SB000 and ends nothing else, and every
// error leaves with a code.
func ServerOptions(logger hclog.Logger) []grpc.ServerOption {
	level, lease := &levelFollower{logger: logger}, &sdk.Lease{}
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(wire.MaxMessageBytes),
		grpc.MaxSendMsgSize(wire.MaxMessageBytes),
		// What streams through shall not wait for small windows: the two sides are
		// on one machine. A stream that nobody reads holds no more than its window.
		grpc.InitialWindowSize(1 << 20), grpc.InitialConnWindowSize(8 << 20),
		grpc.ReadBufferSize(128 << 10), grpc.WriteBufferSize(128 << 10),
		// One name that is no UTF-8 shall not cost a whole answer.
		grpc.ForceServerCodecV2(validtext.Codec(filechunk.Codec())),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
			ctx = withCall(ctx, logger, lease)
			defer recoverTo(&err, sdk.Logger(ctx), info.FullMethod)
			level.follow(ctx)
			resp, err = handler(ctx, req)
			return resp, wire.EncodeError(err)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			ctx := withCall(stream.Context(), logger, lease)
			defer recoverTo(&err, sdk.Logger(ctx), info.FullMethod)
			return wire.EncodeError(handler(srv, loggedStream{stream, ctx}))
		}),
	}
}

func recoverTo(err *error, logger hclog.Logger, method string) {
	if r := recover(); r != nil {
		logger.Error("panic", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = wire.EncodeError(sdk.Errorf(sdk.CodeInternal, "the provider panicked in %s; its log has the stack", method))
	}
}

func (s *server) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return wire.EncodeDescription(s.describe())
}

func (s *server) describe() sdk.Description {
	d := s.provider.Describe()
	d.Capabilities = sdk.CapabilitiesOf(s.provider, d.Capabilities)
	return d
}

func (s *server) Health(ctx context.Context, _ *providerv1.HealthRequest) (*providerv1.HealthResponse, error) {
	h, err := s.provider.Health(ctx)
	if err != nil {
		return nil, err
	}
	return &providerv1.HealthResponse{
		Healthy: h.Healthy, Reason: h.Reason, Details: h.Details, Metrics: wire.EncodeMetrics(h.Metrics),
	}, nil
}

func (s *server) Create(ctx context.Context, req *providerv1.CreateRequest) (*providerv1.CreateResponse, error) {
	create := sdk.CreateRequest{
		Template:       req.GetTemplate(),
		Image:          req.GetImage(),
		Labels:         req.GetLabels(),
		Env:            req.GetEnv(),
		TTL:            req.GetTtl().AsDuration(),
		IdempotencyKey: req.GetIdempotencyKey(),
		Reuse:          req.GetReuse(),
		Network:        wire.DecodeNetwork(req.GetNetwork()),
	}
	if create.Network != nil {
		if _, err := capable[sdk.NetworkGovernor](s, sdk.CapabilityNetwork); err != nil {
			return nil, err
		}
		if err := networkpolicy.Validate(*create.Network); err != nil {
			return nil, err
		}
	}
	if req.GetMaxQueue() != nil {
		most := max(0, req.GetMaxQueue().AsDuration())
		create.MaxQueue = &most
	}
	if source := req.GetSnapshot(); source != nil {
		// One that knows of no snapshots would make a fresh instance.
		if _, err := capable[sdk.Snapshotter](s, sdk.CapabilitySnapshots); err != nil {
			return nil, err
		}
		if err := checkSnapshotKey(source.GetKey()); err != nil {
			return nil, err
		}
		create.Snapshot = &sdk.SnapshotSource{ID: source.GetId(), Key: source.GetKey()}
	}
	if len(req.GetVolumes()) > 0 {
		if _, err := capable[sdk.VolumeKeeper](s, sdk.CapabilityVolumes); err != nil {
			return nil, err
		}
		mounts, err := wire.DecodeMounts(req.GetVolumes())
		if err != nil {
			return nil, err
		}
		create.Volumes = mounts
	}
	instance, err := s.provider.Create(ctx, create)
	if err != nil {
		return nil, err
	}
	return &providerv1.CreateResponse{Instance: wire.EncodeInstance(instance)}, nil
}

func (s *server) Execute(req *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	limit := req.GetOutputLimit()
	if limit <= 0 || req.GetTimeout().AsDuration() <= 0 {
		return sdk.Errorf(sdk.CodeInvalidRequest, "timeout and output_limit must be positive")
	}
	if req.GetContextId() != "" {
		if _, err := capable[sdk.Contexts](s, sdk.CapabilityContexts); err != nil {
			return err
		}
	}
	out := newLimitedOutput(stream.Context(), limit, func(e outputEvent) error { return stream.Send(e.forExecute()) })
	execute := sdk.ExecuteRequest{
		InstanceID:  req.GetInstanceId(),
		ExecutionID: req.GetExecutionId(),
		Language:    sdk.Language(req.GetLanguage()),
		Code:        req.GetCode(),
		Arguments:   json.RawMessage(req.Arguments),
		Env:         req.GetEnv(),
		Timeout:     req.GetTimeout().AsDuration(),
		OutputLimit: limit,
		ContextID:   req.GetContextId(),
	}
	if a := req.GetArtifacts(); a != nil {
		execute.Artifacts = &sdk.ArtifactLimits{
			Files: a.GetFiles(), MaxCount: min(int(a.GetMaxCount()), sdk.MaxArtifactCount), MaxBytes: min(a.GetMaxBytes(), sdk.MaxArtifactBytes), MaxTotalBytes: a.GetMaxTotalBytes(),
		}
		out.artifacts = execute.Artifacts
	}
	result, err := s.provider.Execute(stream.Context(), execute, out)
	if err != nil {
		return err
	}
	return out.finish(result)
}

func (s *server) Destroy(ctx context.Context, req *providerv1.DestroyRequest) (*providerv1.DestroyResponse, error) {
	return &providerv1.DestroyResponse{}, s.provider.Destroy(ctx, req.GetInstanceId())
}

func (s *server) List(ctx context.Context, _ *providerv1.ListRequest) (*providerv1.ListResponse, error) {
	instances, err := s.provider.List(ctx)
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ListResponse{}
	for _, i := range instances {
		resp.Instances = append(resp.Instances, wire.EncodeInstance(i))
	}
	return resp, nil
}

func (s *server) Drain(ctx context.Context, _ *providerv1.DrainRequest) (*providerv1.DrainResponse, error) {
	if drainer, ok := s.provider.(sdk.Drainer); ok {
		if err := drainer.Drain(ctx); err != nil {
			return nil, err
		}
	}
	return &providerv1.DrainResponse{}, nil
}

func (s *server) Close(ctx context.Context, _ *providerv1.CloseRequest) (*providerv1.CloseResponse, error) {
	s.close(ctx)
	return &providerv1.CloseResponse{}, nil
}
