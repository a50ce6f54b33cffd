package api

import (
	"context"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// EventMetrics is the event of a stream of metrics. It has no end of its own:
// EventError is the last event when the instance ends.
const EventMetrics = "metrics"

// The interval between two metrics events, and how long one measurement may take.
const (
	metricsInterval      = time.Second
	metricsShortest      = 100 * time.Millisecond
	metricsLongest       = time.Minute
	metricsTime          = 10 * time.Second
	metricsIntervalParam = "interval_ms"
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

func (s *Server) metricsRoutes() {
	registerEither(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/metrics", id: "instanceMetrics", tag: tagInstances,
		summary: "What an instance uses",
		details: "Now; or with Accept: text/event-stream again and again, until you close the connection or the instance ends. " +
			"The stream is a use of the instance, which lives meanwhile, but not beyond its maximum lifetime.",
		query: []parameter{{
			name: metricsIntervalParam, kind: integerParameter,
			least: float64(metricsShortest.Milliseconds()), most: float64(metricsLongest.Milliseconds()),
			doc: "Milliseconds from one event to the next; 1000 unless given. It takes Accept: text/event-stream.",
		}},
		success: []int{http.StatusOK}, codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
		events: []event{
			{EventMetrics, "What the instance uses. The first comes at once.", reflect.TypeFor[InstanceMetrics]()},
			{EventError, "The last event, if the stream cannot go on: the problem, which is SB013 when the instance has ended.", reflect.TypeFor[Problem]()},
		},
	}, func(none) bool { return true }, s.instanceMetrics, s.streamMetrics)
}

func (s *Server) instanceMetrics(ctx context.Context, c call[none]) (_ int, m InstanceMetrics, err error) {
	if c.query.given(metricsIntervalParam) {
		return 0, m, sdk.FieldErrorf(sdk.CodeInvalidRequest, metricsIntervalParam, "needs the header Accept: text/event-stream")
	}
	err = leased(ctx, s, c.tenant, c.id, sdk.CapabilityMetrics, func(ctx context.Context, meter sdk.Meter, instanceID string) error {
		measured, err := meter.InstanceMetrics(ctx, instanceID)
		m = metricsOf(measured)
		return err
	})
	return http.StatusOK, m, err
}

// streamMetrics sends metrics until ctx or the instance ends. A client that reads
// slowly gets fewer of them, not older ones.
func (s *Server) streamMetrics(ctx context.Context, c call[none], to *eventStream) error {
	lease, err := s.instances.Lease(ctx, c.tenant, c.id, sdk.CapabilityMetrics)
	if err != nil {
		return err
	}
	defer lease.Release()
	meter, err := instance.Capable[sdk.Meter](lease)
	if err != nil {
		return err
	}
	ctx, cancel := lease.Watching(ctx)
	defer cancel()
	interval := time.Duration(c.query.integer(metricsIntervalParam, metricsInterval.Milliseconds())) * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		m, err := measure(ctx, meter, lease.InstanceID)
		switch {
		case err == nil:
			if err := to.send(ctx, EventMetrics, metricsOf(m)); err != nil {
				return err
			}
		case sdk.CodeOf(err) == sdk.CodeConflict: // it is just being paused or resumed
		default:
			// What is being destroyed fails in many ways, with one reason.
			if _, gone := s.instances.Get(c.tenant, c.id); gone != nil && ctx.Err() == nil {
				return gone
			}
			return lease.Fault(ctx, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return lease.Fault(ctx, ctx.Err())
		}
	}
}

func measure(ctx context.Context, meter sdk.Meter, instanceID string) (sdk.InstanceMetrics, error) {
	patience, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	m, err := meter.InstanceMetrics(patience, instanceID)
	if ranOut(ctx, patience, err) {
		return m, sdk.Errorf(sdk.CodeUnavailable, "the provider did not say within %s what the instance uses", metricsTime)
	}
	return m, err
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
