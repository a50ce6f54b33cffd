package serve

import (
	"context"

	"github.com/sandbox-broker/sandbox-broker/sdk"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) Pause(ctx context.Context, req *providerv1.PauseRequest) (*providerv1.PauseResponse, error) {
	p, err := capable[sdk.Pauser](s, sdk.CapabilityPause)
	if err != nil {
		return nil, err
	}
	releaser, may := p.(sdk.PauseReleaser)
	if !may {
		return &providerv1.PauseResponse{}, p.Pause(ctx, req.GetInstanceId())
	}
	released, err := releaser.PauseReleasing(ctx, req.GetInstanceId())
	return &providerv1.PauseResponse{Released: released}, err
}

func (s *server) Resume(ctx context.Context, req *providerv1.ResumeRequest) (*providerv1.ResumeResponse, error) {
	p, err := capable[sdk.Pauser](s, sdk.CapabilityPause)
	if err != nil {
		return nil, err
	}
	return &providerv1.ResumeResponse{}, p.Resume(ctx, req.GetInstanceId())
}

func (s *server) SetTTL(ctx context.Context, req *providerv1.SetTTLRequest) (*providerv1.SetTTLResponse, error) {
	p, err := capable[sdk.TTLSetter](s, sdk.CapabilitySetTTL)
	if err != nil {
		return nil, err
	}
	expiresAt, err := p.SetTTL(ctx, req.GetInstanceId(), req.GetTtl().AsDuration())
	if err != nil {
		return nil, err
	}
	resp := &providerv1.SetTTLResponse{}
	if !expiresAt.IsZero() {
		resp.ExpiresAt = timestamppb.New(expiresAt)
	}
	return resp, nil
}

func (s *server) InstanceMetrics(ctx context.Context, req *providerv1.InstanceMetricsRequest) (*providerv1.InstanceMetricsResponse, error) {
	p, err := capable[sdk.Meter](s, sdk.CapabilityMetrics)
	if err != nil {
		return nil, err
	}
	m, err := p.InstanceMetrics(ctx, req.GetInstanceId())
	if err != nil {
		return nil, err
	}
	return &providerv1.InstanceMetricsResponse{
		MeasuredAt: timestamppb.New(m.MeasuredAt), CpuTime: durationpb.New(m.CPUTime), CpuLimit: m.CPULimit,
		MemoryBytes: m.Memory, MemoryLimitBytes: m.MemoryLimit, DiskBytes: m.Disk, DiskLimitBytes: m.DiskLimit,
		Processes: m.Processes, ProcessLimit: m.ProcessLimit,
	}, nil
}

func (s *server) CheckPackages(ctx context.Context, req *providerv1.CheckPackagesRequest) (*providerv1.CheckPackagesResponse, error) {
	p, err := capable[sdk.PackageInstaller](s, sdk.CapabilityPackages)
	if err != nil {
		return nil, err
	}
	return &providerv1.CheckPackagesResponse{}, p.CheckPackages(ctx, sdk.Language(req.GetLanguage()), req.GetRequirements())
}

func (s *server) InstallPackages(req *providerv1.InstallPackagesRequest, stream grpc.ServerStreamingServer[providerv1.InstallPackagesResponse]) error {
	p, err := capable[sdk.PackageInstaller](s, sdk.CapabilityPackages)
	if err != nil {
		return err
	}
	limit := req.GetOutputLimit()
	if limit <= 0 || req.GetTimeout().AsDuration() <= 0 {
		return sdk.Errorf(sdk.CodeInvalidRequest, "timeout and output_limit must be positive")
	}
	out := newLimitedOutput(stream.Context(), limit, func(e outputEvent) error { return stream.Send(e.forInstall()) })
	result, err := p.InstallPackages(stream.Context(), sdk.InstallPackagesRequest{
		InstanceID: req.GetInstanceId(), Language: sdk.Language(req.GetLanguage()), Requirements: req.GetRequirements(),
		Timeout: req.GetTimeout().AsDuration(), OutputLimit: limit,
	}, out)
	if err != nil {
		return err
	}
	return out.finish(result)
}
