package sdk

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Metric is one number of a provider's own, as it is at the moment of the
// health probe. The broker shows it as sandbox_provider_<plugin>_<name> with the
// label provider, in the text format of Prometheus.
type Metric struct {
	// Name is [a-z][a-z0-9_]{0,62}. By custom it ends in the unit, in plural, and
	// that of a counter in _total: wait_seconds_total.
	Name string
	// Help says in one sentence what is counted; the same for all metrics of
	// that name.
	Help string
	// Kind is the same for all metrics of that name.
	Kind MetricKind
	// Labels tell metrics of one name apart. Their values must be few and not
	// grow with use: templates, but not instances or tenants.
	Labels map[string]string
	// Value is finite, and not negative for a counter.
	Value float64
}

// MetricKind says how a metric behaves.
type MetricKind string

// The kinds of metrics.
const (
	MetricCounter MetricKind = "counter" // only grows, from the start of the process
	MetricGauge   MetricKind = "gauge"   // goes up and down
)

// Bounds on metrics.
const (
	// MaxMetrics is how many a provider may have, over all names and labels.
	MaxMetrics = 200
	// MaxMetricLabels is how many labels a metric may have.
	MaxMetricLabels = 5
	// MaxMetricHelp and MaxMetricLabelValue are in bytes.
	MaxMetricHelp, MaxMetricLabelValue = 300, 100
)

// metricName is also the form of the names of labels.
var metricName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// metricLabelProvider is the label that the broker adds.
const metricLabelProvider = "provider"

// CheckMetrics says what is wrong with the metrics of a provider, nil if nothing
// is. The broker takes no others.
func CheckMetrics(metrics []Metric) error {
	if len(metrics) > MaxMetrics {
		return fmt.Errorf("%d metrics, more than %d", len(metrics), MaxMetrics)
	}
	first, seen := map[string]Metric{}, map[string]bool{}
	for _, m := range metrics {
		if !metricName.MatchString(m.Name) {
			return fmt.Errorf("metric name %.70q is not of the form %s", m.Name, metricName)
		}
		if err := m.check(); err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		if other, again := first[m.Name]; !again {
			first[m.Name] = m
		} else if m.Kind != other.Kind || m.Help != other.Help || !sameNames(m.Labels, other.Labels) {
			return fmt.Errorf("metric %s stands there twice with another kind, help or other labels", m.Name)
		}
		if seen[m.key()] {
			return fmt.Errorf("metric %s stands there twice with the same labels", m.Name)
		}
		seen[m.key()] = true
	}
	return nil
}

func (m Metric) check() error {
	switch {
	case m.Kind != MetricCounter && m.Kind != MetricGauge:
		return fmt.Errorf("unknown kind %.70q", m.Kind)
	case m.Help == "" || len(m.Help) > MaxMetricHelp:
		return fmt.Errorf("its help is empty or above %d bytes", MaxMetricHelp)
	case math.IsNaN(m.Value) || math.IsInf(m.Value, 0):
		return fmt.Errorf("its value is not finite")
	case m.Kind == MetricCounter && m.Value < 0:
		return fmt.Errorf("a counter is not below 0")
	case len(m.Labels) > MaxMetricLabels:
		return fmt.Errorf("%d labels, more than %d", len(m.Labels), MaxMetricLabels)
	}
	for name, value := range m.Labels {
		if !metricName.MatchString(name) || name == metricLabelProvider {
			return fmt.Errorf("label name %.70q is reserved or not of the form %s", name, metricName)
		}
		if len(value) > MaxMetricLabelValue {
			return fmt.Errorf("the value of its label %s is above %d bytes", name, MaxMetricLabelValue)
		}
	}
	return nil
}

// key tells the metrics of a provider apart.
func (m Metric) key() string {
	var b strings.Builder
	b.WriteString(m.Name)
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		fmt.Fprintf(&b, " %s=%q", name, m.Labels[name])
	}
	return b.String()
}

func sameNames(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}
