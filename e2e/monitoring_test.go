package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

var (
	// namedMetric is a name in a query; those with a colon are recorded by a rule.
	namedMetric   = regexp.MustCompile(`\bsandbox_[a-zA-Z0-9_:]+`)
	recordedRule  = regexp.MustCompile(`- record: (\S+)`)
	shownFamily   = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	ofHistogram   = regexp.MustCompile(`_(bucket|sum|count)$`)
	otherProvider = regexp.MustCompile(`^sandbox_provider_(daytona|aliyun|kubernetes)_(api|pool)_`)
)

// shownElsewhere are numbers that this broker has no cause to show, by the test in
// broker/metrics that has one show them.
var shownElsewhere = map[string]string{
	"sandbox_broker_tls_certificate_end_timestamp_seconds": "TestTheEndOfTheCertificateIsShown",
	"sandbox_broker_failovers_total":                       "TestWhatBecomesOfExecutionsAndCreations",
	"sandbox_broker_audit_sink_behind":                     "TestTheAuditLogIsShown",
	"sandbox_broker_quota_refusals_total":                  "TestTheQuotasOfTenants",
}

// namedIn are the metrics that a file of examples/monitoring names, and those that are
// recorded by its rules.
func namedIn(t *testing.T, file string) (names, recorded []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", "monitoring", file))
	assert.NilError(t, err)
	all := map[string]bool{}
	for _, name := range namedMetric.FindAllString(string(text), -1) {
		all[name] = true
	}
	for _, match := range recordedRule.FindAllStringSubmatch(string(text), -1) {
		recorded = append(recorded, match[1])
	}
	return slices.Sorted(maps.Keys(all)), recorded
}

// openMetrics are a broker's numbers in the format with exemplars.
func openMetrics(t *testing.T, b *harness.Broker) string {
	t.Helper()
	address := metricsAddress.FindStringSubmatch(b.Log())
	assert.Assert(t, address != nil, b.Log())
	client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[1]+"/metrics", nil)
	assert.NilError(t, err)
	req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	resp, err := client.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	assert.Equal(t, resp.StatusCode, http.StatusOK)
	return string(text)
}

// families are the names that were shown, with _total for counters, which the format
// leaves out there.
func families(text string) map[string]bool {
	shown := map[string]bool{}
	for _, match := range shownFamily.FindAllStringSubmatch(text, -1) {
		name := match[1]
		if match[2] == "counter" {
			name += "_total"
		}
		shown[name] = true
	}
	return shown
}

func TestABrokerShowsTheNumbersOfTheMonitoringExample(t *testing.T) {
	t.Parallel()
	server := fakeE2B(t)
	b := harness.Start(t, harness.Options{
		Config:  harness.Tenants + fmt.Sprintf("providers {\n  active = \"self_managed\"\n}\nmetrics {\n  listen = \"127.0.0.1:0\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 2\n  cost_per_second = 0.01\n}\n", binaries.Runsc(t)) + e2bBlock(server),
		Plugins: map[string]string{"e2b": filepath.Join(binaries.Dir(t), "plugins", "e2b")},
	})
	b.Execute(t, map[string]any{"language": "python", "code": "print(1)", "provider": "self_managed"})

	names, recorded := namedIn(t, "rules.yml")
	onDashboard, _ := namedIn(t, "grafana/dashboard.json")
	names = append(names, onDashboard...)
	assert.Assert(t, len(names) > 50, "%q", names)
	var text string
	poll.WaitOn(t, func(poll.LogT) poll.Result { // for the next health probe
		text = openMetrics(t, b)
		shown := families(text)
		var missing []string
		for _, name := range names {
			switch {
			case slices.Contains(recorded, name), shownElsewhere[name] != "":
				continue
			case otherProvider.MatchString(name): // the same code counts there
				of := map[string]string{"api": "e2b", "pool": "self_managed"}
				part := otherProvider.FindStringSubmatch(name)
				name = strings.Replace(name, part[1], of[part[2]], 1)
			}
			if !shown[name] && !shown[ofHistogram.ReplaceAllString(name, "")] {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return poll.Continue("not shown: %q", missing)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(time.Second))

	id := regexp.MustCompile(`sandbox_broker_execution_duration_seconds_bucket\{language="python",provider="self_managed",le="[^"]+"\} 1 # \{request_id="([A-Za-z0-9_-]+)"\}`).FindStringSubmatch(text)
	assert.Assert(t, id != nil, text)
	assert.Assert(t, is.Contains(b.Log(), "request_id="+id[1]), "the exemplar leads to a line of the log")
	for _, private := range []string{"acme", "s-", "print"} {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "sandbox_broker_quota_") {
				assert.Check(t, !strings.Contains(line, `"`+private), line)
			}
		}
	}
}
