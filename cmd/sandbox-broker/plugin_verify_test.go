package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/fs"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

var took = regexp.MustCompile(`\(\d+\.\d\ds\)`)

func TestVerifyPrintsALineForEachCase(t *testing.T) {
	dir := pluginDir(t)
	for name, c := range map[string]struct {
		settings string
		args     []string
		code     int
	}{
		"plugin_verify": {"", []string{"--run", "^(schema|configure)/", "--skip", "repeat a secret=nobody shall know"}, 0},
		"plugin_verify_failing": {
			`on_create = "{\"fail\": \"SB004\", \"message\": \"no room\"}"`, []string{"--run", "^labels/(an instance|List)"}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := fs.NewFile(t, "p.hcl", fs.WithContent("provider \"mock\" {\n  "+c.settings+"\n}\n"))
			got := runWith(t, nil, append([]string{"plugin", "verify", dir.Join("mock"), "-config", file.Path()}, c.args...)...)
			assert.Equal(t, got.code, c.code, got.err)
			assert.Equal(t, got.err, "")
			golden.Assert(t, took.ReplaceAllString(got.out, "(0.00s)"), name+".txt")
		})
	}
}

func TestVerifyPrintsAReport(t *testing.T) {
	dir := pluginDir(t)
	got := runWith(t, nil, "plugin", "verify", dir.Join("mock"), "--json", "--run", "^schema/")
	assert.Equal(t, got.code, 0, got.err)
	var report providertest.Report
	assert.NilError(t, json.Unmarshal([]byte(got.out), &report))
	assert.Equal(t, report.Name, "mock")
	assert.Equal(t, report.Passed+report.Failed+report.Skipped, len(report.Cases))
	assert.Check(t, is.Equal(report.Cases[0].Status, providertest.Passed))
}

func TestVerifyListsItsCases(t *testing.T) {
	got := runWith(t, nil, "plugin", "verify", "any", "--list")
	assert.Equal(t, got.code, 0, got.err)
	assert.Equal(t, strings.Count(got.out, "\n"), len(providertest.Cases()))
	assert.Check(t, is.Contains(got.out, "\nexecute/python/code runs and succeeds\n"))
}

func TestVerifyRefusesWhatMakesNoSense(t *testing.T) {
	dir := pluginDir(t)
	write := func(text string) string { return fs.NewFile(t, "p.hcl", fs.WithContent(text)).Path() }
	two := write("provider \"one\" {}\nprovider \"other\" {}\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a pattern that is none":               {[]string{"--run", "("}, "--run: error parsing regexp"},
		"a skip without a reason":              {[]string{"--skip", "files"}, `--skip "files" has no reason`},
		"no patience":                          {[]string{"--patience", "0"}, "--patience must be positive"},
		"a break without a repair":             {[]string{"--break", "true"}, "--break and --repair go together"},
		"cases that do not exist":              {[]string{"--run", "^nonsense$"}, `no case matches --run "^nonsense$"`},
		"nothing but skips":                    {[]string{"--run", "^schema/", "--skip", ".=no time"}, "every case was skipped, which shows nothing"},
		"several blocks":                       {[]string{"--config", two}, "several provider blocks; choose one of them with --provider: one, other"},
		"a block that is not there":            {[]string{"--config", two, "--provider", "third"}, `no provider block "third"; it has one, other`},
		"a file that is not there":             {[]string{"--config", dir.Join("absent.hcl")}, "No such file or directory"},
		"a file without a block":               {[]string{"--config", write("listen = \":1\"\n")}, "The file has no provider block"},
		"a setting that the plugin has not":    {[]string{"--config", write("provider \"mock\" {\n  nonsense = 1\n}\n")}, "nonsense"},
		"a sum that is that of something else": {[]string{"--config", write("provider \"mock\" {\n  sha256 = \"" + strings.Repeat("0", 64) + "\"\n}\n")}, "sha256"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, nil, append([]string{"plugin", "verify", dir.Join("mock")}, c.args...)...)
			assert.Equal(t, got.code, 1, got.out)
			assert.Check(t, is.Contains(got.err, c.want))
		})
	}
}
