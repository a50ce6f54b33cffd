package config_test

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/config"
)

func sample() config.Diagnostics {
	return config.Diagnostics{
		{
			Severity: config.SeverityError, Summary: "Invalid value", Detail: "The first of two sentences is long enough to be wrapped. The second is not.",
			File: "a.hcl", Start: config.Position{Line: 3, Column: 5}, Within: `provider "x"`,
			Excerpt: config.Excerpt{Text: "\ta = 日本 + 5", From: 5, To: 11},
		},
		{Severity: config.SeverityWarning, Summary: "Well-known token", File: "a.hcl"},
	}
}

func TestDiagnosticsInColorAndWrapped(t *testing.T) {
	var out strings.Builder
	assert.NilError(t, sample().Write(&out, config.Style{Color: true, Width: 40}))
	golden.Assert(t, strings.ReplaceAll(out.String(), "\x1b", "<ESC>"), "style.txt")
}

func TestDiagnosticsAreAnError(t *testing.T) {
	assert.Error(t, sample()[:1], "a.hcl:3:5: Invalid value: The first of two sentences is long enough to be wrapped. The second is not.")
	assert.Assert(t, sample().HasErrors())
	assert.Assert(t, !sample()[1:].HasErrors())
	assert.Assert(t, !config.Diagnostics(nil).HasErrors())
}

func TestALongLineIsCut(t *testing.T) {
	ds := sample()[:1]
	ds[0].Excerpt = config.Excerpt{Text: strings.Repeat("é", 500), From: 100, To: 900}
	var out strings.Builder
	assert.NilError(t, ds.Write(&out, config.Style{}))
	assert.Assert(t, strings.Contains(out.String(), "| "+strings.Repeat("é", 160)+"…\n"))
	assert.Assert(t, strings.Contains(out.String(), "| "+strings.Repeat(" ", 50)+strings.Repeat("^", 110)+"\n"))
}

type brokenWriter struct{}

var errBroken = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestAWriterThatFailsIsReported(t *testing.T) {
	assert.ErrorIs(t, sample().Write(brokenWriter{}, config.Style{}), errBroken)
}
