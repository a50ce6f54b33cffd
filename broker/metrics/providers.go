package metrics

import (
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Provider is the state of a provider at this moment.
type Provider struct {
	// Label names it in the configuration; Plugin is the name that the plugin
	// gives itself, "" if it has not said it yet.
	Label, Plugin string
	Ready         bool
	Restarts      int
	// Draining counts earlier processes that serve their last instances.
	Draining int
	// Removed says that it is not in the configuration any more: there are only those.
	Removed bool
	// CircuitOpen says that it has failed repeatedly and refuses work until it is
	// tried again. FailedAt is when its process ended, or did not start, the last
	// time; zero for never.
	CircuitOpen bool
	FailedAt    time.Time
	// CreationCircuitOpen says that its creations fail, so that others are asked
	// first. Creation is how long they take of late; zero if there was none.
	CreationCircuitOpen bool
	Creation            time.Duration
	// Version is that of the plugin, Region where the provider says that its sandboxes are;
	// "" where it does not.
	Version, Region string
	// CostPerSecond of the life of an instance; 0 for none.
	CostPerSecond float64
	// Metrics are its own, which were checked.
	Metrics []sdk.Metric
}

var (
	providerReady = prometheus.NewDesc("sandbox_broker_provider_ready",
		"Whether the provider takes work.", []string{"provider"}, nil)
	providerInfo = prometheus.NewDesc("sandbox_broker_provider_info",
		"What the provider is: always 1, to be joined with others by its label.", []string{"provider", "plugin", "version", "region"}, nil)
	providerCostRate = prometheus.NewDesc("sandbox_broker_provider_cost_per_second",
		"What a second of an instance's life costs, as it is configured; absent where that is nothing.", []string{"provider"}, nil)
	providerRestarts = prometheus.NewDesc("sandbox_broker_provider_restarts_total",
		"Processes of the provider after its first.", []string{"provider"}, nil)
	providerDraining = prometheus.NewDesc("sandbox_broker_provider_draining",
		"Processes that another has replaced, or whose provider was removed, and that serve their last instances.", []string{"provider"}, nil)
	providerCircuit = prometheus.NewDesc("sandbox_broker_provider_circuit_open",
		"Whether the provider has failed repeatedly and refuses work until it is tried again.", []string{"provider"}, nil)
	providerCreationCircuit = prometheus.NewDesc("sandbox_broker_provider_creation_circuit_open",
		"Whether creations of the provider fail, so that others are asked first.", []string{"provider"}, nil)
	providerCreation = prometheus.NewDesc("sandbox_broker_provider_creation_seconds",
		"How long creations of the provider took on average, the last ones most.", []string{"provider"}, nil)
	providerFailed = prometheus.NewDesc("sandbox_broker_provider_last_failure_timestamp_seconds",
		"When a process of the provider ended by itself, or did not start, the last time.", []string{"provider"}, nil)
)

// providerCollector shows the providers as they are when it is asked.
type providerCollector struct{ providers func() []Provider }

// Describe implements prometheus.Collector. It says nothing: which metrics there
// are is up to the providers.
func (providerCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c providerCollector) Collect(out chan<- prometheus.Metric) {
	known := families{}
	for _, p := range c.providers() {
		out <- prometheus.MustNewConstMetric(providerDraining, prometheus.GaugeValue, float64(p.Draining), p.Label)
		if p.Removed {
			continue
		}
		out <- prometheus.MustNewConstMetric(providerReady, prometheus.GaugeValue, oneIf(p.Ready), p.Label)
		out <- prometheus.MustNewConstMetric(providerCircuit, prometheus.GaugeValue, oneIf(p.CircuitOpen), p.Label)
		out <- prometheus.MustNewConstMetric(providerCreationCircuit, prometheus.GaugeValue, oneIf(p.CreationCircuitOpen), p.Label)
		if p.Plugin != "" {
			out <- prometheus.MustNewConstMetric(providerInfo, prometheus.GaugeValue, 1, p.Label, short(p.Plugin), short(p.Version), short(p.Region))
		}
		if p.CostPerSecond > 0 {
			out <- prometheus.MustNewConstMetric(providerCostRate, prometheus.GaugeValue, p.CostPerSecond, p.Label)
		}
		if p.Creation > 0 {
			out <- prometheus.MustNewConstMetric(providerCreation, prometheus.GaugeValue, p.Creation.Seconds(), p.Label)
		}
		if !p.FailedAt.IsZero() {
			out <- prometheus.MustNewConstMetric(providerFailed, prometheus.GaugeValue, float64(p.FailedAt.UnixMilli())/1000, p.Label)
		}
		out <- prometheus.MustNewConstMetric(providerRestarts, prometheus.CounterValue, float64(p.Restarts), p.Label)
		for _, m := range p.Metrics {
			if shown := known.metric(p, m); shown != nil {
				out <- shown
			}
		}
	}
}

// maxFact bounds what a plugin says of itself, in bytes.
const maxFact = 64

// short is a fact that a plugin has told, unless that is too long or no text.
func short(fact string) string {
	if len(fact) > maxFact || !utf8.ValidString(fact) {
		return other
	}
	return fact
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// families keep what is the same for all metrics of one name. Two providers may
// run different versions of a plugin, and Prometheus refuses a whole answer in
// which they disagree.
type families map[string]sdk.Metric

// metric is one of a provider, nil if it cannot stand beside the others of its
// name.
func (f families) metric(p Provider, m sdk.Metric) prometheus.Metric {
	name := "sandbox_provider_" + p.Plugin + "_" + m.Name
	first, ok := f[name]
	if !ok {
		first, f[name] = m, m
	}
	if m.Kind != first.Kind {
		return nil
	}
	kind := prometheus.GaugeValue
	if m.Kind == sdk.MetricCounter {
		kind = prometheus.CounterValue
	}
	names, values := []string{"provider"}, []string{p.Label}
	for _, label := range slices.Sorted(maps.Keys(m.Labels)) {
		names, values = append(names, label), append(values, m.Labels[label])
	}
	shown, err := prometheus.NewConstMetric(prometheus.NewDesc(name, first.Help, names, nil), kind, m.Value, values...)
	if err != nil {
		return nil // a name that is not one, which the check of metrics keeps away
	}
	return shown
}
