package metrics

import (
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
)

// noError is the code of requests that were not refused, in a history.
const noError = "ok"

// poolMetric is the end of the name by which providers tell how many sandboxes they have
// ready.
const poolMetric = "pool_ready_sandboxes"

// watches reports whether a route is that of who watches the broker: probes, and
// administrators with their page. They ask all the time, so that nothing else could be seen
// beside them.
func watches(route string) bool {
	return route == "/healthz" || route == "/readyz" || strings.HasPrefix(route, "/api/admin/") || route == "/admin" || strings.HasPrefix(route, "/admin/")
}

// Reading returns what the metrics say at this moment of the figures in a history. Waiting
// and Cost are not theirs to know. What cannot be gathered is left out.
func (m *Metrics) Reading() history.Reading {
	r := history.Reading{
		Requests: map[string]float64{}, Executions: map[string]float64{},
		Instances: map[string]float64{}, Pool: map[string]float64{},
	}
	families, _ := m.registry.Gather() // what one collector says wrong hides nothing of the others
	for _, family := range families {
		name := family.GetName()
		for _, metric := range family.GetMetric() {
			label := func(name string) string {
				for _, pair := range metric.GetLabel() {
					if pair.GetName() == name {
						return pair.GetValue()
					}
				}
				return ""
			}
			probed := watches(label("route"))
			switch {
			case name == "sandbox_broker_requests_total" && !probed:
				code := label("code")
				if code == "" {
					code = noError
				}
				r.Requests[code] += metric.GetCounter().GetValue()
			case name == "sandbox_broker_request_duration_seconds" && !probed:
				durations := metric.GetHistogram()
				for i, bucket := range durations.GetBucket() {
					if i == len(r.Latency.Bounds) {
						r.Latency.Bounds = append(r.Latency.Bounds, bucket.GetUpperBound())
						r.Latency.Counts = append(r.Latency.Counts, 0)
					}
					r.Latency.Counts[i] += float64(bucket.GetCumulativeCount())
				}
				r.Latency.Total += float64(durations.GetSampleCount())
			case name == "sandbox_broker_executions_total":
				r.Executions[label("provider")] += metric.GetCounter().GetValue()
			case name == "sandbox_broker_failovers_total":
				r.Failovers += metric.GetCounter().GetValue()
			case name == "sandbox_broker_instances":
				r.Instances[label("state")] += metric.GetGauge().GetValue()
			case strings.HasPrefix(name, "sandbox_provider_") && strings.HasSuffix(name, poolMetric):
				r.Pool[label("provider")] += metric.GetGauge().GetValue()
			}
		}
	}
	return r
}
