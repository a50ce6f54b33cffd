package opensandbox

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerMetrics registers the routes of metrics.
func (d execd) registerMetrics(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/metrics"}, d.metrics)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/metrics/watch"}, d.watchMetrics)
}

// metrics are what a sandbox uses. Processors are in percent of all that it has.
type metrics struct {
	CPUs        float64 `json:"cpu_count"`
	CPUPercent  float64 `json:"cpu_used_pct"`
	MemoryTotal float64 `json:"mem_total_mib"`
	MemoryUsed  float64 `json:"mem_used_mib"`
	Timestamp   int64   `json:"timestamp"`
}

const (
	// watchInterval is from one line of a watch to the next.
	watchInterval = time.Second
	// lineTime is how long a client may take for a line.
	lineTime = 30 * time.Second
)

// metricsOf are those of a look, with the share of the processors since the one before.
func metricsOf(now sdk.InstanceMetrics, percent float64) metrics {
	return metrics{
		CPUs: now.CPULimit, CPUPercent: percent, Timestamp: now.MeasuredAt.UnixMilli(),
		MemoryTotal: mib(now.MemoryLimit), MemoryUsed: mib(now.Memory),
	}
}

func mib(bytes int64) float64 { return math.Round(float64(bytes)/(1<<20)*100) / 100 }

func (d execd) metrics(ctx context.Context, c rest.Call[rest.None]) (int, metrics, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, metrics{}, err
	}
	var m metrics
	err = lending.Use(ctx, d.instances, c.Tenant, info.ID.String(), sdk.CapabilityMetrics, func(ctx context.Context, meter sdk.Meter, instanceID string) error {
		now, percent, err := lending.Glance(ctx, meter, instanceID)
		m = metricsOf(now, percent)
		return err
	})
	return http.StatusOK, m, err
}

// watchMetrics tells them every second, a line each, until the client leaves. What cannot
// be measured, because the sandbox is just being paused or resumed, is left out.
func (d execd) watchMetrics(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	return lending.Lend(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.CapabilityMetrics, (*instance.Lease).Watching, func(ctx context.Context, meter sdk.Meter, lease *instance.Lease) error {
		before, err := lending.Measure(ctx, meter, lease.InstanceID)
		if err != nil {
			return err
		}
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			now, err := lending.Measure(ctx, meter, lease.InstanceID)
			if sdk.CodeOf(err) == sdk.CodeConflict {
				continue
			}
			if err != nil {
				return err
			}
			if err := sendLine(w, metricsOf(now, lending.CPUPercent(before, now))); err != nil {
				return lending.Unheard{Err: err}
			}
			before = now
		}
	})
}

// sendLine sends a value as a line of JSON. The head goes out with the first.
func sendLine(w http.ResponseWriter, value any) error {
	line, err := rest.EncodeJSON(value)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // nginx would collect lines
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Now().Add(lineTime)) // where there are none, the wait is longer
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	return controller.Flush()
}
