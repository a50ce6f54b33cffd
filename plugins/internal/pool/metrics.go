package pool

import (
	"maps"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Metrics are the figures of a pool for the operator.
func Metrics(s Stats) []sdk.Metric {
	gauge := func(name, help string, value float64) sdk.Metric {
		return sdk.Metric{Name: name, Help: help, Kind: sdk.MetricGauge, Value: value}
	}
	counter := func(name, help string, value float64) sdk.Metric {
		return sdk.Metric{Name: name, Help: help, Kind: sdk.MetricCounter, Value: value}
	}
	with := func(m sdk.Metric, label, value string) sdk.Metric {
		m.Labels = map[string]string{label: value}
		return m
	}
	var metrics []sdk.Metric
	for _, template := range slices.Sorted(maps.Keys(s.Ready)) {
		metrics = append(metrics, with(gauge(sdk.MetricReadySandboxes, "Sandboxes that wait to be used.", float64(s.Ready[template])), sdk.MetricLabelTemplate, template))
	}
	const handedOut = "Sandboxes that requests have got: ready, or awaited because none was."
	for _, template := range slices.Sorted(maps.Keys(s.HandedOut)) {
		for _, got := range []struct {
			source string
			n      int64
		}{{"ready", s.HandedOut[template].Ready}, {"awaited", s.HandedOut[template].Awaited}} {
			m := counter("pool_handed_out_total", handedOut, float64(got.n))
			m.Labels = map[string]string{"template": template, "source": got.source}
			metrics = append(metrics, m)
		}
	}
	metrics = append(metrics, gauge("pool_size_sandboxes", "Sandboxes that are kept ready, over all templates, as it is configured.", float64(s.Size)))
	if s.Max > 0 {
		metrics = append(metrics, gauge(sdk.MetricMaxSandboxes, "Sandboxes that there may be at a time, those in use too, as it is configured.", float64(s.Max)))
	}
	const requests, retired = "Requests for a sandbox: hit found one ready, wait did not.",
		"Ready sandboxes that were replaced unused: age is past max_age, unwell did not answer a check, ended ended by itself."
	return append(
		metrics,
		gauge("pool_making_sandboxes", "Sandboxes that are being made.", float64(s.Making)),
		gauge("pool_in_use_sandboxes", "Sandboxes that instances use, or that are being destroyed.", float64(s.InUse)),
		gauge("pool_waiting_requests", "Requests that wait for a sandbox now.", float64(s.Waiting)),
		with(counter("pool_requests_total", requests, float64(s.Hits)), "result", "hit"),
		with(counter("pool_requests_total", requests, float64(s.Waits)), "result", "wait"),
		counter("pool_wait_seconds_total", "Time that requests have waited for a sandbox.", s.WaitTime.Seconds()),
		counter("pool_given_up_total", "Requests that waited for a sandbox in vain.", float64(s.GivenUp)),
		counter("pool_made_total", "Sandboxes that were made.", float64(s.Made)),
		counter("pool_make_seconds_total", "Time that their making took.", s.MakeTime.Seconds()),
		gauge("pool_make_seconds_max", "The longest that the making of a sandbox has taken.", s.LongestMake.Seconds()),
		counter("pool_make_failures_total", "Sandboxes that could not be made.", float64(s.Failed)),
		with(counter("pool_retired_total", retired, float64(s.Aged)), "reason", "age"),
		with(counter("pool_retired_total", retired, float64(s.Unwell)), "reason", "unwell"),
		with(counter("pool_retired_total", retired, float64(s.Ended)), "reason", "ended"),
	)
}
