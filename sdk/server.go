package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// server puts a Provider behind gRPC.
type server struct {
	providerv1.UnimplementedProviderServiceServer
	provider   Provider
	logger     hclog.Logger
	configured atomic.Bool // orders the write of provider before close's read
	closeOnce  sync.Once
}

// ServerOptions are the limits and interceptors of a gRPC server that serves a
// provider: a panic in one call becomes SB000 and ends nothing else, and every
// error leaves with a code.
func ServerOptions(logger hclog.Logger) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
			defer recoverTo(&err, logger, info.FullMethod)
			resp, err = handler(ctx, req)
			return resp, wireError(err)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer recoverTo(&err, logger, info.FullMethod)
			return wireError(handler(srv, stream))
		}),
	}
}

func recoverTo(err *error, logger hclog.Logger, method string) {
	if r := recover(); r != nil {
		logger.Error("panic", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = wireError(Errorf(CodeInternal, "the provider panicked in %s; its log has the stack", method))
	}
}

func (s *server) Describe(context.Context, *providerv1.DescribeRequest) (*providerv1.DescribeResponse, error) {
	return describeToWire(s.describe())
}

func (s *server) describe() Description {
	d := s.provider.Describe()
	d.Capabilities = capabilitiesOf(s.provider)
	return d
}

func (s *server) Configure(ctx context.Context, req *providerv1.ConfigureRequest) (*providerv1.ConfigureResponse, error) {
	stripEnvironment()
	settings, problems := s.describe().Schema.Resolve(req.GetSettings().AsMap())
	if len(problems) > 0 {
		return nil, FieldErrorf(CodeInvalidConfig, problems[0].Field, "%s", problems[0].Message)
	}
	err := s.provider.Configure(ctx, ConfigureRequest{
		Label:    req.GetLabel(),
		BrokerID: req.GetBrokerId(),
		StateDir: req.GetStateDir(),
		Settings: settings,
	})
	if err != nil {
		return nil, err
	}
	s.configured.Store(true)
	return &providerv1.ConfigureResponse{}, nil
}

func (s *server) Health(ctx context.Context, _ *providerv1.HealthRequest) (*providerv1.HealthResponse, error) {
	h, err := s.provider.Health(ctx)
	if err != nil {
		return nil, err
	}
	return &providerv1.HealthResponse{
		Healthy: h.Healthy, Reason: h.Reason, Details: h.Details, Metrics: metricsToWire(h.Metrics),
	}, nil
}

func (s *server) Create(ctx context.Context, req *providerv1.CreateRequest) (*providerv1.CreateResponse, error) {
	instance, err := s.provider.Create(ctx, CreateRequest{
		Template:       req.GetTemplate(),
		Labels:         req.GetLabels(),
		Env:            req.GetEnv(),
		TTL:            req.GetTtl().AsDuration(),
		IdempotencyKey: req.GetIdempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return &providerv1.CreateResponse{Instance: instanceToWire(instance)}, nil
}

func (s *server) Execute(req *providerv1.ExecuteRequest, stream grpc.ServerStreamingServer[providerv1.ExecuteResponse]) error {
	limit := req.GetOutputLimit()
	if limit <= 0 || req.GetTimeout().AsDuration() <= 0 {
		return Errorf(CodeInvalidRequest, "timeout and output_limit must be positive")
	}
	out := &limitedOutput{stream: stream}
	out.room[0].Store(limit)
	out.room[1].Store(limit)
	result, err := s.provider.Execute(stream.Context(), ExecuteRequest{
		InstanceID:  req.GetInstanceId(),
		ExecutionID: req.GetExecutionId(),
		Language:    Language(req.GetLanguage()),
		Code:        req.GetCode(),
		Arguments:   json.RawMessage(req.Arguments),
		Env:         req.GetEnv(),
		Timeout:     req.GetTimeout().AsDuration(),
		OutputLimit: limit,
	}, out)
	if err != nil {
		return err
	}
	result.Truncated = result.Truncated || out.truncated.Load()
	if size := len(result.Result); int64(size) > limit {
		result.Status, result.ExitCode, result.Result = StatusFailed, max(result.ExitCode, 1), nil
		result.Detail = fmt.Sprintf("main returned %d bytes of JSON; at most %d are allowed", size, limit)
	}
	return out.send(&providerv1.ExecuteResponse{
		Event: &providerv1.ExecuteResponse_Result{Result: resultToWire(result)},
	})
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
		resp.Instances = append(resp.Instances, instanceToWire(i))
	}
	return resp, nil
}

func (s *server) Close(ctx context.Context, _ *providerv1.CloseRequest) (*providerv1.CloseResponse, error) {
	s.close(ctx)
	return &providerv1.CloseResponse{}, nil
}

// limitedOutput sends output to the broker, up to the limit of each stream, so
// that no provider has to count.
type limitedOutput struct {
	mu        sync.Mutex // a gRPC stream takes one sender at a time
	stream    grpc.ServerStreamingServer[providerv1.ExecuteResponse]
	room      [2]atomic.Int64
	truncated atomic.Bool
}

var _ Output = (*limitedOutput)(nil)

func (o *limitedOutput) Stdout(p []byte) error {
	return o.write(p, &o.room[0], func(chunk []byte) *providerv1.ExecuteResponse {
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stdout{Stdout: chunk}}
	})
}

func (o *limitedOutput) Stderr(p []byte) error {
	return o.write(p, &o.room[1], func(chunk []byte) *providerv1.ExecuteResponse {
		return &providerv1.ExecuteResponse{Event: &providerv1.ExecuteResponse_Stderr{Stderr: chunk}}
	})
}

func (o *limitedOutput) write(p []byte, room *atomic.Int64, event func([]byte) *providerv1.ExecuteResponse) error {
	if left := room.Add(-int64(len(p))) + int64(len(p)); left < int64(len(p)) {
		o.truncated.Store(true)
		p = p[:max(left, 0)]
	}
	for len(p) > 0 {
		n := min(len(p), MaxOutputChunk)
		if err := o.send(event(p[:n])); err != nil {
			return err
		}
		p = p[n:]
	}
	return o.stream.Context().Err()
}

func (o *limitedOutput) send(event *providerv1.ExecuteResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(event)
}

// capabilitiesOf finds the optional interfaces that a provider implements.
func capabilitiesOf(Provider) []Capability {
	return nil
}
