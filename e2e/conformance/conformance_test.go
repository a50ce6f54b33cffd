package conformance_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// verify runs the conformance suite against an executable and returns what it
// reports, and the exit code.
func verify(t *testing.T, file, config string, arguments ...string) (providertest.Report, int) {
	t.Helper()
	broker := filepath.Join(binaries.Dir(t), "sandbox-broker")
	arguments = append([]string{"plugin", "verify", file, "--json"}, arguments...)
	if config != "" {
		arguments = append(arguments, "--config", fs.NewFile(t, "p.hcl", fs.WithContent(config)).Path())
	}
	result := icmd.RunCommand(broker, arguments...)
	var report providertest.Report
	assert.NilError(t, json.Unmarshal([]byte(result.Stdout()), &report), result.Combined())
	return report, result.ExitCode
}

func failures(report providertest.Report) []string {
	failed := []string{}
	for _, c := range report.Cases {
		if c.Status == providertest.Failed {
			failed = append(failed, c.String()+": "+c.Reason)
		}
	}
	return failed
}

// verifySelfManaged checks that nothing fails.
func verifySelfManaged(t *testing.T, settings string, more ...string) providertest.Report {
	t.Helper()
	arguments := append([]string{
		"--patience", "4", "--memory-limit", "256",
		// The kernel of gVisor adds the time of killed processes to nobody's.
		"--skip", "^metrics/used CPU time grows=the time of code that was killed is not counted",
	}, more...)
	report, code := verify(t, filepath.Join(binaries.Dir(t), "plugins", "self_managed"),
		fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 4\n  queue_timeout = \"4m\"\n  memory_mb = 256\n  %s\n}\n", binaries.Runsc(t), settings), arguments...)
	assert.DeepEqual(t, failures(report), []string{})
	assert.Equal(t, code, 0)
	assert.Check(t, is.Equal(report.Name, "self_managed"))
	return report
}

// waiting matches the cases that mostly wait for time limits to pass.
const waiting = "^(deadlines|contexts|set_ttl)/"

// others matches all cases that waiting does not.
func others() string {
	var groups []string
	for _, c := range providertest.Cases() {
		if !regexp.MustCompile(waiting).MatchString(c.String()) && !slices.Contains(groups, c.Group) {
			groups = append(groups, c.Group)
		}
	}
	return "^(" + strings.Join(groups, "|") + ")/"
}

// inOneLanguage matches what the guest does alike in each language, but for Python's, which stand
// for all with -short.
const (
	inOneLanguage = "^(execute|deadlines|streams|artifacts|variables)/(bash|javascript)/"
	leftOut       = "it is left out with -short"
)

// Nothing is skipped but what is named here.
func TestSelfManagedKeepsTheContract(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	skipped, ran := []string{}, 0
	short := []string{}
	if testing.Short() {
		short = append(short, "--skip", inOneLanguage+"="+leftOut)
	}
	t.Run("together", func(t *testing.T) {
		for name, part := range map[string]struct{ cases, patience string }{
			"those that wait": {waiting, "6"},   // it makes their waits longer
			"the others":      {others(), "12"}, // it only makes a failure late
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				report := verifySelfManaged(t, "", append(short, "--run", part.cases, "--patience", part.patience)...)
				mu.Lock()
				defer mu.Unlock()
				ran += len(report.Cases)
				for _, c := range report.Cases {
					if c.Status == providertest.Skipped && c.Reason != leftOut && !slices.Contains(skipped, c.Reason) {
						skipped = append(skipped, c.Reason)
					}
				}
			})
		}
	})
	assert.Equal(t, ran, len(providertest.Cases()))
	slices.Sort(skipped)
	const packages = `packages cannot be installed here: the operator can allow it with packages = "on" in the settings of this provider`
	assert.DeepEqual(t, skipped, []string{
		"its code does not run where the suite could see it",
		"no setting is declared so",
		"no setting is secret",
		"nobody named a package of javascript that can be installed here",
		"nobody named a package of python that can be installed here",
		"nobody named a template that can be built here",
		"nobody said how to take the back end away",
		"the provider does not claim adoption",
		"the settings of this run have no secret",
		"the time of code that was killed is not counted",
		"there is no code for this in javascript",
		"there is no code for this in python",
		"when a call of another process returns cannot be seen",
		"with these settings no packages are installed in javascript: " + packages,
		"with these settings no packages are installed in python: " + packages,
		"with these settings there are no volumes: the operator has not set volumes_mb, the room for volumes, for this provider",
	})
}

// What runs the code, and speaks of files and streams, is the same as with runsc: what differs
// is what the engine makes, ends, limits and lists, for which one language is enough.
func TestSelfManagedKeepsTheContractOnDocker(t *testing.T) {
	t.Parallel()
	engine := dockerengine.Find(t)
	report := verifySelfManaged(t, fmt.Sprintf("runtime = \"docker\"\n  docker_host = %q", engine.Host),
		"--run", "^(lifecycle|isolation|process|pause|metrics)/(bash/|[^/]+(/workspace)?$)")
	assert.Check(t, report.Passed >= 25, report.Summary())
}

// The mock provider runs no code, so only what needs none can pass.
func TestVerifyTellsWhatAPluginBreaks(t *testing.T) {
	t.Parallel()
	const most = "^(description|schema|configure|labels|process/it ends in order)"
	report, code := verify(t, mockPlugin, "", "--run", most)
	assert.DeepEqual(t, failures(report), []string{})
	assert.Equal(t, code, 0)
	assert.Check(t, report.Passed >= 15, report.Summary())

	for name, c := range map[string]struct{ settings, run, reason string }{
		"a Create that fails":                {`on_create = "{\"fail\": \"SB004\", \"message\": \"no room\"}"`, "^labels/an instance carries", "no room"},
		"a plugin that ends":                 {`on_create = "{\"crash\": \"before\", \"crash_with\": \"kill\"}"`, "^labels/an instance carries", "ended"},
		"a panic":                            {`on_list = "{\"panic\": true}"`, "^labels/List returns", "the provider panicked"},
		"a secret in the log":                {"secret = \"hunter2-hunter2\"\n  on_health = \"{\\\"log\\\": \\\"the secret is hunter2-hunter2\\\"}\"", "^configure/what it shows", "a secret of the settings"},
		"an ID that is acceptable to nobody": {`on_create = "{\"lie\": \"bad_id\"}"`, "^labels/an instance carries", "which is not of the form"},
	} {
		t.Run(name, func(t *testing.T) {
			report, code := verify(t, mockPlugin, "provider \"mock\" {\n  "+c.settings+"\n}\n", "--run", c.run)
			assert.Equal(t, code, 1)
			assert.Equal(t, report.Failed, 1, "%+v", report)
			assert.Check(t, is.Contains(report.Cases[0].Reason, c.reason))
			assert.Check(t, !slices.ContainsFunc(failures(report), func(f string) bool { return is.Contains(f, "hunter2")().Success() }))
		})
	}
}

func TestVerifyOfWhatDoesNotStart(t *testing.T) {
	report, code := verify(t, "/usr/bin/env", "")
	assert.Equal(t, code, 1)
	assert.Equal(t, report.Passed, 0, report.Summary())
	assert.Check(t, is.Equal(report.Cases[0].String(), "description/it starts and describes itself"))
	assert.Check(t, is.Equal(report.Cases[0].Status, providertest.Failed))
}
