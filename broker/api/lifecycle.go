package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// InstanceMetrics is what an instance uses. What the provider does not know is
// absent.
type InstanceMetrics struct {
	_             struct{}   `additionalProperties:"true"`
	MeasuredAt    *time.Time `json:"measured_at,omitempty"`
	CPUTime       float64    `json:"cpu_time,omitempty" doc:"Seconds of processor time since the instance was made."`
	CPULimit      float64    `json:"cpu_limit,omitempty" doc:"In processors."`
	MemoryMB      float64    `json:"memory_mb,omitempty"`
	MemoryLimitMB float64    `json:"memory_limit_mb,omitempty"`
	DiskMB        *float64   `json:"disk_mb,omitempty" doc:"Of what the code can write to."`
	DiskLimitMB   float64    `json:"disk_limit_mb,omitempty"`
	Processes     *int64     `json:"processes,omitempty" doc:"With threads; an interpreter that waits for code is among them."`
	ProcessLimit  int64      `json:"process_limit,omitempty"`
}

func (s *Server) lifecycleRoutes() {
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/pause", id: "pauseInstance", tag: tagInstances,
		summary: "Freeze an instance",
		details: "Its processes stop where they are; memory and files stay, and so does its time limit. It takes no executions until it is resumed. Pausing a paused instance changes nothing.",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.pauseInstance)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/resume", id: "resumeInstance", tag: tagInstances,
		summary: "Let a frozen instance go on",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
	}, s.resumeInstance)
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/metrics", id: "instanceMetrics", tag: tagInstances,
		summary: "What an instance uses now",
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound),
	}, s.instanceMetrics)
}

func (s *Server) pauseInstance(ctx context.Context, c call[none]) (int, Instance, error) {
	info, err := s.instances.Pause(ctx, c.tenant, c.id)
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) resumeInstance(ctx context.Context, c call[none]) (int, Instance, error) {
	info, err := s.instances.Resume(ctx, c.tenant, c.id)
	if err != nil {
		return 0, Instance{}, err
	}
	return http.StatusOK, instanceOf(info), nil
}

func (s *Server) instanceMetrics(ctx context.Context, c call[none]) (int, InstanceMetrics, error) {
	lease, err := s.instances.Lease(ctx, c.tenant, c.id, sdk.CapabilityMetrics)
	if err != nil {
		return 0, InstanceMetrics{}, err
	}
	defer lease.Release()
	meter, err := instance.Capable[sdk.Meter](lease)
	if err != nil {
		return 0, InstanceMetrics{}, err
	}
	ctx, cancel := lease.Within(ctx)
	defer cancel()
	m, err := meter.InstanceMetrics(ctx, lease.InstanceID)
	if err != nil {
		return 0, InstanceMetrics{}, lease.Fault(ctx, err)
	}
	return http.StatusOK, metricsOf(m), nil
}

func metricsOf(m sdk.InstanceMetrics) InstanceMetrics {
	mb := func(bytes int64) float64 { return math.Round(float64(bytes)/(1<<20)*1e3) / 1e3 }
	metrics := InstanceMetrics{
		CPUTime: m.CPUTime.Seconds(), CPULimit: m.CPULimit,
		MemoryMB: mb(m.Memory), MemoryLimitMB: mb(m.MemoryLimit), DiskLimitMB: mb(m.DiskLimit),
		ProcessLimit: m.ProcessLimit,
	}
	if m.Disk > 0 || m.DiskLimit > 0 { // nothing written is known to be nothing
		disk := mb(m.Disk)
		metrics.DiskMB = &disk
	}
	if m.Processes > 0 || m.ProcessLimit > 0 {
		metrics.Processes = &m.Processes
	}
	if !m.MeasuredAt.IsZero() {
		at := m.MeasuredAt.UTC()
		metrics.MeasuredAt = &at
	}
	return metrics
}
