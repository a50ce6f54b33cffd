// Package monitoring_test has promtool try the rules of this directory, and reads the
// dashboard by the types that Grafana publishes. Whether a broker shows the numbers that
// they name is a test in e2e.
package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

const dashboardFile = "grafana/dashboard.json"

// promtool runs it in a directory, and returns what it said.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binaries.Needs(t, "promtool", "prometheus")
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	return string(out), err
}

func TestTheRulesDoWhatTheirTestsSay(t *testing.T) {
	out, err := promtool(t, "test", "rules", "rules_test.yml")
	assert.NilError(t, err, out)
	out, err = promtool(t, "check", "config", "prometheus.yml") // which names rules.yml
	assert.NilError(t, err, out)
}

// Thresholds that are others make the tests of their rules fail: these are no decoration.
func TestTheTestsOfTheRulesFindOtherThresholds(t *testing.T) {
	rules := read(t, "rules.yml")
	changes := map[string][2]string{
		"SandboxProviderAvailabilityLow": {"availability:avg1h < 0.99", "availability:avg1h < 0.9"},
		"SandboxErrorRateHigh":           {"ratio_rate5m > 0.05", "ratio_rate5m > 0.03"},
		"SandboxExecutionTimeHigh":       {"mean5m > 10", "mean5m > 12"},
		"SandboxPoolExhausted":           {"pool_available_sandboxes <= 0", "pool_available_sandboxes <= 1"},
		"SandboxCostSpike":               {"cost:rate1h > 2 *", "cost:rate1h > 4 *"},
		"SandboxQuotaNearLimit":          {"quota_limit > 0.8", "quota_limit > 0.95"},
		"SandboxHostMemoryHigh":          {"host_memory_bytes > 0.9", "host_memory_bytes > 0.8"},
		"SandboxExecutionsSlow":          {"p95_5m > 5", "p95_5m > 3"},
	}
	for _, change := range changes {
		assert.Assert(t, is.Contains(rules, change[0]))
		rules = strings.Replace(rules, change[0], change[1], 1)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yml"), rules)
	write(t, filepath.Join(dir, "rules_test.yml"), read(t, "rules_test.yml"))
	out, err := promtool(t, "test", "rules", filepath.Join(dir, "rules_test.yml"))
	failed, ok := errors.AsType[*exec.ExitError](err)
	assert.Assert(t, ok, "%v", err)
	assert.Equal(t, failed.ExitCode(), 1, out)
	for alert := range changes {
		assert.Check(t, is.Contains(out, "alertname: "+alert+","), "its other threshold is not found")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	assert.NilError(t, err)
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	assert.NilError(t, os.WriteFile(name, []byte(text), 0o600))
}

func TestEachAlertHasATestInWhichItFires(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	assert.NilError(t, yaml.Unmarshal([]byte(read(t, "rules.yml")), &rules))
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	assert.NilError(t, yaml.Unmarshal([]byte(read(t, "rules_test.yml")), &tests))
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, alert := range test.AlertRuleTest {
			if len(alert.ExpAlerts) > 0 {
				fires[alert.Alertname] = true
			} else {
				quiet[alert.Alertname] = true
			}
		}
	}
	alerts := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			alerts++
			assert.Check(t, fires[rule.Alert], "no test in which %s fires", rule.Alert)
			assert.Check(t, quiet[rule.Alert], "no test in which %s does not fire", rule.Alert)
		}
	}
	assert.Assert(t, alerts > 10)
}

func TestTheDashboardIsOneOfGrafanas(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard //nolint:staticcheck // the newer form is for resources of Kubernetes, and not what is imported as a file
	none(t, d.UnmarshalJSONStrict([]byte(read(t, dashboardFile))))
	// The strict reading keeps no panels.
	assert.NilError(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	none(t, d.Validate())
	assert.Assert(t, len(d.Panels) > 20, "%d", len(d.Panels))
	ids := map[uint32]bool{}
	for _, p := range d.Panels {
		if row := p.RowPanel; row != nil {
			assert.Check(t, !ids[row.Id], "the ID %d is there twice", row.Id)
			ids[row.Id] = true
			continue
		}
		assert.Assert(t, p.Panel != nil && p.Panel.Id != nil)
		assert.Check(t, !ids[*p.Panel.Id], "the ID %d is there twice", *p.Panel.Id)
		ids[*p.Panel.Id] = true
	}
	broken := strings.Replace(read(t, dashboardFile), `"gridPos"`, `"grid_pos"`, 1)
	refusals, ok := errors.AsType[cog.BuildErrors](d.UnmarshalJSONStrict([]byte(broken)))
	assert.Assert(t, ok && len(refusals) > 0, "unknown fields are refused")
}

// none checks that there is no error: the SDK says so with a list that is empty.
func none(t *testing.T, err error) {
	t.Helper()
	if found, ok := errors.AsType[cog.BuildErrors](err); ok && len(found) == 0 {
		return
	}
	assert.NilError(t, err)
}

var expression = regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`)

// What Grafana replaces in a query is replaced here, so that promtool can read it.
func TestTheQueriesOfTheDashboardCanBeRead(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	found := expression.FindAllStringSubmatch(read(t, dashboardFile), -1)
	assert.Assert(t, len(found) > 30, "%d", len(found))
	for i, match := range found {
		var query string
		assert.NilError(t, json.Unmarshal([]byte(match[1]), &query))
		query = strings.NewReplacer("$__rate_interval", "5m", "$provider", ".*").Replace(query)
		quoted, err := json.Marshal(query)
		assert.NilError(t, err)
		fmt.Fprintf(&rules, "      - {record: 'dashboard:query_%d', expr: %s}\n", i, quoted)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	write(t, file, rules.String())
	out, err := promtool(t, "check", "rules", file)
	assert.NilError(t, err, out)
}

func TestWhatTheComposeFileMountsIsThere(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Image       string
			Volumes     []string
			Command     []string
			NetworkMode string `json:"network_mode"`
		}
		Volumes map[string]any
	}
	assert.NilError(t, yaml.Unmarshal([]byte(read(t, "compose.yaml")), &compose))
	assert.Equal(t, len(compose.Services), 2)
	for name, service := range compose.Services {
		assert.Check(t, regexp.MustCompile(`:v?\d+\.\d+\.\d+$`).MatchString(service.Image), "%s: %s is not pinned", name, service.Image)
		for _, volume := range service.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(source, "./") {
				_, declared := compose.Volumes[source]
				assert.Check(t, declared, "%s: the volume %s is not declared", name, source)
				continue
			}
			_, err := os.Stat(source)
			assert.Check(t, !errors.Is(err, fs.ErrNotExist), "%s mounts %s, which is not there", name, source)
		}
	}
}
