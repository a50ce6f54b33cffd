package wire

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// metricName is also the form of the names of labels.
var metricName = onceCompiled(`^[a-z][a-z0-9_]{0,62}$`)

// metricLabelProvider is the label that the broker adds.
const metricLabelProvider = "provider"

// CheckMetrics says what is wrong with the metrics of a provider, nil if nothing
// is. The broker takes no others.
func CheckMetrics(metrics []sdk.Metric) error {
	if len(metrics) > sdk.MaxMetrics {
		return fmt.Errorf("%d metrics, more than %d", len(metrics), sdk.MaxMetrics)
	}
	first, seen := map[string]sdk.Metric{}, map[string]bool{}
	for _, m := range metrics {
		if !metricName().MatchString(m.Name) {
			return fmt.Errorf("metric name %.70q is not of the form %s", m.Name, metricName())
		}
		if err := checkMetric(m); err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		if other, again := first[m.Name]; !again {
			first[m.Name] = m
		} else if m.Kind != other.Kind || m.Help != other.Help || !sameNames(m.Labels, other.Labels) {
			return fmt.Errorf("metric %s stands there twice with another kind, help or other labels", m.Name)
		}
		if seen[metricKey(m)] {
			return fmt.Errorf("metric %s stands there twice with the same labels", m.Name)
		}
		seen[metricKey(m)] = true
	}
	return nil
}

func checkMetric(m sdk.Metric) error {
	switch {
	case m.Kind != sdk.MetricCounter && m.Kind != sdk.MetricGauge:
		return fmt.Errorf("unknown kind %.70q", m.Kind)
	case m.Help == "" || len(m.Help) > sdk.MaxMetricHelp:
		return fmt.Errorf("its help is empty or above %d bytes", sdk.MaxMetricHelp)
	case math.IsNaN(m.Value) || math.IsInf(m.Value, 0):
		return fmt.Errorf("its value is not finite")
	case m.Kind == sdk.MetricCounter && m.Value < 0:
		return fmt.Errorf("a counter is not below 0")
	case len(m.Labels) > sdk.MaxMetricLabels:
		return fmt.Errorf("%d labels, more than %d", len(m.Labels), sdk.MaxMetricLabels)
	}
	for name, value := range m.Labels {
		if !metricName().MatchString(name) || name == metricLabelProvider {
			return fmt.Errorf("label name %.70q is reserved or not of the form %s", name, metricName())
		}
		if len(value) > sdk.MaxMetricLabelValue {
			return fmt.Errorf("the value of its label %s is above %d bytes", name, sdk.MaxMetricLabelValue)
		}
	}
	return nil
}

// metricKey tells the metrics of a provider apart.
func metricKey(m sdk.Metric) string {
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
