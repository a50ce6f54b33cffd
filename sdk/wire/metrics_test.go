package wire_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

func TestMetricsAreChecked(t *testing.T) {
	one := func(change func(*sdk.Metric)) []sdk.Metric {
		m := sdk.Metric{Name: "made_total", Help: "Made.", Kind: sdk.MetricCounter, Labels: map[string]string{"template": "python"}, Value: 1}
		two := m
		two.Labels = map[string]string{"template": "nodejs"}
		change(&m)
		return []sdk.Metric{two, m}
	}
	crowd := func(n int) []sdk.Metric {
		var all []sdk.Metric
		for i := range n {
			all = append(all, sdk.Metric{Name: fmt.Sprintf("m%d", i), Help: "M.", Kind: sdk.MetricGauge})
		}
		return all
	}
	cases := map[string]struct {
		metrics []sdk.Metric
		want    string // "" for none
	}{
		"no metrics":                       {nil, ""},
		"two that differ by a label":       {one(func(*sdk.Metric) {}), ""},
		"as many as allowed":               {crowd(200), ""},
		"more than allowed":                {crowd(201), "201 metrics, more than 200"},
		"a name in capitals":               {one(func(m *sdk.Metric) { m.Name = "Made" }), `metric name "Made" is not of the form`},
		"a name that ends a line":          {one(func(m *sdk.Metric) { m.Name = "made\n" }), "is not of the form"},
		"a name that is very long":         {one(func(m *sdk.Metric) { m.Name = strings.Repeat("x", 64) }), "is not of the form"},
		"an unknown kind":                  {one(func(m *sdk.Metric) { m.Kind = "summary" }), `unknown kind "summary"`},
		"no help":                          {one(func(m *sdk.Metric) { m.Help = "" }), "its help is empty"},
		"a help that is very long":         {one(func(m *sdk.Metric) { m.Help = strings.Repeat("x", 301) }), "above 300 bytes"},
		"not a number":                     {one(func(m *sdk.Metric) { m.Value = math.NaN() }), "not finite"},
		"an infinite value":                {one(func(m *sdk.Metric) { m.Value = math.Inf(1) }), "not finite"},
		"a counter below 0":                {one(func(m *sdk.Metric) { m.Value = -1 }), "a counter is not below 0"},
		"the label that the broker adds":   {one(func(m *sdk.Metric) { m.Labels = map[string]string{"provider": "x"} }), `label name "provider" is reserved`},
		"a label that Prometheus reserves": {one(func(m *sdk.Metric) { m.Labels = map[string]string{"__name__": "x"} }), `label name "__name__"`},
		"a label value that is very long":  {one(func(m *sdk.Metric) { m.Labels = map[string]string{"template": strings.Repeat("x", 101)} }), "above 100 bytes"},
		"too many labels": {one(func(m *sdk.Metric) {
			m.Labels = map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": ""}
		}), "6 labels, more than 5"},
		"the same twice":                {one(func(m *sdk.Metric) { m.Labels = map[string]string{"template": "nodejs"} }), "twice with the same labels"},
		"one name with two kinds":       {one(func(m *sdk.Metric) { m.Kind = sdk.MetricGauge }), "twice with another kind"},
		"one name with two helps":       {one(func(m *sdk.Metric) { m.Help = "Else." }), "twice with another kind, help"},
		"one name with other labels":    {one(func(m *sdk.Metric) { m.Labels = map[string]string{"language": "x"} }), "or other labels"},
		"one name with and without any": {one(func(m *sdk.Metric) { m.Labels = nil }), "or other labels"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := wire.CheckMetrics(c.metrics)
			if c.want == "" {
				assert.NilError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.want)
			assert.Assert(t, len(err.Error()) < 500)
		})
	}
}
