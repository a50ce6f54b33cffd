package wire

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Pause implements sdk.Pauser.
func (c *Client) Pause(ctx context.Context, instanceID string) error {
	_, err := c.pause.Pause(ctx, &providerv1.PauseRequest{InstanceId: instanceID})
	return DecodeError(err)
}

// PauseReleasing implements sdk.PauseReleaser.
func (c *Client) PauseReleasing(ctx context.Context, instanceID string) (released bool, err error) {
	resp, err := c.pause.Pause(ctx, &providerv1.PauseRequest{InstanceId: instanceID})
	return resp.GetReleased(), DecodeError(err)
}

// Resume implements sdk.Pauser.
func (c *Client) Resume(ctx context.Context, instanceID string) error {
	_, err := c.pause.Resume(ctx, &providerv1.ResumeRequest{InstanceId: instanceID})
	return DecodeError(err)
}

// SetTTL implements sdk.TTLSetter.
func (c *Client) SetTTL(ctx context.Context, instanceID string, ttl time.Duration) (time.Time, error) {
	resp, err := c.lifetime.SetTTL(ctx, &providerv1.SetTTLRequest{InstanceId: instanceID, Ttl: durationpb.New(ttl)})
	if err != nil {
		return time.Time{}, DecodeError(err)
	}
	return decodeTime(resp.GetExpiresAt()), nil
}

// InstanceMetrics implements sdk.Meter.
func (c *Client) InstanceMetrics(ctx context.Context, instanceID string) (sdk.InstanceMetrics, error) {
	resp, err := c.metrics.InstanceMetrics(ctx, &providerv1.InstanceMetricsRequest{InstanceId: instanceID})
	if err != nil {
		return sdk.InstanceMetrics{}, DecodeError(err)
	}
	if limit := resp.GetCpuLimit(); math.IsNaN(limit) || math.IsInf(limit, 0) {
		return sdk.InstanceMetrics{}, misbehaved("measured something that is no number")
	}
	return sdk.InstanceMetrics{
		MeasuredAt: decodeTime(resp.GetMeasuredAt()), CPUTime: max(resp.GetCpuTime().AsDuration(), 0), CPULimit: max(resp.GetCpuLimit(), 0),
		Memory: max(resp.GetMemoryBytes(), 0), MemoryLimit: max(resp.GetMemoryLimitBytes(), 0),
		Disk: max(resp.GetDiskBytes(), 0), DiskLimit: max(resp.GetDiskLimitBytes(), 0),
		Processes: max(resp.GetProcesses(), 0), ProcessLimit: max(resp.GetProcessLimit(), 0),
	}, nil
}

// CheckPackages implements sdk.PackageInstaller.
func (c *Client) CheckPackages(ctx context.Context, language sdk.Language, requirements []string) error {
	_, err := c.packages.CheckPackages(ctx, &providerv1.CheckPackagesRequest{Language: string(language), Requirements: requirements})
	return DecodeError(err)
}

// InstallPackages implements sdk.PackageInstaller.
func (c *Client) InstallPackages(ctx context.Context, req sdk.InstallPackagesRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.packages.InstallPackages(ctx, &providerv1.InstallPackagesRequest{
		InstanceId: req.InstanceID, Language: string(req.Language), Requirements: req.Requirements,
		Timeout: durationpb.New(req.Timeout), OutputLimit: req.OutputLimit,
	}, executionLimit(req.OutputLimit, nil))
	if err != nil {
		return sdk.ExecuteResult{}, DecodeError(err)
	}
	checked := newCheckedOutput(out, req.OutputLimit, nil)
	var quiet silence
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return sdk.ExecuteResult{}, misbehaved("ended an installation without a result")
		case err != nil:
			return sdk.ExecuteResult{}, DecodeError(err)
		}
		said := 0
		switch e := event.GetEvent().(type) {
		case *providerv1.InstallPackagesResponse_Stdout:
			said, err = len(e.Stdout), checked.Stdout(e.Stdout)
		case *providerv1.InstallPackagesResponse_Stderr:
			said, err = len(e.Stderr), checked.Stderr(e.Stderr)
		case *providerv1.InstallPackagesResponse_Result:
			return lastly(ctx, cancel, stream, func() (sdk.ExecuteResult, error) { return DecodeResult(e.Result, req.OutputLimit) })
		}
		if err == nil {
			err = quiet.broken(said)
		}
		if err != nil {
			return sdk.ExecuteResult{}, err
		}
	}
}

// decodeTime is the zero time for one that is absent or impossible.
func decodeTime(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
