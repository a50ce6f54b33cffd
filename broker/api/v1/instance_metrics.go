package v1

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// The interval between two metrics events, and how long one measurement may take.
const (
	metricsInterval      = time.Second
	metricsShortest      = 100 * time.Millisecond
	metricsLongest       = time.Minute
	metricsTime          = 10 * time.Second
	metricsIntervalParam = "interval_ms"
)

func (h instanceRoutes) registerMetrics(a *rest.API) {
	rest.RegisterEither(a, rest.Operation{
		Method: http.MethodGet, Path: "/api/v1/instances/{id}/metrics", ID: "instanceMetrics", Tag: tagInstances,
		Summary: "What an instance uses",
		Details: "Now; or with Accept: text/event-stream again and again, until you close the connection or the instance ends. " +
			"The stream is a use of the instance, which lives meanwhile, but not beyond its maximum lifetime.",
		Query: []rest.Parameter{{
			Name: metricsIntervalParam, Kind: rest.Integer,
			Least: float64(metricsShortest.Milliseconds()), Most: float64(metricsLongest.Milliseconds()),
			Doc: "Milliseconds from one event to the next; 1000 unless given. It takes Accept: text/event-stream.",
		}},
		Success: []int{http.StatusOK}, Codes: append(providerCodes(), sdk.CodeNotFound, sdk.CodeConflict),
		Events: []rest.Event{
			rest.EventOf[client.InstanceMetrics](client.EventMetrics, "What the instance uses. The first comes at once."),
			rest.EventOf[client.Problem](rest.EventError, "The last event, if the stream cannot go on: the problem, which is SB013 when the instance has ended."),
		},
	}, nil, h.instanceMetrics, h.streamMetrics)
}

func (h instanceRoutes) instanceMetrics(ctx context.Context, c rest.Call[rest.None]) (_ int, m client.InstanceMetrics, err error) {
	if c.Query.Given(metricsIntervalParam) {
		return 0, m, sdk.FieldErrorf(sdk.CodeInvalidRequest, metricsIntervalParam, "needs the header Accept: text/event-stream")
	}
	err = lending.Use(ctx, h.instances, c.Tenant, c.Path["id"], sdk.CapabilityMetrics, func(ctx context.Context, meter sdk.Meter, instanceID string) error {
		measured, err := meter.InstanceMetrics(ctx, instanceID)
		m = metricsOf(measured)
		return err
	})
	return http.StatusOK, m, err
}

// streamMetrics sends metrics until ctx or the instance ends. A client that reads
// slowly gets fewer of them, not older ones.
func (h instanceRoutes) streamMetrics(ctx context.Context, c rest.Call[rest.None], to *rest.EventStream) error {
	interval := time.Duration(c.Query.Integer(metricsIntervalParam, metricsInterval.Milliseconds())) * time.Millisecond
	return lending.Lend(ctx, h.instances, c.Tenant, c.Path["id"], sdk.CapabilityMetrics, (*instance.Lease).Watching, func(ctx context.Context, meter sdk.Meter, lease *instance.Lease) error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			m, err := measure(ctx, meter, lease.InstanceID)
			switch {
			case err == nil:
				if err := to.Send(ctx, client.EventMetrics, metricsOf(m)); err != nil {
					return lending.Unheard{Err: err}
				}
			case sdk.CodeOf(err) == sdk.CodeConflict: // it is just being paused or resumed
			default:
				// What is being destroyed fails in many ways, with one reason.
				if _, gone := h.instances.Get(ctx, c.Tenant, c.Path["id"]); gone != nil && ctx.Err() == nil {
					return lending.Unheard{Err: gone}
				}
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

func measure(ctx context.Context, meter sdk.Meter, instanceID string) (sdk.InstanceMetrics, error) {
	patience, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	m, err := meter.InstanceMetrics(patience, instanceID)
	if lending.RanOut(ctx, patience, err) {
		return m, sdk.Errorf(sdk.CodeUnavailable, "the provider did not say within %s what the instance uses", metricsTime)
	}
	return m, err
}

func metricsOf(m sdk.InstanceMetrics) client.InstanceMetrics {
	mb := func(bytes int64) float64 { return math.Round(float64(bytes)/(1<<20)*1e3) / 1e3 }
	metrics := client.InstanceMetrics{
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
